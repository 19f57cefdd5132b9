package admin

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Purge permanently removes the contents of a deleted namespace. It takes the name of a deleted namespace, or
// the opaque id of an orphan; it refuses a live namespace.
//
// It removes the name first, so that nobody can recover half a namespace, and the id last; in between, the namespace is
// an orphan. To resume an interrupted purge, purge the name again, unless it is in use again; purging the id always
// works. Other processes may use the namespace until their [weir.Config.CacheTTL] has passed since it was deleted: what
// they spend in the meantime is left behind, where nothing lists it.
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
			if err := s.purge(ctx, &orphans[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// purgeable returns the orphans that a name or id refers to. If needed, it removes the name to make an orphan.
func (s *Namespaces) purgeable(ctx context.Context, nameOrID string) ([]orphan, error) {
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
	o := orphan{Namespace{Name: ns.Name, ID: ns.ID}, id}
	ev := record.Event{
		Action: "namespace.purge", Subject: "namespace:" + ns.Name, Before: ns, After: o.Namespace,
	}
	return []orphan{o}, s.commit(ctx, store.Registry, []record.Event{ev}, record.Remove(r))
}

// findOrphans looks for an orphan with the id, then for orphans that had the name.
func (s *Namespaces) findOrphans(ctx context.Context, nameOrID string) ([]orphan, error) {
	id, err := s.get(ctx, record.NamespaceIDKey(nameOrID))
	if err != nil {
		return nil, err
	}
	ids := []store.Record{id}
	if id.Version == 0 {
		page, err := s.list(ctx, store.Query{Namespace: store.Registry, Kind: store.KindNamespaceID, Parent: nameOrID})
		if err != nil {
			return nil, err
		}
		ids = page.Records
	}
	orphans, err := s.orphans(ctx, ids)
	switch {
	case err != nil:
		return nil, err
	case len(ids) == 0:
		return nil, notFound("namespace", nameOrID)
	case len(orphans) == 0:
		return nil, configErr("namespace", "%q is the id of a named namespace: delete and purge it by name", nameOrID)
	}
	return orphans, nil
}

// purge removes the contents of an orphan, then its id.
func (s *Namespaces) purge(ctx context.Context, o *orphan) error {
	for _, kind := range store.Kinds {
		if err := s.sweep(ctx, store.Query{Namespace: o.ID, Kind: kind, Max: chunk}); err != nil {
			return err
		}
	}
	if err := s.forgetBuckets(ctx, store.BucketQuery{Namespace: o.ID}); err != nil {
		return err
	}
	if s.parts.Usage != nil {
		if err := s.parts.Usage.ForgetUsage(ctx, o.ID); err != nil {
			return err
		}
	}
	var writes []store.Write
	if o.record.Version != 0 { // as a rule: only something else than weir leaves a name without an id
		writes = append(writes, record.Remove(o.record))
	}
	ev := record.Event{Action: "namespace.purge", Subject: "namespace:" + o.Name, Before: o.Namespace}
	return s.commit(ctx, store.Registry, []record.Event{ev}, writes...)
}

// sweep deletes all records that match a query, without audit events.
func (s *Namespaces) sweep(ctx context.Context, q store.Query) error {
	return s.each(ctx, q, func(rs []store.Record) error {
		writes := make([]store.Write, len(rs))
		for i, r := range rs {
			writes[i] = record.Remove(r)
		}
		return s.commit(ctx, q.Namespace, nil, writes...)
	})
}

// Orphans returns namespaces without a name, by opaque id: the remains of purges that did not finish. To finish one,
// purge its id. Name is the namespace's former name, which may be in use again. The query's Deleted field is ignored.
func (s *Namespaces) Orphans(ctx context.Context, query NamespaceQuery) (Page[Namespace], error) {
	page, err := s.list(ctx, store.Query{
		Namespace: store.Registry, Kind: store.KindNamespaceID, After: query.After, Max: query.Max,
	})
	if err != nil {
		return Page[Namespace]{}, err
	}
	out := Page[Namespace]{Next: page.Next}
	for rs := range slices.Chunk(page.Records, chunk) {
		orphans, err := s.orphans(ctx, rs)
		if err != nil {
			return Page[Namespace]{}, err
		}
		for i := range orphans {
			out.Items = append(out.Items, orphans[i].Namespace)
		}
	}
	return out, nil
}

type orphan struct {
	Namespace
	record store.Record // the record of its id
}

// orphans returns those of the id records that no name refers to.
func (s *Namespaces) orphans(ctx context.Context, ids []store.Record) ([]orphan, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	keys := make([]store.Key, len(ids))
	found := make([]orphan, len(ids))
	for i, r := range ids {
		var id record.NamespaceID
		if err := record.Decode(r, &id); err != nil {
			return nil, err
		}
		found[i] = orphan{Namespace{Name: id.Name, ID: r.Key.ID}, r}
		keys[i] = record.NamespaceKey(id.Name)
	}
	names, err := s.parts.Store.Get(ctx, keys...)
	if err != nil {
		return nil, err
	}
	var out []orphan
	for i, r := range names.Records {
		var ns Namespace
		if r.Version != 0 {
			if ns, err = namespaceOf(r); err != nil {
				return nil, err
			}
		}
		if ns.ID != found[i].ID {
			out = append(out, found[i])
		}
	}
	return out, nil
}
