// Package plans keeps the entities of a namespace to plans that exist, however many processes change both at once.
//
// A plan exists for as long as the record of its default limits does, which may be empty. A commit that gives an entity
// a plan asserts that record, so that it fails if the plan is being deleted; and it writes a record by which the plan's
// entities are found. A plan that is to be deleted is marked before its entities are looked for.
package plans

import (
	"context"
	"strings"

	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Plan is a plan as it was read.
type Plan struct {
	Key     store.Key // of its default limits
	Version uint64    // of that record; 0 if there is no such plan
	Rec     record.Limits
}

// Read reads a plan.
func Read(ctx context.Context, c store.Catalog, namespaceID, id string) (Plan, error) {
	p := Plan{Key: record.Scope{Plan: id}.Key(namespaceID)}
	got, err := c.Get(ctx, p.Key)
	if err != nil {
		return p, err
	}
	if p.Version = got.Records[0].Version; p.Version != 0 {
		err = record.Decode(got.Records[0], &p.Rec)
	}
	return p, err
}

// Stay returns what a commit must assert, so that the plan stays. The error is a [*record.FieldError] if there is no
// such plan, or if it is being deleted.
func (p *Plan) Stay() (store.Write, error) {
	if p.Version == 0 {
		return store.Write{}, record.Invalid("plan",
			"%q does not exist: create it: weir plan set %s -l NAME:AMOUNT/PERIOD", p.Key.ID, p.Key.ID)
	}
	return p.check()
}

func (p *Plan) check() (store.Write, error) {
	if p.Rec.Deleting {
		return store.Write{}, record.Invalid("plan", "%q is being deleted: delete it again to finish", p.Key.ID)
	}
	return store.Write{Record: store.Record{Key: p.Key, Version: p.Version}, Check: true}, nil
}

// Ensure returns what a commit that writes limits of the plan must assert and do, so that there is a plan. The commit
// itself writes the record of the plan's default limits if own is set.
func (p *Plan) Ensure(own bool) ([]store.Write, error) {
	w, err := p.check()
	if err != nil || own {
		return nil, err
	}
	if p.Version == 0 {
		w = record.Put(p.Key, 0, record.Limits{})
	}
	return []store.Write{w}, nil
}

// Moves is Move for an entity whose place was never written by other means: it reads nothing.
func Moves(entity store.Key, from, to string) (writes []store.Write) {
	if from != "" {
		writes = append(writes, record.Remove(store.Record{
			Key: record.PlanEntityKey(entity.Namespace, from, entity.ID), Version: 1,
		}))
	}
	if to != "" {
		writes = append(writes, record.Put(record.PlanEntityKey(entity.Namespace, to, entity.ID), 0, struct{}{}))
	}
	return writes
}

// Move returns what a commit must do so that an entity is found by the plan that it names, and by no other. From and to
// may be "".
func Move(ctx context.Context, c store.Catalog, entity store.Key, from, to string) (writes []store.Write, err error) {
	for _, id := range []string{from, to} {
		if id == "" || from == to {
			continue
		}
		got, err := c.Get(ctx, record.PlanEntityKey(entity.Namespace, id, entity.ID))
		if err != nil {
			return nil, err
		}
		switch r := got.Records[0]; {
		case id == to && r.Version == 0:
			writes = append(writes, record.Put(r.Key, 0, struct{}{}))
		case id == from && r.Version != 0:
			writes = append(writes, record.Remove(r))
		}
	}
	return writes, nil
}

// Name returns Move with what asserts that the plan to exists.
func Name(ctx context.Context, c store.Catalog, entity store.Key, from, to string) ([]store.Write, error) {
	writes, err := Move(ctx, c, entity, from, to)
	if err != nil || to == "" || from == to {
		return writes, err
	}
	p, err := Read(ctx, c, entity.Namespace, to)
	if err != nil {
		return nil, err
	}
	w, err := p.Stay()
	return append(writes, w), err
}

// atOnce is how many records one commit of a deletion removes.
const atOnce = 25

// Delete deletes a plan with its limits, unless an entity names it. event makes the audit event of the removal of a
// record. It takes several steps; after an interruption, delete it again.
//
// Errors: [policy.ErrNotFound], a [*record.FieldError] that names entities that name the plan.
func Delete(
	ctx context.Context, n *policy.Namespace, c store.Catalog, p *Plan, event func(store.Record) (record.Event, error),
) error {
	put := func(deleting bool) error {
		if p.Rec.Deleting == deleting {
			return nil
		}
		p.Rec.Deleting = deleting
		err := n.Commit(ctx, p.Key.Namespace, nil, record.Put(p.Key, p.Version, p.Rec))
		p.Version++
		return err
	}
	if p.Version == 0 {
		return policy.ErrNotFound
	}
	for _, marked := range []bool{false, true} {
		used := p.unused(ctx, c)
		if used != nil {
			if err := put(false); err != nil {
				return err
			}
			return used
		}
		if !marked {
			if err := put(true); err != nil {
				return err
			}
		}
	}
	var writes []store.Write
	var events []record.Event
	flush := func() error {
		err := n.Commit(ctx, p.Key.Namespace, events, writes...)
		writes, events = nil, nil
		return err
	}
	remove := func(r store.Record) error {
		ev, err := event(r)
		writes, events = append(writes, record.Remove(r)), append(events, ev)
		return err
	}
	for r, err := range store.All(ctx, c, store.Query{Namespace: p.Key.Namespace, Kind: p.Key.Kind, ID: p.Key.ID}) {
		if err == nil && r.Key != p.Key {
			err = remove(r)
		}
		if err == nil && len(writes) == atOnce {
			err = flush()
		}
		if err != nil {
			return err
		}
	}
	p.Rec.Deleting = false // for the event
	last := record.Put(p.Key, p.Version, p.Rec).Record
	if err := remove(last); err != nil {
		return err
	}
	return flush()
}

// some is how many of the entities that name a plan an error lists.
const some = 5

// unused returns an error if an entity names the plan.
func (p *Plan) unused(ctx context.Context, c store.Catalog) error {
	page, err := c.List(ctx, store.Query{
		Namespace: p.Key.Namespace, Kind: store.KindPlanEntity, ID: p.Key.ID, Max: some + 1,
	})
	if err != nil || len(page.Records) == 0 {
		return err
	}
	var names []string
	for _, r := range page.Records[:min(some, len(page.Records))] {
		names = append(names, r.Key.Sub)
	}
	more := ""
	if len(page.Records) > some {
		more = " and others"
	}
	return record.Invalid("plan", "%q is the plan of %s%s: give them another one first; list them: "+
		"weir entity list --plan %s", p.Key.ID, strings.Join(names, ", "), more, p.Key.ID)
}

// Entities returns a page of the entities that name a plan.
func Entities(ctx context.Context, from store.Catalog, namespace, plan, after string, most int) (store.Page, error) {
	page, err := from.List(ctx, store.Query{
		Namespace: namespace, Kind: store.KindPlanEntity, ID: plan, After: after, Max: most,
	})
	if err != nil || len(page.Records) == 0 {
		return store.Page{}, err
	}
	keys := make([]store.Key, len(page.Records))
	for i, r := range page.Records {
		keys[i] = record.EntityKey(namespace, r.Key.Sub)
	}
	got, err := from.Get(ctx, keys...)
	return store.Page{Records: got.Records, Next: page.Next}, err
}
