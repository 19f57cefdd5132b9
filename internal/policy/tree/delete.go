package tree

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/plans"
	"github.com/weirlimits/weir/internal/policy/prepaid"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Deletion is how an entity is deleted.
type Deletion struct {
	Children bool              // deletes its descendants, too, lowest first; otherwise it may have none
	May      func(*Node) error // whether the entity, as it is read, may be deleted; nil if it may
	// The events of the removal of the entity, and of limits.
	Event  func(*Node) record.Event
	Limits func(store.Record) (record.Event, error)
}

// Delete deletes an entity with its limits, in several steps; after an interruption, delete it again. An entity with a
// balance in force that is not 0 stays. Errors: [policy.ErrNotFound], a [*record.FieldError].
func (t Tree) Delete(ctx context.Context, key store.Key, d Deletion) error {
	return t.remove(ctx, key, d, policy.MaxDepth)
}

func (t Tree) remove(ctx context.Context, key store.Key, d Deletion, levels int) error {
	if levels == 0 { // only if something else wrote the catalog
		return TooDeep(key.ID)
	}
	if err := prepaid.Kept(ctx, t.Store, t.Policies, key); err != nil {
		return err
	}
	return policy.Retry(ctx, "entity "+strconv.Quote(key.ID), func() error {
		n, err := t.markDeleting(ctx, key, d)
		if err != nil {
			return err
		}
		if err := t.deleteChildren(ctx, &n, d, levels); err != nil {
			return err
		}
		q := store.Query{Namespace: key.Namespace, Kind: store.KindEntityLimits, ID: key.ID}
		if err := t.Policies.RemoveAll(ctx, q, d.Limits); err != nil {
			return err
		}
		writes, err := plans.Move(ctx, t.Store, key, n.Rec.Plan, "")
		if err != nil {
			return err
		}
		return t.Policies.Commit(ctx, key.Namespace, []record.Event{d.Event(&n)}, append(writes,
			record.Remove(store.Record{Key: key, Version: n.Version}))...)
	})
}

// markDeleting keeps children from being added. Children that were added before are found afterwards.
func (t Tree) markDeleting(ctx context.Context, key store.Key, d Deletion) (Node, error) {
	n, err := t.get(ctx, key)
	if err == nil && d.May != nil {
		err = d.May(&n)
	}
	if err != nil {
		return n, err
	}
	if n.Version == 0 {
		page, err := t.Store.List(ctx, store.Query{
			Namespace: key.Namespace, Kind: store.KindEntityLimits, ID: key.ID, Max: 1,
		})
		if err != nil {
			return n, err
		}
		if len(page.Records) == 0 {
			return n, fmt.Errorf("entity %q: %w", key.ID, policy.ErrNotFound)
		}
	} else if !d.Children {
		if err := t.refuseChildren(ctx, &n); err != nil {
			return n, err
		}
	}
	if n.Rec.Deleting {
		return n, nil
	}
	n.Rec.Deleting, n.Rec.Moving = true, false
	err = t.Policies.Commit(ctx, key.Namespace, nil, n.Put())
	n.Version++
	return n, err
}

// refuseChildren returns an error if the entity has children, and then removes its mark.
func (t Tree) refuseChildren(ctx context.Context, n *Node) error {
	page, err := t.Store.List(ctx, store.Query{
		Namespace: n.Key.Namespace, Kind: store.KindEntity, Parent: n.Key.ID, Max: 1,
	})
	if err != nil || len(page.Records) == 0 {
		return err
	}
	if n.Rec.Deleting {
		n.Rec.Deleting = false
		if err := t.Policies.Commit(ctx, n.Key.Namespace, nil, n.Put()); err != nil {
			return err
		}
	}
	return record.Invalid("entity", "%q has children, including %q: delete them first, or delete them with it",
		n.Key.ID, page.Records[0].Key.ID)
}

func (t Tree) deleteChildren(ctx context.Context, n *Node, d Deletion, levels int) error {
	if !d.Children {
		return t.refuseChildren(ctx, n)
	}
	d.May = nil
	q := store.Query{Namespace: n.Key.Namespace, Kind: store.KindEntity, Parent: n.Key.ID}
	for r, err := range store.All(ctx, t.Store, q) {
		if err == nil {
			err = t.remove(ctx, r.Key, d, levels-1)
		}
		if err != nil && !errors.Is(err, policy.ErrNotFound) {
			return err
		}
	}
	return nil
}
