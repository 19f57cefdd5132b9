package plan

import (
	"math"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/batch/hold"
	"github.com/weirlimits/weir/internal/batch/limitname"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// upkeep is a write that maintains the item itself. The job that needs it is the write's only entry, and is planned
// again afterwards.
type upkeep interface {
	write(w *Write, u *expr.Update)
	// full returns when all limits that it changes are full.
	full(w *Write) int64
}

// rebase makes an item follow other limits. It keeps what [clock.Kept] keeps. A level that others may move meanwhile is
// converted by adding a difference, so that their debits do not make the rebase fail, nor the rebase theirs.
type rebase struct {
	view  *View
	epoch uint64
}

func (r *rebase) write(w *Write, u *expr.Update) {
	from := w.Last
	u.Op(expr.Equal, attrID, int64(from.ID))
	from.assertSet(u)
	w.On.assert(u)
	for i, l := range r.view.Limits {
		p, name := r.view.Params[i], r.view.Names[i]
		have := from.Find(name)
		if l.Override || have != nil && have.Params == p {
			continue
		}
		level, reading := prefixLevel+name, w.On.Clock(p, w.Now)
		switch {
		case l.IsSlots(): // what is held stays
		case have == nil || !have.Has:
			u.Op(expr.Absent, level)
			u.Op(expr.Set, level, w.On.Fresh(p, w.Now-int64(time.Hour))) // full, even by clocks that are behind
		case have.Level < w.On.Clock(have.Params, w.Now):
			u.Op(expr.Below, level, w.On.Clock(have.Params, w.Now))
			u.Op(expr.Set, level, reading+w.On.kept(have.Params, p, 0))
		default:
			was := w.On.Clock(have.Params, w.Now)
			out := clock.Outstanding(have.Level, was)
			low, high := w.On.alike(have.Params, p, out, r.most(w, i, have))
			u.Op(expr.Between, level, clock.Add(was, low), min(clock.Add(was, high), clock.MaxLevel))
			if at := reading + w.On.kept(have.Params, p, low); at == reading+w.On.kept(have.Params, p, high) {
				u.Op(expr.Set, level, at)
			} else {
				u.Op(expr.Add, level, reading+w.On.kept(have.Params, p, out)-have.Level)
			}
		}
		u.OpText(expr.Set, prefixParams+name, limitname.Format(p))
	}
	u.OpText(expr.Set, attrSet, r.view.Set)
	u.Op(expr.Set, attrEpoch, int64(min(r.epoch, math.MaxInt64)))
	w.retain(u)
}

func (r *rebase) full(w *Write) int64 {
	full := w.Now
	for i, l := range r.view.Limits {
		if have := w.Last.Find(r.view.Names[i]); !l.Override && (have == nil || have.Params != r.view.Params[i]) {
			p, most := r.view.Params[i], r.most(w, i, have)
			if have != nil {
				most = max(most, w.On.kept(have.Params, p, most))
			}
			full = max(full, w.On.full(p, w.Now, most))
		}
	}
	return full
}

// kept returns how much of what is outstanding on the shard is kept when a limit's parameters change.
func (pl Place) kept(from, to clock.Params, out int64) int64 {
	from.Burst, to.Burst = pl.Burst(from), pl.Burst(to)
	return clock.Kept(from, to, out)
}

// alike returns the bounds, around what is outstanding, within which a change of parameters keeps either all but the
// same amount, or always as much.
func (pl Place) alike(from, to clock.Params, out, most int64) (low, high int64) {
	is, next := pl.Burst(from), pl.Burst(to)
	switch {
	case from.Kind() == clock.Rate && to.Kind() == clock.Rate:
		return 0, most
	case from.Kind() == clock.Credits:
		return out, out
	case next >= is && to.Kind() != clock.Credits:
		return 0, most
	case out <= min(is, next):
		return 0, min(is, next)
	case out >= is:
		return is, most
	default:
		return next, is
	}
}

// most returns how much of a limit may be outstanding after the rebase.
func (r *rebase) most(w *Write, i int, have *Limit) int64 {
	most := w.On.Burst(r.view.Params[i])
	if have != nil && have.Has && have.Level >= w.On.Clock(have.Params, w.Now) {
		was := w.On.Clock(have.Params, w.Now)
		most = max(most, w.On.Burst(have.Params), clock.Outstanding(have.Level, was))
	}
	return most
}

// assertSet makes a write assert that the limits in force are those of the item.
func (it *Item) assertSet(u *expr.Update) {
	if it.Set == "" {
		u.Op(expr.Absent, attrSet)
	} else {
		u.OpText(expr.Equal, attrSet, it.Set)
	}
}

// mostSwept is how many limits an item may have so that a sweep fits into one write. Those of former versions may have
// more.
const mostSwept = 250

// sweep removes overrides that are full, or limits that are full and about to be out of force, to make room for others.
// Their counters are removed with them, so all counters of the item start again under a new id.
type sweep struct{ names []string }

func (s *sweep) write(w *Write, u *expr.Update) {
	from := w.Last
	u.Op(expr.Equal, attrID, int64(from.ID))
	w.On.assert(u)
	if limitname.IsOverride(s.names[0]) {
		u.Op(expr.Equal, attrOverrides, int64(from.Overrides))
		u.Op(expr.Set, attrOverrides, int64(from.Overrides-len(s.names)))
	} else {
		from.assertSet(u) // they may be in force until the limits change
	}
	for _, name := range s.names {
		if l := from.Find(name); l.Params.Kind() == clock.Slots {
			hold.Remove(u, name, l.Slots)
			u.Op(expr.Remove, prefixParams+name)
			continue
		}
		u.Op(expr.Below, prefixLevel+name, clock.Add(w.On.Clock(from.Find(name).Params, w.Now), 1))
		u.Op(expr.Remove, prefixLevel+name)
		if !limitname.IsOverride(name) {
			u.Op(expr.Remove, prefixParams+name)
		}
	}
	from.uncount(u)
	u.Op(expr.Set, attrID, int64(w.Birth&math.MaxInt64))
}

// uncount removes all counters, even those that are absent: others may write them meanwhile.
func (it *Item) uncount(u *expr.Update) {
	for i := range it.Limits {
		u.Op(expr.Remove, prefixDebited+it.Limits[i].Name)
		u.Op(expr.Remove, prefixReturned+it.Limits[i].Name)
	}
	u.Op(expr.Remove, attrTakes)
	u.Op(expr.Remove, attrUndone)
}

func (*sweep) full(w *Write) int64 { return w.Now }

// forget removes an item, or empties it: see Write.Deletes.
type forget struct{}

func (*forget) write(w *Write, u *expr.Update) {
	it := w.Last
	u.Op(expr.Equal, attrID, int64(it.ID))
	w.On.assert(u)
	for _, attr := range []string{attrEpoch, attrSet, attrOverrides} {
		u.Op(expr.Remove, attr)
	}
	if it.Held == 0 {
		u.Op(expr.Absent, hold.Birth)
	}
	if it.prepaid() || it.Held != 0 {
		u.Op(expr.Set, attrID, int64(w.Birth&math.MaxInt64))
	} else {
		for _, attr := range []string{attrID, attrIndex, attrSort} {
			u.Op(expr.Remove, attr)
		}
	}
	it.uncount(u)
	for i := range it.Limits {
		name := it.Limits[i].Name
		if p := it.Limits[i].Params; p != clock.Balance && (p.Kind() != clock.Slots || it.Held == 0) {
			u.Op(expr.Remove, prefixLevel+name)
			u.Op(expr.Remove, prefixParams+name)
		}
	}
}

// Never is the earliest ttl of an item with a balance, in the year 2316; and forever the one that it gets.
var (
	Never   = seconds(math.MaxInt64)
	forever = Never + rootLives + day
)

// Credit returns the write that credits a balance, of which at most clock.MaxBurst can then be debited.
func (pl Place) Credit(limit string, amount int64, birth uint64, now int64) *expr.Update {
	u, name := new(expr.Update), limitname.Of(store.Balance(limit))
	pl.assert(u)
	text := limitname.Format(clock.Balance)
	u.OpText(expr.AbsentEqual, prefixParams+name, text)
	u.Op(expr.AbsentAtLeast, prefixLevel+name, amount-clock.MaxBurst)
	u.OpText(expr.Set, prefixParams+name, text)
	u.Op(expr.Add, prefixLevel+name, -amount)
	u.Op(expr.Set, AttrTTL, forever)
	u.Op(expr.SetOnce, attrID, int64(birth&math.MaxInt64))
	stamp(u, now)
	return u
}

// prepaid reports whether the item has balances, which are not forgotten.
func (it *Item) prepaid() bool {
	return slices.ContainsFunc(it.Limits, func(l Limit) bool { return l.Params == clock.Balance })
}

func (*forget) full(w *Write) int64 { return w.Now }
