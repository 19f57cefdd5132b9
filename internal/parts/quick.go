package parts

import "github.com/weirlimits/weir/store"

// Quick decides a request of a limiter for one of each limit on a store that never waits, if that is one limit of one
// bucket, both cached. If ok is false, it has done nothing. called is called after the call of the store.
func Quick(
	limiter *Handle, st store.InProcess, entity, resource string, called func(),
) (spent *[]store.Debit, allowed, ok bool) {
	p := &limiter.parts
	one := p.Policies.Cached(entity, resource)
	if one == nil {
		return nil, false, false
	}
	if allowed, ok = st.TakeOne(one.Known.Load(), one.Single); !ok {
		if b := st.Find(one.Bucket()); b != nil {
			one.Known.Store(b)
		}
		return nil, false, false
	}
	if called != nil {
		called()
	}
	if p.Policies.Hit(one); !allowed {
		p.Meter.RefusedOne(&one.Refused, one.Bucket(), one.Single)
		return nil, false, true
	}
	p.Ready.Answered()
	p.Meter.Debited(p.Policies.Name(), one.Requests, one.Share.Num, one.Share.Den)
	return &one.Requests, true, true
}
