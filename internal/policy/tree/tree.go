// Package tree keeps the chains of entities and their parents free of cycles, and within the maximum depth, however
// many processes change them at once.
package tree

import (
	"context"
	"slices"

	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Node is an entity's record. A record with a version but no time of creation is only a mark: the limits and buckets of
// an entity that was never created are being deleted.
type Node struct {
	Key     store.Key
	Version uint64 // 0 if there is no record
	Rec     record.Entity
}

// Tree is the entities of a store, and the namespace through which their records are changed.
type Tree struct {
	Store    store.Store
	Policies *policy.Namespace
}

// Read reads an entity's record.
func (t Tree) Read(ctx context.Context, space, id string) (Node, error) {
	return t.get(ctx, record.EntityKey(space, id))
}

func (t Tree) get(ctx context.Context, key store.Key) (Node, error) {
	got, err := t.Store.Get(ctx, key)
	if err != nil {
		return Node{}, err
	}
	return Of(got.Records[0])
}

// Of decodes an entity's record.
func Of(r store.Record) (Node, error) {
	n := Node{Key: r.Key, Version: r.Version}
	if n.Version == 0 {
		return n, nil
	}
	return n, record.Decode(r, &n.Rec)
}

// Exists reports whether the entity was created.
func (n *Node) Exists() bool { return n.Version != 0 && !n.Rec.Created.IsZero() }

// Put returns the write that replaces the record.
func (n *Node) Put() store.Write {
	w := record.Put(n.Key, n.Version, n.Rec)
	w.Record.Parent = n.Rec.Parent
	return w
}

// Charged reports whether a child of an entity charges it.
func Charged(ctx context.Context, c store.Catalog, space, id string) (bool, error) {
	for q := (store.Query{Namespace: space, Kind: store.KindEntity, Parent: id, Max: 1000}); ; {
		page, err := c.List(ctx, q)
		if err != nil {
			return false, err
		}
		for _, r := range page.Records {
			if n, err := Of(r); err != nil || n.Rec.Cascade {
				return err == nil, err
			}
		}
		if q.After = page.Next; q.After == "" {
			return false, nil
		}
	}
}

// Check returns what asserts that the record is as it was read.
func (n *Node) Check() store.Write {
	return store.Write{Record: store.Record{Key: n.Key, Version: n.Version}, Check: true}
}

// Chains stay free of cycles and within policy.MaxDepth even if many processes create and move entities at once,
// because a commit that gives an entity a parent asserts that all records of the parent's chain are as they were read.
// If two changes concern the same chain, the later one fails and checks again.
//
// That covers what is above an entity, but not what is below: creating a child does not change its parent's record. If
// the descendants matter, which is the case when an entity moves to a greater depth, the entity is marked Moving before
// they are checked. Anyone who adds an entity below it in the meantime finds the mark in the chain and removes it,
// which makes the move fail and check again. A mark left behind by an interrupted move does no harm.

// Place returns what a commit must assert (and do) to put n under its parent; from is its current parent. It may mark
// n.
func (t Tree) Place(ctx context.Context, n *Node, from string) ([]store.Write, error) {
	to := n.Rec.Parent
	if to == "" {
		return nil, nil
	}
	chain, err := t.Chain(ctx, n.Key.Namespace, to, nil)
	if err != nil {
		return nil, err
	}
	writes, err := n.Under(chain)
	if err != nil || n.Version == 0 {
		return writes, err
	}
	above, err := t.Chain(ctx, n.Key.Namespace, from, nil)
	if err != nil {
		return nil, err
	}
	for i := range above {
		w := above[i].Check()
		if !slices.ContainsFunc(writes, func(o store.Write) bool { return o.Record.Key == w.Record.Key }) {
			writes = append(writes, w)
		}
	}
	depth := len(chain) + 1
	if depth <= len(above)+1 {
		return writes, nil // its descendants fit at this depth already
	}
	return writes, t.makeRoom(ctx, n, policy.MaxDepth-depth)
}

// Under returns what a commit must assert and do to put n under a chain, listed from its parent upwards.
func (n *Node) Under(chain []Node) ([]store.Write, error) {
	to := n.Rec.Parent
	var writes []store.Write
	for i := range chain {
		a := &chain[i]
		switch {
		case a.Key.ID == n.Key.ID:
			return nil, record.Invalid("parent", "%q is below %q: that would be a cycle", to, n.Key.ID)
		case !a.Exists():
			return nil, record.Invalid("parent", "%q does not exist", a.Key.ID)
		case a.Rec.Deleting:
			return nil, record.Invalid("parent", "%q is being deleted", a.Key.ID)
		case a.Rec.Moving:
			a.Rec.Moving = false
			writes = append(writes, a.Put())
		default:
			writes = append(writes, a.Check())
		}
	}
	if len(chain)+1 > policy.MaxDepth {
		return nil, TooDeep(to)
	}
	return writes, nil
}

// makeRoom marks n and makes sure that its descendants are at most the given number of levels below it.
func (t Tree) makeRoom(ctx context.Context, n *Node, levels int) error {
	look := func() error {
		ok, err := t.within(ctx, n.Key, levels)
		if err == nil && !ok {
			err = TooDeep(n.Rec.Parent)
		}
		return err
	}
	if err := look(); err != nil { // before anything is written
		return err
	}
	mark, err := t.get(ctx, n.Key)
	if err != nil {
		return err
	}
	if mark.Version != n.Version {
		return &store.ConflictError{Key: n.Key, Have: mark.Version, Want: n.Version}
	}
	mark.Rec.Moving = true
	if err := t.Policies.Commit(ctx, n.Key.Namespace, nil, mark.Put()); err != nil {
		return err
	}
	n.Version++
	return look()
}

// TooDeep is the error of an entity whose chain would be too long under a parent.
func TooDeep(parent string) error {
	return record.Invalid("parent", "under %q a chain would have more than %d entities", parent, policy.MaxDepth)
}

// Chain reads an entity and its parents, from the bottom up. If the id has no record, the chain is that id alone. It
// does not read entities that are in known, and adds those that it reads unless known is nil.
func (t Tree) Chain(ctx context.Context, space, id string, known map[string]Node) ([]Node, error) {
	var chain []Node
	for id != "" {
		if len(chain) == policy.MaxDepth {
			return nil, TooDeep(chain[0].Key.ID)
		}
		n, ok := known[id]
		if !ok {
			var err error
			if n, err = t.Read(ctx, space, id); err != nil {
				return nil, err
			}
			if known != nil {
				known[id] = n
			}
		}
		chain = append(chain, n)
		id = n.Rec.Parent
	}
	return chain, nil
}

// within reports whether all descendants of an entity are at most the given number of levels below it.
func (t Tree) within(ctx context.Context, key store.Key, levels int) (bool, error) {
	q := store.Query{Namespace: key.Namespace, Kind: store.KindEntity, Parent: key.ID, Max: 1000}
	if levels == 0 {
		q.Max = 1
	}
	for {
		page, err := t.Store.List(ctx, q)
		if err != nil {
			return false, err
		}
		for _, r := range page.Records {
			if levels == 0 {
				return false, nil
			}
			if ok, err := t.within(ctx, r.Key, levels-1); !ok || err != nil {
				return ok, err
			}
		}
		if q.After = page.Next; q.After == "" {
			return true, nil
		}
	}
}
