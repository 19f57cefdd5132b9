package policy

import (
	"errors"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

var errUnknown = errors.New("the limits are not known")

// Known returns the policy for requests as far as it is known, however old, without a call to the store; nil if it is
// not known.
func (n *Namespace) Known(entity, resource string, own bool) *Policy {
	s, _ := n.lastKnown()
	if s == nil {
		return nil
	}
	cached := s.policies(own)
	if e := cached.find(entity, resource); e != nil && s.current(e.Policy) {
		return e.Policy
	}
	broader := false
	p, err := n.build(s, entity, resource, own, lookup{
		share: func() Share { return n.lastShare(n.name) },
		records: func(keys []store.Key) ([]catalogRecord, time.Time, error) {
			rs, unknown := n.knownRecords(keys)
			switch {
			case unknown[store.KindSystem], unknown[store.KindResourceLimits]:
				return nil, time.Time{}, errUnknown
			// An entity whose limits cannot be read is not an unknown one.
			case slices.ContainsFunc(rs, func(rec catalogRecord) bool { return rec.unreadable }):
				return nil, time.Time{}, record.ErrUnreadable
			}
			broader = broader || len(unknown) > 0
			return rs, n.start, nil // already expired
		},
	}, nil)
	if err != nil {
		return nil
	}
	if p.UsesBroaderLimits = broader; !broader && n.cfg.TTL > 0 { // the next lookup may find the entity's own
		cached.put(p)
	}
	return p
}

// knownRecords returns the records that are known, and the kinds of those that are not.
func (n *Namespace) knownRecords(keys []store.Key) (rs []catalogRecord, unknown map[store.Kind]bool) {
	for i := range keys {
		rec, ok := n.records.Known(keys[i : i+1])
		if !ok {
			if unknown == nil {
				unknown = make(map[store.Kind]bool)
			}
			unknown[keys[i].Kind] = true
			rec = []catalogRecord{{}}
		}
		rs = append(rs, rec[0])
	}
	return rs, unknown
}

// KnownMode returns the mode of requests whose policy is not known, as far as it is known: the strictest of the chain.
func (n *Namespace) KnownMode(entity, resource string, own bool) (mode Mode) {
	s, gone := n.lastKnown()
	switch {
	case gone:
		return ModeDeny
	case s == nil:
		return n.cfg.Default
	}
	for id, depth := entity, 0; id != "" && depth < MaxDepth; depth++ {
		keys := recordsOf(s.id, id, resource)
		if id == entity && !own {
			keys = keys[:slotsBeforeOwn]
		}
		rs, unknown := n.knownRecords(keys)
		if m := s.onUnavailable.Load(); m != nil && unknown[store.KindSystem] {
			rs[slotSystem].onUnavailable = *m
		}
		mode = Stricter(mode, n.setting(rs).Mode)
		id = rs[slotEntity].charged()
	}
	return mode
}
