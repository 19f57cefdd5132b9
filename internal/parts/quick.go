package parts

import "github.com/weirlimits/weir/store"

// Quick decides a request of a limiter for one of each limit on a store that never waits, if that is one limit of one
// bucket, both cached. If ok is false, it has done nothing. called is called after the call of the store.
func Quick(
	limiter interface{ reach() Parts }, st store.InProcess, entity, resource string, called func(),
) (spent *[]store.Debit, allowed, ok bool) {
	p := limiter.reach()
	e := p.Policies.Cached(entity, resource)
	if e == nil {
		return nil, false, false
	}
	if allowed, ok = st.TakeOne(e.Bucket.Load(), e.Single); !ok {
		if b := st.Find(e.Policy.Requests[0].Bucket); b != nil {
			e.Bucket.Store(b)
		}
		return nil, false, false
	}
	if called != nil {
		called()
	}
	if p.Policies.Hit(e); !allowed {
		p.Meter.RefusedOne(&e.Policy.Refused, e.Policy.Bucket(), e.Policy.Single)
		return nil, false, true
	}
	p.Ready.Answered()
	p.Meter.Debited(p.Policies.Name(), e.Policy.Requests, e.Policy.Share.Num, e.Policy.Share.Den)
	return &e.Policy.Requests, true, true
}
