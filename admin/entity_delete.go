package admin

import (
	"context"
	"errors"
	"strconv"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// DeleteOptions selects what to delete along with an entity.
type DeleteOptions struct {
	// Children also deletes the entity's descendants, lowest first. Without it, an entity with children is not deleted.
	Children bool
}

// Delete deletes an entity with its limits and buckets; for an entity that was never created, its limits and buckets.
// It takes several steps. If it is interrupted, delete the entity again to finish; until then the entity still exists,
// but nothing can be added below it. Each removal of limits and of an entity has its own audit event, written in the
// same atomic step.
//
// Errors: [weir.ErrNotFound] if neither the entity nor any of its limits exist, [*weir.ConfigError] if it has children
// and Children is not set.
func (s *Entities) Delete(ctx context.Context, id string, opts DeleteOptions) error {
	space, err := s.space(ctx, checkID("entity", id))
	if err != nil {
		return err
	}
	return s.remove(ctx, record.EntityKey(space, id), opts, weir.MaxDepth)
}

func (s *Entities) remove(ctx context.Context, key store.Key, opts DeleteOptions, levels int) error {
	if levels == 0 { // only if something else wrote the catalog
		return tooDeep(key.ID)
	}
	return policy.Retry(ctx, "entity "+strconv.Quote(key.ID), func() error {
		n, err := s.markDeleting(ctx, key, opts)
		if err != nil {
			return err
		}
		if err := s.deleteChildren(ctx, &n, opts, levels); err != nil {
			return err
		}
		if err := s.deleteLimits(ctx, key); err != nil {
			return err
		}
		if err := s.forgetBuckets(ctx, store.BucketQuery{Namespace: key.Namespace, Entity: key.ID}); err != nil {
			return err
		}
		ev := record.Event{Action: "entity.delete", Subject: "entity:" + key.ID}
		if n.exists() {
			ev.Before = n.entity()
		}
		return s.commit(ctx, key.Namespace, []record.Event{ev}, store.Write{
			Record: store.Record{Key: key, Version: n.version}, Delete: true,
		})
	})
}

// markDeleting keeps children from being added. Children that were added before are found afterwards.
func (s *Entities) markDeleting(ctx context.Context, key store.Key, opts DeleteOptions) (node, error) {
	n, err := s.node(ctx, key.Namespace, key.ID)
	if err != nil {
		return n, err
	}
	if n.version == 0 {
		page, err := s.list(ctx, store.Query{
			Namespace: key.Namespace, Kind: store.KindEntityLimits, ID: key.ID, Max: 1,
		})
		if err != nil {
			return n, err
		}
		if len(page.Records) == 0 {
			return n, notFound("entity", key.ID)
		}
	} else if !opts.Children {
		if err := s.refuseChildren(ctx, &n); err != nil {
			return n, err
		}
	}
	if n.rec.Deleting {
		return n, nil
	}
	n.rec.Deleting, n.rec.Moving = true, false
	err = s.commit(ctx, key.Namespace, nil, n.put())
	n.version++
	return n, err
}

// refuseChildren returns an error if the entity has children, and then removes its mark.
func (s *Entities) refuseChildren(ctx context.Context, n *node) error {
	page, err := s.list(ctx, store.Query{Namespace: n.key.Namespace, Kind: store.KindEntity, Parent: n.key.ID, Max: 1})
	if err != nil || len(page.Records) == 0 {
		return err
	}
	if n.rec.Deleting {
		n.rec.Deleting = false
		if err := s.commit(ctx, n.key.Namespace, nil, n.put()); err != nil {
			return err
		}
	}
	return configErr(
		"entity", "%q has children, including %q: delete them first, or delete them with it", n.key.ID,
		page.Records[0].Key.ID,
	)
}

func (s *Entities) deleteChildren(ctx context.Context, n *node, opts DeleteOptions, levels int) error {
	if !opts.Children {
		return s.refuseChildren(ctx, n)
	}
	q := store.Query{Namespace: n.key.Namespace, Kind: store.KindEntity, Parent: n.key.ID}
	return s.each(ctx, q, func(rs []store.Record) error {
		for _, r := range rs {
			if err := s.remove(ctx, r.Key, opts, levels-1); err != nil && !errors.Is(err, weir.ErrNotFound) {
				return err
			}
		}
		return nil
	})
}

// deleteLimits removes all limits of an entity.
func (s *Entities) deleteLimits(ctx context.Context, key store.Key) error {
	q := store.Query{Namespace: key.Namespace, Kind: store.KindEntityLimits, ID: key.ID, Max: chunk}
	return s.each(ctx, q, func(rs []store.Record) error {
		var writes []store.Write
		var events []record.Event
		for _, r := range rs {
			before, err := scopedLimits(r)
			if err != nil {
				return err
			}
			writes = append(writes, record.Remove(r))
			events = append(events, record.Event{
				Action: "limits.delete", Subject: "entity:" + key.ID, Before: before,
			})
		}
		return s.commit(ctx, key.Namespace, events, writes...)
	})
}
