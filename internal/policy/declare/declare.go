// Package declare makes many changes of records in few calls to the store.
package declare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/plans"
	"github.com/weirlimits/weir/internal/policy/prepaid"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/internal/policy/tree"
	"github.com/weirlimits/weir/store"
)

// Change replaces a record. Without Entity and Limits, it removes the record.
type Change struct {
	Key     store.Key
	Version uint64         // as it was read; it must still be so
	Was     record.Entity  // as it was read
	Before  []record.Limit // as they were read
	Entity  *record.Entity // the new contents
	Limits  *record.Limits // the new contents
	Event   record.Event
}

// moves reports whether an existing entity gets another parent, which may take several steps.
func (ch *Change) moves() bool {
	return ch.Entity != nil && ch.Version != 0 && ch.Entity.Parent != "" && ch.Entity.Parent != ch.Was.Parent
}

func (ch *Change) node() tree.Node {
	n := tree.Node{Key: ch.Key, Version: ch.Version, Rec: ch.Was}
	if ch.Entity != nil {
		n.Rec = *ch.Entity
	}
	return n
}

// Declaration is where changes are made.
type Declaration struct {
	Tree      tree.Tree
	Namespace string // the opaque id
	// Removed returns the event of the removal of limits that go with a plan.
	Removed func(store.Record) (record.Event, error)
	Check   bool // set only the errors of changes that would hide a balance, and make none

	errs  []error               // by change
	nodes map[string]tree.Node  // entities read since the last conflict
	plans map[string]plans.Plan // likewise
	sure  bool                  // a place in a plan was not as expected: read them
	steps []step
	size  int // writes of the next commit
	bytes int // of their values, about
}

// step is what one change writes.
type step struct {
	at     int // of the change
	change *Change
	writes []store.Write // the last one is the change's own
}

// Run makes the changes whose error is nil, and sets the errors of those that it could not make.
func (d *Declaration) Run(ctx context.Context, changes []Change, errs []error) {
	d.errs, d.nodes, d.plans = errs, make(map[string]tree.Node), make(map[string]plans.Plan)
	if d.keep(ctx, changes); d.Check {
		return
	}
	var leaving []leaver
	var ending []int // plans to be removed
	for i := range changes {
		switch ch := &changes[i]; {
		case errs[i] != nil:
		case ch.Key.Kind == store.KindEntity && ch.Entity == nil:
			leaving = append(leaving, leaver{i, ch, ch.node()})
		case ch.Limits == nil && ch.Key.Kind == store.KindPlanLimits && ch.Key.Sub == record.DefaultResource:
			ending = append(ending, i)
		case ch.moves():
			d.move(ctx, i, ch)
		default:
			d.add(ctx, i, ch)
		}
	}
	d.flush(ctx)
	d.remove(ctx, leaving)
	for _, i := range ending {
		d.errs[i] = d.end(ctx, &changes[i])
	}
}

// keep sets the errors of changes that would hide a balance.
func (d *Declaration) keep(ctx context.Context, changes []Change) {
	var all []prepaid.Change
	var at []int
	for i := range changes {
		if d.errs[i] != nil {
			continue
		}
		ch := &changes[i]
		c := prepaid.Change{Record: store.Record{Key: ch.Key}, Before: ch.Before}
		switch n := ch.node(); {
		case ch.Entity != nil:
			c.Record = n.Put().Record
			c.New = ch.Version == 0
			c.Moves = n.Rec.Plan != ch.Was.Plan || n.Rec.Parent != ch.Was.Parent
		case ch.Limits != nil:
			c.Record, c.After = record.Put(ch.Key, ch.Version, ch.Limits).Record, *ch.Limits
		default:
			c.Moves = ch.Was.Plan+ch.Was.Parent != ""
		}
		if ch.Entity != nil || ch.Limits != nil {
			c.Record.Version = max(ch.Version, 1)
		}
		all, at = append(all, c), append(at, i)
	}
	errs, err := prepaid.Hidden(ctx, d.Tree.Store, d.Tree.Policies, all)
	for i := range all {
		if d.errs[at[i]] = err; err == nil {
			d.errs[at[i]] = errs[i]
		}
	}
}

// add collects a change for the next commit, and commits first if that would become too large.
func (d *Declaration) add(ctx context.Context, at int, ch *Change) {
	writes, err := d.writes(ctx, ch)
	if err != nil {
		d.errs[at] = err
		return
	}
	bytes := bytesOf(writes, ch.Event)
	// Each change has an event, and the commit the chain's head and what marks the system's record.
	if d.size+len(writes)+3 > store.MaxWrites || d.bytes+bytes > store.MaxCommit {
		d.flush(ctx)
	}
	d.size += len(writes) + 1
	d.bytes += bytes
	d.steps = append(d.steps, step{at, ch, writes})
}

