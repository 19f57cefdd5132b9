package admin

import (
	"context"
	"fmt"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/internal/policy/tree"
	"github.com/weirlimits/weir/store"
)

// node is an entity's record.
type node struct{ tree.Node }

func (c catalog) tree() tree.Tree { return tree.Tree{Store: c.parts.Store, Policies: c.parts.Policies} }

func (c catalog) node(ctx context.Context, space, id string) (node, error) {
	n, err := c.tree().Read(ctx, space, id)
	return node{n}, err
}

func nodeOf(r store.Record) (node, error) {
	n, err := tree.Of(r)
	return node{n}, err
}

// place returns what a commit must assert (and do) to put n under its parent; from is its current parent.
func (c catalog) place(ctx context.Context, n *node, from string) ([]store.Write, error) {
	writes, err := c.tree().Place(ctx, &n.Node, from)
	return writes, publicError(err)
}

func (n *node) entity() Entity {
	r := &n.Rec
	return Entity{n.Key.ID, r.Name, r.Parent, r.Plan, r.Cascade, r.Metadata, r.Created, (*Managed)(r.Managed)}
}

// mustBe returns [weir.ErrConflict] unless the entity is as it was read. It may be anything if was is nil.
func (n *node) mustBe(was *Entity) error {
	if now := n.entity(); was == nil ||
		n.Exists() && now.equal(was) && now.Created.Equal(was.Created) && sameMark(now.Managed, was.Managed) {
		return nil
	}
	return fmt.Errorf("entity %q: differs from the one that was read: %w", n.Key.ID, weir.ErrConflict)
}

func (n *node) set(e *Entity) {
	n.Rec = record.Entity{
		Name: e.Name, Parent: e.Parent, Plan: e.Plan, Cascade: e.Cascade, Metadata: e.Metadata,
		Created: e.Created, Managed: (*record.Managed)(e.Managed),
	}
}

// deleting returns the error for changing an entity that is being deleted.
func (n *node) deleting(err error) error {
	return fmt.Errorf("entity %q is being deleted, delete it again to finish: %w", n.Key.ID, err)
}
