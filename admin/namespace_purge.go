package admin

import (
	"context"
	"errors"
	"strconv"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/purge"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Purge permanently removes the contents of a deleted namespace. It takes the name of a deleted namespace, or
// the opaque id of an orphan; it refuses a live namespace.
//
// It removes the name first, so that nobody can recover half a namespace, and finishes the id last; in between, the
// namespace is an orphan. To resume an interrupted purge, purge the name again, unless it is in use again; purging the
// id always works.
//
// Audit events stay until they expire: archive them before.
//
// Balances are dropped, with the ids of their credits. Those of a balance whose bucket the store has forgotten, because
// it was 0, stay; they mean nothing without the namespace.
//
// Buckets are sealed: they admit nothing under the limits that they had, keep what is spent so that nobody can spend it
// again, and expire by themselves once they would be full. Other processes may use the namespace until their
// [weir.Config.CacheTTL] has passed since it was deleted. Until then, requests whose buckets are sealed fail with
// [weir.ErrNoLimits]; those of entities without a bucket are still admitted within their limits, and make the namespace
// an orphan again, to be purged by its id.
//
// Errors: [weir.ErrNotFound], [*weir.ConfigError] for a live namespace.
func (s *Namespaces) Purge(ctx context.Context, nameOrID string) error {
	if err := checkNamespace(nameOrID); err != nil {
		return err
	}
	return policy.Retry(ctx, "namespace "+strconv.Quote(nameOrID), func() error {
		orphans, err := s.purgeable(ctx, nameOrID)
		if err != nil {
			return err
		}
		for i := range orphans {
			o := &orphans[i]
			before := Namespace{Name: o.Name, ID: o.ID}
			ev := record.Event{Action: "namespace.purge", Subject: "namespace:" + o.Name, Before: before}
			if err := s.contents(o.ID).Remove(ctx, o, ev); err != nil {
				return err
			}
		}
		return nil
	})
}

// purgeable returns the orphans that a name or id refers to. If needed, it removes the name to make an orphan.
func (s *Namespaces) purgeable(ctx context.Context, nameOrID string) ([]purge.Orphan, error) {
	r, ns, err := s.find(ctx, nameOrID)
	switch {
	case errors.Is(err, weir.ErrNotFound):
		return s.findOrphans(ctx, nameOrID)
	case err != nil:
		return nil, err
	case ns.Deleted == nil:
		return nil, configErr("namespace", "%q is live: delete it first", nameOrID)
	}
	id, err := s.get(ctx, record.NamespaceIDKey(ns.ID))
	if err != nil {
		return nil, err
	}
	after := Namespace{Name: ns.Name, ID: ns.ID}
	ev := record.Event{Action: "namespace.purge", Subject: "namespace:" + ns.Name, Before: ns, After: after}
	o := purge.Orphan{Name: ns.Name, ID: ns.ID, Record: id}
	return []purge.Orphan{o}, s.commit(ctx, store.Registry, []record.Event{ev}, record.Remove(r))
}

// findOrphans looks for an orphan with the id, then for orphans that had the name.
func (s *Namespaces) findOrphans(ctx context.Context, nameOrID string) ([]purge.Orphan, error) {
	orphans, used, err := purge.Find(ctx, s.parts.Store, nameOrID, s.contents)
	switch {
	case err != nil || len(orphans) > 0:
		return orphans, err
	case used:
		return nil, configErr("namespace", "%q is the id of a named namespace: delete and purge it by name", nameOrID)
	}
	return nil, notFound("namespace", nameOrID)
}

// contents returns what a namespace holds.
func (s *Namespaces) contents(id string) *purge.Namespace {
	return &purge.Namespace{
		Store: s.parts.Store, Usage: s.parts.Usage, Policies: s.parts.Policies, Seal: s.parts.Seal, ID: id,
	}
}

// Orphans returns namespaces without a name, by opaque id: the remains of purges that did not finish, and namespaces
// under whose id other processes have written since, within 30 days. To finish one, purge its id. Name is the
// namespace's former name, which may be in use again. The query's Deleted field is ignored. Each call reads the sealed
// buckets, until they expire, of the purged namespaces on its page.
func (s *Namespaces) Orphans(ctx context.Context, query NamespaceQuery) (Page[Namespace], error) {
	page, err := s.list(ctx, store.Query{
		Namespace: store.Registry, Kind: store.KindNamespaceID, After: query.After, Max: query.Max,
	})
	if err != nil {
		return Page[Namespace]{}, err
	}
	out := Page[Namespace]{Next: page.Next}
	orphans, err := purge.Orphans(ctx, s.parts.Store, page.Records, s.contents)
	for _, o := range orphans {
		out.Items = append(out.Items, Namespace{Name: o.Name, ID: o.ID})
	}
	return out, err
}