// bytesOf returns about how many bytes a change writes: its records, and what its event shows of before and after.
func bytesOf(writes []store.Write, ev record.Event) int {
	n := 1 << 10 // the rest of the event
	for i := range writes {
		n += len(writes[i].Record.Value)
	}
	for _, shown := range []any{ev.Before, ev.After} {
		if shown != nil {
			n += len(record.Encode(shown))
		}
	}
	return n
}

func (d *Declaration) writes(ctx context.Context, ch *Change) (writes []store.Write, err error) {
	if ch.Entity != nil {
		n := ch.node()
		if n.Rec.Parent != "" && ch.Was.Parent != n.Rec.Parent {
			chain, err := d.Tree.Chain(ctx, d.Namespace, n.Rec.Parent, d.nodes)
			if err == nil {
				writes, err = n.Under(chain)
			}
			if err != nil {
				return nil, err
			}
		}
		moves, err := d.named(ctx, ch)
		return append(append(writes, moves...), n.Put()), err
	}
	if ch.Limits == nil {
		return []store.Write{record.Remove(store.Record{Key: ch.Key, Version: ch.Version})}, nil
	}
	if sc := record.ScopeOf(ch.Key); sc.Plan != "" {
		p, err := d.plan(ctx, sc.Plan)
		if err == nil {
			writes, err = p.Ensure(sc.Resource == "")
		}
		if err != nil {
			return nil, err
		}
	}
	return append(writes, record.Put(ch.Key, ch.Version, ch.Limits)), nil
}

// plan reads a plan, unless it was read since the last conflict.
func (d *Declaration) plan(ctx context.Context, id string) (p plans.Plan, err error) {
	p, ok := d.plans[id]
	if !ok {
		if p, err = plans.Read(ctx, d.Tree.Store, d.Namespace, id); err == nil {
			d.plans[id] = p
		}
	}
	return p, err
}

// named returns what a commit must assert and do, so that an entity is found by its plan.
func (d *Declaration) named(ctx context.Context, ch *Change) ([]store.Write, error) {
	from, to := ch.Was.Plan, ""
	if ch.Entity != nil {
		to = ch.Entity.Plan
	}
	if from == to {
		return nil, nil
	}
	var writes []store.Write
	var err error
	if d.sure {
		writes, err = plans.Move(ctx, d.Tree.Store, ch.Key, from, to)
	} else {
		writes = plans.Moves(ch.Key, from, to)
	}
	if err != nil || to == "" {
		return writes, err
	}
	p, err := d.plan(ctx, to)
	if err != nil {
		return nil, err
	}
	w, err := p.Stay()
	return append(writes, w), err
}

// again forgets what was read, after a conflict.
func (d *Declaration) again(conflict *store.ConflictError) {
	clear(d.nodes)
	clear(d.plans)
	d.sure = d.sure || conflict != nil && conflict.Key.Kind == store.KindPlanEntity
}

// flush commits the collected steps. It drops a change whose record is not as it was read, and retries the others.
func (d *Declaration) flush(ctx context.Context) {
	for try := 0; len(d.steps) > 0; try++ {
		err := d.commit(ctx)
		var conflict *store.ConflictError
		if !errors.As(err, &conflict) || try > policy.MaxTries+len(d.steps) {
			for _, st := range d.steps {
				d.errs[st.at] = err
			}
			break
		}
		d.again(conflict)
		steps := d.steps
		d.steps, d.size, d.bytes = nil, 0, 0
		for _, st := range steps {
			if own := &st.writes[len(st.writes)-1]; own.Record.Key == conflict.Key {
				d.errs[st.at] = fmt.Errorf("%w (%w)", conflict, policy.ErrConflict)
			} else {
				d.add(ctx, st.at, st.change) // a parent may have changed
			}
		}
	}
	d.steps, d.size, d.bytes = nil, 0, 0
}

func (d *Declaration) commit(ctx context.Context) error {
	var writes []store.Write
	var events []record.Event
	at := make(map[store.Key]int)
	for _, st := range d.steps {
		for j, w := range st.writes {
			i, twice := at[w.Record.Key]
			switch {
			case !twice:
				at[w.Record.Key] = len(writes)
				writes = append(writes, w)
			case writes[i].Check, j == len(st.writes)-1: // both assert the same; the change's own write counts
				writes[i] = w
			}
		}
		events = append(events, st.change.Event)
	}
	return d.put(ctx, events, writes...)
}

func (d *Declaration) put(ctx context.Context, events []record.Event, writes ...store.Write) error {
	if err := record.CheckNew(writes); err != nil {
		return err
	}
	return d.Tree.Policies.Commit(ctx, d.Namespace, events, writes...)
}

