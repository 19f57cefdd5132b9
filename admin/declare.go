package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// declaration is one call of Declare, with the steps collected for the next commit.
type declaration struct {
	catalog catalog
	space   string
	errs    []error         // by change
	nodes   map[string]node // entities read since the last conflict
	steps   []step
	size    int // of the next commit
}

// step is what one change writes.
type step struct {
	at     int // of the change
	change *DeclaredChange
	writes []store.Write // the last one is the change's own
}

// add collects a change for the next commit, and commits first if that would become too large.
func (d *declaration) add(ctx context.Context, at int, ch *DeclaredChange) {
	writes, err := d.writes(ctx, ch)
	if err != nil {
		d.errs[at] = err
		return
	}
	if d.size+len(writes)+1 > store.MaxWrites { // plus its event
		d.flush(ctx)
	}
	d.size += len(writes) + 1
	d.steps = append(d.steps, step{at, ch, writes})
}

func (d *declaration) writes(ctx context.Context, ch *DeclaredChange) ([]store.Write, error) {
	switch a := &ch.After; {
	case a.Entity != nil:
		n := ch.node(d.space, a.Entity)
		var writes []store.Write
		if n.rec.Parent != "" && (ch.Before.Entity == nil || ch.Before.Entity.Parent != n.rec.Parent) {
			chain, err := d.catalog.chain(ctx, d.space, n.rec.Parent, d.nodes)
			if err != nil {
				return nil, err
			}
			if writes, err = n.under(chain); err != nil {
				return nil, err
			}
		}
		return append(writes, n.put()), nil
	case a.Limits != nil:
		lr := record.Limits{
			OnUnavailable: string(a.Limits.OnUnavailable), NearLimit: a.Limits.NearLimit,
			Managed: (*record.Managed)(a.Limits.Managed),
		}
		if len(a.Limits.Limits) > 0 {
			lr.Limits, _ = validLimits(a.Limits.Limits) // the change was validated
		}
		return []store.Write{record.Put(a.Limits.Scope.key(d.space), ch.Before.Version, lr)}, nil
	}
	r := store.Record{Key: ch.Before.Limits.Scope.key(d.space), Version: ch.Before.Version}
	return []store.Write{record.Remove(r)}, nil
}

// flush commits the collected steps. It drops a change whose record is not as it was read, and retries the others.
func (d *declaration) flush(ctx context.Context) {
	for try := 0; len(d.steps) > 0; try++ {
		err := d.commit(ctx)
		var conflict *store.ConflictError
		if !errors.As(err, &conflict) || try > policy.MaxTries+len(d.steps) {
			for _, st := range d.steps {
				d.errs[st.at] = err
			}
			break
		}
		clear(d.nodes)
		again := d.steps
		d.steps, d.size = nil, 0
		for _, st := range again {
			if own := &st.writes[len(st.writes)-1]; own.Record.Key == conflict.Key {
				d.errs[st.at] = fmt.Errorf("%w (%w)", conflict, weir.ErrConflict)
			} else {
				d.add(ctx, st.at, st.change) // a parent may have changed
			}
		}
	}
	d.steps, d.size = nil, 0
}

func (d *declaration) commit(ctx context.Context) error {
	var writes []store.Write
	var events []record.Event
	at := make(map[store.Key]int)
	for _, st := range d.steps {
		for _, w := range st.writes {
			i, twice := at[w.Record.Key]
			switch {
			case !twice:
				at[w.Record.Key] = len(writes)
				writes = append(writes, w)
			case writes[i].Check: // two entities under one parent, or a write, which asserts the same
				writes[i] = w
			}
		}
		events = append(events, st.change.event())
	}
	return d.catalog.commit(ctx, d.space, events, writes...)
}

// move gives an existing entity another parent, in commits of its own.
func (d *declaration) move(ctx context.Context, at int, ch *DeclaredChange) {
	n := ch.node(d.space, ch.After.Entity)
	checks, err := d.catalog.place(ctx, &n, ch.Before.Entity.Parent)
	if err == nil {
		err = d.catalog.commit(ctx, d.space, []record.Event{ch.event()}, append(checks, n.put())...)
	}
	if errors.Is(err, store.ErrConflict) {
		err = fmt.Errorf("%w (%w)", err, weir.ErrConflict)
	}
	d.errs[at] = err
	clear(d.nodes)
}

// leaver is an entity to be removed.
type leaver struct {
	at   int // of the change
	node node
}

// maxLeavers is how many entities one commit removes, each with its event.
const maxLeavers = store.MaxWrites / 2

// remove removes entities like [Entities.Delete] does: it marks them first, so that no child can be added, and then
// looks for children that were added before.
func (d *declaration) remove(ctx context.Context, all []leaver) {
	for some := range slices.Chunk(all, maxLeavers) {
		some = d.each(ctx, some, func(n *node) (store.Write, *record.Event) {
			if n.rec.Deleting {
				return n.check(), nil
			}
			n.rec.Deleting = true
			return n.put(), nil
		})
		var free []leaver
		for _, v := range some {
			page, err := d.catalog.list(ctx, store.Query{
				Namespace: d.space, Kind: store.KindEntity, Parent: v.node.key.ID, Max: 1,
			})
			if err == nil && len(page.Records) > 0 {
				v.node.rec.Deleting = false
				err = d.catalog.commit(ctx, d.space, nil, v.node.put())
				if err == nil {
					err = configErr("entity", "%q has children that stay, including %q: remove or move them first",
						v.node.key.ID, page.Records[0].Key.ID)
				}
			}
			if d.errs[v.at] = err; err == nil {
				free = append(free, v)
			}
		}
		d.each(ctx, free, func(n *node) (store.Write, *record.Event) {
			e := n.entity()
			ev := record.Event{Action: "entity.delete", Subject: "entity:" + e.ID, Before: e}
			return record.Remove(store.Record{Key: n.key, Version: n.version}), &ev
		})
	}
}

// each commits one write per entity together. It leaves out entities that have changed, and returns the others.
func (d *declaration) each(
	ctx context.Context, some []leaver, write func(*node) (store.Write, *record.Event),
) []leaver {
	for len(some) > 0 {
		next := slices.Clone(some)
		var writes []store.Write
		var events []record.Event
		for i := range next {
			w, ev := write(&next[i].node)
			if writes = append(writes, w); !w.Check {
				next[i].node.version++
			}
			if ev != nil {
				events = append(events, *ev)
			}
		}
		err := d.catalog.commit(ctx, d.space, events, writes...)
		if err == nil {
			return next
		}
		var conflict *store.ConflictError
		isConflict := errors.As(err, &conflict)
		var rest []leaver
		for _, v := range some {
			switch {
			case !isConflict:
				d.errs[v.at] = err
			case v.node.key == conflict.Key:
				d.errs[v.at] = fmt.Errorf("%w (%w)", conflict, weir.ErrConflict)
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
