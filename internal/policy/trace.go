package policy

import (
	"context"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Member is what is known of one entity of a chain.
type Member struct {
	ID      string
	Exists  bool // it was created
	Record  record.Entity
	Scopes  []ScopeLimits // in order of precedence; nil if the request brings the limits of this entity
	Charged bool          // some scope has limits
	Setting Setting       // for when the store does not answer
}

// ScopeLimits is what one scope holds for an entity on a resource.
type ScopeLimits struct {
	Source        Source
	Limits        []store.Limit
	Enforce       []record.Enforce // of the limits; nil if all are enforced
	OnUnavailable Mode
}

// Trace resolves a policy anew, and returns it with what it found about each entity of the chain. It also returns that
// together with a [*NoLimitsError]. The errors are those of [Namespace.Resolve], apart from those of the share.
func (n *Namespace) Trace(ctx context.Context, entity, resource string, own bool) (*Policy, []Member, error) {
	s, err := n.lookUp(ctx, n.elapsed())
	if err != nil {
		return nil, nil, err
	}
	var chain []Member
	p, err := n.build(s, entity, resource, own, n.fromStore(ctx), func(id string, rs []catalogRecord) {
		m := Member{
			ID: id, Exists: rs[slotEntity].exists && !rs[slotEntity].entity.Created.IsZero(),
			Record: rs[slotEntity].entity, Setting: n.setting(rs),
		}
		for _, l := range scopes {
			if len(rs) > slotsBeforeOwn {
				rec := &rs[l.slot]
				m.Scopes = append(m.Scopes, ScopeLimits{l.source, rec.limits, rec.enforce, rec.onUnavailable})
			}
			if l.slot < len(rs) {
				m.Charged = m.Charged || len(rs[l.slot].limits) > 0
			}
		}
		chain = append(chain, m)
	})
	return p, chain, err
}

// Manifests returns the records of manifests, in order. That of a manifest that does not exist is empty.
func (n *Namespace) Manifests(ctx context.Context, names []string) ([]record.Manifest, error) {
	id, err := n.ID(ctx)
	if err != nil {
		return nil, err
	}
	keys := make([]store.Key, len(names))
	for i, name := range names {
		keys[i] = record.ManifestKey(id, name)
	}
	got, err := n.cfg.Catalog.Get(ctx, keys...)
	if err != nil {
		return nil, err
	}
	manifests := make([]record.Manifest, len(names))
	for i, r := range got.Records {
		if r.Version > 0 {
			if err := record.Decode(r, &manifests[i]); err != nil {
				return nil, err
			}
		}
	}
	return manifests, nil
}
