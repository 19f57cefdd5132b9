package weir

import (
	"context"
	"errors"
	"strconv"

	"github.com/weirlimits/weir/store"
)

// PurgeNamespace permanently removes the contents of a deleted namespace. It takes the name of a deleted namespace, or
// the opaque id of an orphan; it refuses a live namespace.
//
// It removes the name first, so that nobody can recover half a namespace, and the id last; in between, the namespace is
// an orphan. To resume an interrupted purge, purge the name again, unless it is in use again; purging the id always
// works. Other processes may use the namespace until their [Config.CacheTTL] has passed since it was deleted: what they
// spend in the meantime is left behind, out of sight.
//
// Errors: [ErrNotFound], [*ConfigError] for a live namespace, [ErrConflict], store errors.
func (l *Limiter) PurgeNamespace(ctx context.Context, nameOrID string) error {
	if err := checkNamespace(nameOrID); err != nil {
		return err
	}
	c := l.admin()
	return c.retry(ctx, "namespace "+strconv.Quote(nameOrID), func() error {
		orphans, err := c.purgeable(ctx, nameOrID)
		if err != nil {
			return err
		}
		for i := range orphans {
			if err := c.purge(ctx, &orphans[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// purgeable returns the orphans that a name or id refers to. If needed, it removes the name to make an orphan.
func (c *core) purgeable(ctx context.Context, nameOrID string) ([]orphan, error) {
	r, ns, err := c.namespace(ctx, nameOrID)
	switch {
	case errors.Is(err, ErrNotFound):
		return c.findOrphans(ctx, nameOrID)
	case err != nil:
		return nil, err
	case ns.Deleted == nil:
		return nil, configErr("namespace", "%q is live: delete it first", nameOrID)
	}
	id, err := c.get(ctx, namespaceIDKey(ns.ID))
	if err != nil {
		return nil, err
	}
	o := orphan{Namespace{Name: ns.Name, ID: ns.ID}, id}
	ev := event{"namespace.purge", "namespace:" + ns.Name, ns, o.Namespace}
	return []orphan{o}, c.commit(ctx, store.Registry, []event{ev}, remove(r))
}

// findOrphans looks for an orphan with the id, then for orphans that had the name.
func (c *core) findOrphans(ctx context.Context, nameOrID string) ([]orphan, error) {
	id, err := c.get(ctx, namespaceIDKey(nameOrID))
	if err != nil {
		return nil, err
	}
	ids := []store.Record{id}
	if id.Version == 0 {
		page, err := c.list(ctx, store.Query{Namespace: store.Registry, Kind: store.KindNamespaceID, Parent: nameOrID})
		if err != nil {
			return nil, err
		}
		ids = page.Records
	}
	orphans, err := c.orphans(ctx, ids)
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
func (c *core) purge(ctx context.Context, o *orphan) error {
	for _, kind := range store.Kinds {
		if err := c.sweep(ctx, store.Query{Namespace: o.ID, Kind: kind, Max: chunk}); err != nil {
			return err
		}
	}
	if err := c.forgetBuckets(ctx, store.BucketQuery{Namespace: o.ID}); err != nil {
		return err
	}
	if c.usage != nil {
		if err := c.usage.ForgetUsage(ctx, o.ID); err != nil {
			return err
		}
	}
	ev := event{action: "namespace.purge", subject: "namespace:" + o.Name, before: o.Namespace}
	if o.record.Version == 0 { // only if something else wrote the catalog
		return c.commit(ctx, store.Registry, []event{ev})
	}
	return c.commit(ctx, store.Registry, []event{ev}, remove(o.record))
}

// sweep deletes all records that match a query, without audit events.
func (c *core) sweep(ctx context.Context, q store.Query) error {
	for {
		page, err := c.list(ctx, q)
		if err != nil {
			return err
		}
		writes := make([]store.Write, len(page.Records))
		for i, r := range page.Records {
			writes[i] = remove(r)
		}
		if len(writes) > 0 {
			if err := c.commit(ctx, q.Namespace, nil, writes...); err != nil {
				return err
			}
		}
		if q.After = page.Next; q.After == "" {
			return nil
		}
	}
}
