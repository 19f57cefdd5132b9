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
	rs, ok := n.records.Known([]store.Key{record.SharesKey})
	if s == nil || ok && n.shares == nil && rs[0].cell.Err() != nil {
		return nil
	}
	cached, now := s.policies(own), n.asOf()
	before := cached.find(entity, resource)
	if before != nil && !(s.current(before) && before.holds(now)) {
		before = nil
	}
	if before != nil && n.elapsed() < max(before.expires.Load(), -before.expires.Load()) {
		return before
	}
	broader := false
	p, err := n.build(s, entity, resource, own, lookup{
		now:   now,
		share: func() (Share, time.Time, error) { return n.lastShare(n.name), time.Time{}, nil },
		records: func(keys []store.Key) ([]*catalogRecord, time.Time, error) {
			rs, unknown := n.knownRecords(keys)
			switch {
			case unknown[store.KindSystem], unknown[store.KindResourceLimits]:
				return nil, time.Time{}, errUnknown
			// An entity whose limits cannot be read is not an unknown one.
			case slices.ContainsFunc(rs, func(rec *catalogRecord) bool { return rec.unreadable }):
				return nil, time.Time{}, record.ErrUnreadable
			}
			broader = broader || len(unknown) > 0
			return rs, n.start, nil
		},
	}, nil)
	switch {
	case before != nil && (broader || errors.Is(err, errUnknown)):
		before.expires.Store(-(n.elapsed() + int64(time.Second))) // until then, its records are not looked for again
		return before
	case err != nil:
		return nil
	}
	if p.UsesBroaderLimits = broader; !broader && n.cfg.TTL > 0 { // the next lookup may find the entity's own
		p.expires.Store(-(n.elapsed() + int64(min(n.cfg.TTL, time.Minute)))) // then it is made again
		n.keep(cached, p, n.cfg.Entries)
	}
	return p
}

// Names reports whether the catalog names a resource in limits that apply to an entity on it, as far as is cached. Any
// other resource may be one that a caller made up.
func (n *Namespace) Names(entity, resource string) bool {
	s, _ := n.lastKnown()
	if s == nil {
		return false
	}
	p := s.full.find(entity, resource)
	return p != nil && slices.ContainsFunc(p.Targets, func(t Target) bool {
		of := t.Source == SourceResource || t.Source == SourcePlan || t.Source == SourceEntity
		return of && t.Bucket.Resource == resource
	})
}

// Root returns the top of an entity's chain, as far as is known. The policy may be nil.
func (n *Namespace) Root(p *Policy, entity, resource string, own bool) string {
	if p == nil {
		p = n.Known(entity, resource, own)
	}
	if p == nil {
		return entity
	}
	if p.beside != nil && len(p.beside.parents) > 0 {
		return p.beside.parents[len(p.beside.parents)-1]
	}
	return p.Entity
}

// knownRecords returns the records that are known, and the kinds of those that are not.
func (n *Namespace) knownRecords(keys []store.Key) (rs []*catalogRecord, unknown map[store.Kind]bool) {
	for i := range keys {
		rec, ok := n.records.Known(keys[i : i+1])
		if !ok {
			if unknown == nil {
				unknown = make(map[store.Kind]bool)
			}
			unknown[keys[i].Kind] = true
			rec = []*catalogRecord{{}}
		}
		rs = append(rs, rec[0])
	}
	return rs, unknown
}

// KnownMode returns the mode of requests whose policy is not known, as far as it is known: the strictest of the chain.
func (n *Namespace) KnownMode(entity, resource string) (mode Mode) {
	s, gone := n.lastKnown()
	switch {
	case gone:
		return ModeDeny
	case s == nil:
		return n.cfg.Default
	}
	c, _ := lookup{now: n.asOf(), records: func(keys []store.Key) ([]*catalogRecord, time.Time, error) {
		rs, unknown := n.knownRecords(keys)
		if have := s.system.Load(); have != nil && unknown[store.KindSystem] {
			rs[slotSystem] = &catalogRecord{settings: *have}
		}
		return rs, n.start, nil
	}}.chain(s.id, entity, resource, false)
	for i, m := range c.members {
		if i == 0 && m.rs[slotSystem].known && !m.rs[slotEntity].created() {
			return ModeDeny // it may be a name that somebody made up
		}
		mode = Stricter(mode, n.setting(&m).Mode)
	}
	return mode
}
