package admin

import (
	"context"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/internal/policy/tree"
)

// DeleteOptions selects what to delete along with an entity.
type DeleteOptions struct {
	// Children also deletes the entity's descendants, lowest first. Without it, an entity with children is not deleted.
	Children bool
	// Was is the entity as it was read: if it is another by now, the error is [weir.ErrConflict], and nothing is
	// deleted. Nil means that the deletion does not depend on it.
	Was *Entity
}

// Delete deletes an entity with its limits; for an entity that was never created, its limits. It takes several steps.
// If it is interrupted, delete the entity again to finish; until then the entity still exists, but nothing can be added
// below it. Each removal of limits and of an entity has its own audit event, written in the same atomic step.
//
// An entity with a balance in force that is not 0 is not deleted: debit what is left, or forgive the debt, before.
//
// Buckets stay until they are full again, so that neither processes that have cached the limits, for up to
// [weir.Config.CacheTTL], nor an entity of the same id have a burst more. [Buckets.Reset] removes one.
//
// Errors: [weir.ErrNotFound] if neither the entity nor any of its limits exist, [*weir.ConfigError] if it has children
// and Children is not set, or if it, or a descendant, has such a balance.
func (s *Entities) Delete(ctx context.Context, id string, opts DeleteOptions) error {
	space, err := s.space(ctx, checkID("entity", id))
	if err != nil {
		return err
	}
	return publicError(s.tree().Delete(ctx, record.EntityKey(space, id), tree.Deletion{
		Children: opts.Children,
		May:      func(n *tree.Node) error { return (&node{*n}).mustBe(opts.Was) },
		Event: func(n *tree.Node) record.Event {
			ev := record.Event{Action: "entity.delete", Subject: "entity:" + n.Key.ID}
			if n.Exists() {
				ev.Before = (&node{*n}).entity()
			}
			return ev
		},
		Limits: limitsRemoved,
	}))
}
