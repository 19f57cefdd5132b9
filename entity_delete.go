package weir

import (
	"context"
	"errors"
	"strconv"

	"github.com/weirlimits/weir/store"
)

// DeleteOptions says what to delete along with an entity.
type DeleteOptions struct {
	// Children also deletes the entity's descendants, lowest first. Without it, an entity with children is not deleted.
	Children bool
}

// DeleteEntity deletes an entity with its limits and buckets; for an entity that was never created, its limits and
// buckets. It takes several steps. If it is interrupted, delete the entity again to finish; until then the entity still
// exists, but nothing can be added below it. Each removal of limits and each entity's end has its own audit event,
// written in the same atomic step.
//
// Errors: [ErrNotFound] if neither the entity nor any of its limits exist, [*ConfigError] if it has children and
// Children is not set, [ErrConflict], store errors.
func (l *Limiter) DeleteEntity(ctx context.Context, id string, opts DeleteOptions) error {
	if err := checkID("entity", id); err != nil {
		return err
	}
	s, err := l.space(ctx, l.admin().elapsed())
	if err != nil {
		return err
	}
	return l.admin().deleteEntity(ctx, entityKey(s.id, id), opts, MaxDepth)
}

// chunk is how many records one commit removes.
const chunk = 25

func (c *core) deleteEntity(ctx context.Context, key store.Key, opts DeleteOptions, levels int) error {
	if levels == 0 { // only if something else wrote the catalog
		return tooDeep(key.ID)
	}
	return c.retry(ctx, "entity "+strconv.Quote(key.ID), func() error {
		n, err := c.markDeleting(ctx, key, opts)
		if err != nil {
			return err
		}
		if err := c.deleteChildren(ctx, &n, opts, levels); err != nil {
			return err
		}
		if err := c.deleteEntityLimits(ctx, key); err != nil {
			return err
		}
		if err := c.forgetBuckets(ctx, store.BucketQuery{Namespace: key.Namespace, Entity: key.ID}); err != nil {
			return err
		}
		ev := event{action: "entity.delete", subject: "entity:" + key.ID}
		if n.exists() {
			ev.before = n.entity()
		}
		return c.commit(ctx, key.Namespace, []event{ev}, store.Write{
			Record: store.Record{Key: key, Version: n.version}, Delete: true,
		})
	})
}

// markDeleting prevents that children are added. Children that were added before are found afterwards.
func (c *core) markDeleting(ctx context.Context, key store.Key, opts DeleteOptions) (node, error) {
	n, err := c.node(ctx, key.Namespace, key.ID)
	if err != nil {
		return n, err
	}
	if n.version == 0 {
		page, err := c.list(ctx, store.Query{
			Namespace: key.Namespace, Kind: store.KindEntityLimits, ID: key.ID, Max: 1,
		})
		if err != nil {
			return n, err
		}
		if len(page.Records) == 0 {
			return n, notFound("entity", key.ID)
		}
	} else if !opts.Children {
		if err := c.refuseChildren(ctx, &n); err != nil {
			return n, err
		}
	}
	if n.rec.Deleting {
		return n, nil
	}
	n.rec.Deleting, n.rec.Moving = true, false
	err = c.commit(ctx, key.Namespace, nil, n.put())
	n.version++
	return n, err
}

// refuseChildren returns an error if the entity has children, and then removes its mark.
func (c *core) refuseChildren(ctx context.Context, n *node) error {
	page, err := c.list(ctx, store.Query{Namespace: n.key.Namespace, Kind: store.KindEntity, Parent: n.key.ID, Max: 1})
	if err != nil || len(page.Records) == 0 {
		return err
	}
	if n.rec.Deleting {
		n.rec.Deleting = false
		if err := c.commit(ctx, n.key.Namespace, nil, n.put()); err != nil {
			return err
		}
	}
	return configErr(
		"entity", "%q has children, including %q: delete them first, or delete them with it", n.key.ID,
		page.Records[0].Key.ID,
	)
}

func (c *core) deleteChildren(ctx context.Context, n *node, opts DeleteOptions, levels int) error {
	if !opts.Children {
		return c.refuseChildren(ctx, n)
	}
	q := store.Query{Namespace: n.key.Namespace, Kind: store.KindEntity, Parent: n.key.ID}
	for {
		page, err := c.list(ctx, q)
		if err != nil {
			return err
		}
		for _, r := range page.Records {
			if err := c.deleteEntity(ctx, r.Key, opts, levels-1); err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
		}
		if q.After = page.Next; q.After == "" {
			return nil
		}
	}
}

// deleteEntityLimits removes all limits of an entity.
func (c *core) deleteEntityLimits(ctx context.Context, key store.Key) error {
	q := store.Query{Namespace: key.Namespace, Kind: store.KindEntityLimits, ID: key.ID, Max: chunk}
	for {
		page, err := c.list(ctx, q)
		if err != nil {
			return err
		}
		var writes []store.Write
		var events []event
		for _, r := range page.Records {
			before, err := scopedLimits(r)
			if err != nil {
				return err
			}
			writes = append(writes, remove(r))
			events = append(events, event{action: "limits.delete", subject: "entity:" + key.ID, before: before})
		}
		if len(writes) > 0 {
			if err := c.commit(ctx, key.Namespace, events, writes...); err != nil {
				return err
			}
		}
		if q.After = page.Next; q.After == "" {
			return nil
		}
	}
}

// forgetBuckets removes all buckets that match.
func (c *core) forgetBuckets(ctx context.Context, q store.BucketQuery) error {
	for {
		page, err := c.buckets(ctx, q)
		if err != nil {
			return err
		}
		found := make([]store.Bucket, len(page.States))
		for i := range page.States {
			found[i] = page.States[i].Bucket
		}
		if len(found) > 0 {
			err := c.call(ctx, "forget", func(ctx context.Context) error { return c.store.Forget(ctx, found...) })
			if err != nil {
				return err
			}
		}
		if q.After = page.Next; q.After == "" {
			return nil
		}
	}
}