// conflicting adds the error of a conflict to that of the store.
func conflicting(err error) error {
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%w (%w)", err, policy.ErrConflict)
	}
	return err
}

// move gives an existing entity another parent, in commits of its own.
func (d *Declaration) move(ctx context.Context, at int, ch *Change) {
	n := ch.node()
	checks, err := d.Tree.Place(ctx, &n, ch.Was.Parent)
	if err == nil {
		var moves []store.Write
		moves, err = d.named(ctx, ch)
		checks = append(checks, moves...)
	}
	if err == nil {
		err = d.put(ctx, []record.Event{ch.Event}, append(checks, n.Put())...)
	}
	d.errs[at] = conflicting(err)
	d.again(nil)
}

// end deletes a plan.
func (d *Declaration) end(ctx context.Context, ch *Change) error {
	p, err := plans.Read(ctx, d.Tree.Store, d.Namespace, ch.Key.ID)
	if err == nil && p.Version != ch.Version {
		err = &store.ConflictError{Key: p.Key, Have: p.Version, Want: ch.Version}
	}
	if err == nil {
		err = plans.Delete(ctx, d.Tree.Policies, d.Tree.Store, &p, func(r store.Record) (record.Event, error) {
			if r.Key == ch.Key {
				return ch.Event, nil
			}
			return d.Removed(r)
		})
	}
	return conflicting(err)
}

// leaver is an entity to be removed.
type leaver struct {
	at     int // of the change
	change *Change
	node   tree.Node
}

// maxLeavers is how many entities one commit removes, each with its event and its place in a plan.
const maxLeavers = (store.MaxWrites - 1) / 3

// remove removes entities: it marks them first, so that no child can be added, and then looks for children that were
// added before.
func (d *Declaration) remove(ctx context.Context, all []leaver) {
	for some := range slices.Chunk(all, maxLeavers) {
		some = d.each(ctx, some, func(v *leaver) ([]store.Write, []record.Event, error) {
			if v.node.Rec.Deleting {
				return []store.Write{v.node.Check()}, nil, nil
			}
			v.node.Rec.Deleting = true
			return []store.Write{v.node.Put()}, nil, nil
		})
		var free []leaver
		for _, v := range some {
			page, err := d.Tree.Store.List(ctx, store.Query{
				Namespace: d.Namespace, Kind: store.KindEntity, Parent: v.node.Key.ID, Max: 1,
			})
			if err == nil && len(page.Records) > 0 {
				v.node.Rec.Deleting = false
				err = d.put(ctx, nil, v.node.Put())
				if err == nil {
					err = record.Invalid("entity", "%q has children that stay, including %q: remove or move them first",
						v.node.Key.ID, page.Records[0].Key.ID)
				}
			}
			if d.errs[v.at] = err; err == nil {
				free = append(free, v)
			}
		}
		d.each(ctx, free, func(v *leaver) ([]store.Write, []record.Event, error) {
			writes, err := d.named(ctx, v.change)
			writes = append(writes, record.Remove(store.Record{Key: v.node.Key, Version: v.node.Version}))
			return writes, []record.Event{v.change.Event}, err
		})
	}
}

// each commits the writes of some entities together, of which the last of each is that of its record. It leaves out
// entities that have changed, and returns the others.
func (d *Declaration) each(
	ctx context.Context, some []leaver, write func(*leaver) ([]store.Write, []record.Event, error),
) []leaver {
	for len(some) > 0 {
		next := slices.Clone(some)
		var writes []store.Write
		var events []record.Event
		var err error
		for i := range next {
			ws, evs, bad := write(&next[i])
			if writes = append(writes, ws...); !ws[len(ws)-1].Check {
				next[i].node.Version++
			}
			events, err = append(events, evs...), cmp.Or(err, bad)
		}
		if err == nil {
			err = d.put(ctx, events, writes...)
		}
		if err == nil {
			return next
		}
		var conflict *store.ConflictError
		isConflict := errors.As(err, &conflict)
		if isConflict && conflict.Key.Kind == store.KindPlanEntity && !d.sure {
			d.again(conflict)
			continue
		}
		var rest []leaver
		for _, v := range some {
			switch {
			case !isConflict:
				d.errs[v.at] = err
			case v.node.Key == conflict.Key:
				d.errs[v.at] = fmt.Errorf("%w (%w)", conflict, policy.ErrConflict)
			default:
				rest = append(rest, v)
			}
		}
		if len(rest) == len(some) { // the conflict concerns none of them
			for _, v := range rest {
				d.errs[v.at] = err
			}
			return nil
		}
		some = rest
	}
	return nil
}
