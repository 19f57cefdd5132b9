package admin

import (
	"context"
	"fmt"
	"slices"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// node is an entity's record. A record with a version but no time of creation is only a mark: the limits and buckets of
// an entity that was never created are being deleted.
type node struct {
	key     store.Key
	version uint64 // 0 if there is no record
	rec     record.Entity
}

func (c catalog) node(ctx context.Context, space, id string) (node, error) {
	r, err := c.get(ctx, record.EntityKey(space, id))
	if err != nil {
		return node{}, err
	}
	return nodeOf(r)
}

func nodeOf(r store.Record) (node, error) {
	n := node{key: r.Key, version: r.Version}
	if n.version == 0 {
		return n, nil
	}
	return n, record.Decode(r, &n.rec)
}

func (n *node) exists() bool { return n.version != 0 && !n.rec.Created.IsZero() }

func (n *node) entity() Entity {
	r := &n.rec
	return Entity{n.key.ID, r.Name, r.Parent, r.Cascade, r.Metadata, r.Created, (*Managed)(r.Managed)}
}

func (n *node) set(e *Entity) {
	n.rec = record.Entity{
		Name: e.Name, Parent: e.Parent, Cascade: e.Cascade, Metadata: e.Metadata, Created: e.Created,
		Managed: (*record.Managed)(e.Managed),
	}
}

func (n *node) put() store.Write {
	w := record.Put(n.key, n.version, n.rec)
	w.Record.Parent = n.rec.Parent
	return w
}

func (n *node) check() store.Write {
	return store.Write{Record: store.Record{Key: n.key, Version: n.version}, Check: true}
}

// deleting returns the error for changing an entity that is being deleted.
func (n *node) deleting(err error) error {
	return fmt.Errorf("entity %q is being deleted, delete it again to finish: %w", n.key.ID, err)
}

// Chains stay free of cycles and within weir.MaxDepth even if many processes create and move entities at once, because
// a commit that gives an entity a parent asserts that all records of the parent's chain are as they were read. If two
// changes concern the same chain, the later one fails and checks again.
//
// That covers what is above an entity, but not what is below: creating a child does not change its parent's record. If
// the descendants matter, which is the case when an entity moves to a greater depth, the entity is marked Moving before
// they are checked. Anyone who adds an entity below it in the meantime finds the mark in the chain and removes it,
// which makes the move fail and check again. A mark left behind by an interrupted move does no harm.

// place returns what a commit must assert (and do) to put n under its parent; from is its current parent. It may mark
// n.
func (c catalog) place(ctx context.Context, n *node, from string) ([]store.Write, error) {
	to := n.rec.Parent
	if to == "" {
		return nil, nil
	}
	chain, err := c.chain(ctx, n.key.Namespace, to, nil)
	if err != nil {
		return nil, err
	}
	writes, err := n.under(chain)
	if err != nil || n.version == 0 {
		return writes, err
	}
	above, err := c.chain(ctx, n.key.Namespace, from, nil)
	if err != nil {
		return nil, err
	}
	for i := range above {
		w := above[i].check()
		if !slices.ContainsFunc(writes, func(o store.Write) bool { return o.Record.Key == w.Record.Key }) {
			writes = append(writes, w)
		}
	}
	depth := len(chain) + 1
	if depth <= len(above)+1 {
		return writes, nil // its descendants fit at this depth already
	}
	return writes, c.makeRoom(ctx, n, weir.MaxDepth-depth)
}

// under returns what a commit must assert and do to put n under a chain, listed from its parent upwards.
func (n *node) under(chain []node) ([]store.Write, error) {
	to := n.rec.Parent
	var writes []store.Write
	for i := range chain {
		a := &chain[i]
		switch {
		case a.key.ID == n.key.ID:
			return nil, configErr("parent", "%q is below %q: that would be a cycle", to, n.key.ID)
		case !a.exists():
			return nil, configErr("parent", "%q does not exist", a.key.ID)
		case a.rec.Deleting:
			return nil, configErr("parent", "%q is being deleted", a.key.ID)
		case a.rec.Moving:
			a.rec.Moving = false
			writes = append(writes, a.put())
		default:
			writes = append(writes, a.check())
		}
	}
	if len(chain)+1 > weir.MaxDepth {
		return nil, tooDeep(to)
	}
	return writes, nil
}

// makeRoom marks n and makes sure that its descendants are at most the given number of levels below it.
func (c catalog) makeRoom(ctx context.Context, n *node, levels int) error {
	look := func() error {
		ok, err := c.within(ctx, n.key, levels)
		if err == nil && !ok {
			err = tooDeep(n.rec.Parent)
		}
		return err
	}
	if err := look(); err != nil { // before anything is written
		return err
	}
	r, err := c.get(ctx, n.key)
	if err != nil {
		return err
	}
	mark, err := nodeOf(r)
	if err != nil {
		return err
	}
	if mark.version != n.version {
		return &store.ConflictError{Key: n.key, Have: mark.version, Want: n.version}
	}
	mark.rec.Moving = true
	if err := c.commit(ctx, n.key.Namespace, nil, mark.put()); err != nil {
		return err
	}
	n.version++
	return look()
}

func tooDeep(parent string) error {
	return configErr("parent", "under %q a chain would have more than %d entities", parent, weir.MaxDepth)
}

// chain reads an entity and its parents, from the bottom up. If the id has no record, the chain is that id alone. It
// does not read entities that are in known, and adds those that it reads unless known is nil.
func (c catalog) chain(ctx context.Context, space, id string, known map[string]node) ([]node, error) {
	var chain []node
	for id != "" {
		if len(chain) == weir.MaxDepth {
			return nil, tooDeep(chain[0].key.ID)
		}
		n, ok := known[id]
		if !ok {
			var err error
			if n, err = c.node(ctx, space, id); err != nil {
				return nil, err
			}
			if known != nil {
				known[id] = n
			}
		}
		chain = append(chain, n)
		id = n.rec.Parent
	}
	return chain, nil
}

// within reports whether all descendants of an entity are at most the given number of levels below it.
func (c catalog) within(ctx context.Context, key store.Key, levels int) (bool, error) {
	q := store.Query{Namespace: key.Namespace, Kind: store.KindEntity, Parent: key.ID, Max: 1000}
	if levels == 0 {
		q.Max = 1
	}
	for {
		page, err := c.list(ctx, q)
		if err != nil {
			return false, err
		}
		for _, r := range page.Records {
			if levels == 0 {
				return false, nil
			}
			if ok, err := c.within(ctx, r.Key, levels-1); !ok || err != nil {
				return ok, err
			}
		}
		if q.After = page.Next; q.After == "" {
			return true, nil
		}
	}
}
