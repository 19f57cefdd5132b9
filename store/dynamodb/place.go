package dynamodb

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// room returns how much of a limit is available on the shard, by what was last seen, and the shard's portion of the
// burst.
func (sh *shard) room(v *plan.View, i int) (room, burst int64) {
	sh.queue.Lock()
	defer sh.queue.Unlock()
	sh.state.On = sh.place()
	return sh.state.Room(v, i, sh.tick())
}

// stale reports whether the shard was last seen to follow later limits than a take's.
func (sh *shard) stale(j *plan.Job) bool {
	sh.queue.Lock()
	defer sh.queue.Unlock()
	return sh.state.Stale(j)
}

// place places a take on the bucket's shards, other than one that must not be used again. Of two picked at random, it
// uses the one with more room; if neither has enough, the one of all that has most. A request that is too large for any
// one shard is divided over as many as it takes, and so are forced debits beyond the shard's room. A bucket that was
// forgotten starts again with shard 0, by which it is known.
func (l *leg) place(buf []part, not *shard) []part {
	shards := l.b.all()
	if len(shards) == 1 {
		return append(buf, l.on(shards[0]))
	}
	if c := l.debit.Charges; len(c) == 1 && store.IsSeal(c[0].Limit) { // it must reach all of the bucket
		for _, sh := range shards {
			buf = append(buf, part{sh: sh, x: sh.waiter(plan.Take, l.view, l.debit.Epoch)})
		}
		return buf
	}
	if l.view.Slots { // which are on shard 0
		if _, alone := l.fit(shards[0]); alone {
			return append(buf, l.on(shards[0]))
		}
		return l.span(true)
	}
	if not != nil {
		shards = slices.DeleteFunc(slices.Clone(shards), func(sh *shard) bool { return sh == not })
	}
	sh, other := shards[l.b.s.dice(len(shards))], shards[l.b.s.dice(len(shards))]
	left, alone := l.fit(sh)
	if more, too := l.fit(other); more > left {
		sh, left, alone = other, more, too
	}
	if left < 0 {
		best := l.byRoom(shards)[0]
		if more, too := l.fit(best); more >= 0 {
			sh, alone = best, too
		}
	}
	if it := shards[0].last(); shards[0].k == 0 && it != nil && !it.Exists && it.Shards > 1 {
		sh = shards[0]
		_, alone = l.fit(sh)
	}
	if alone {
		return append(buf, l.on(sh))
	}
	return l.span(true)
}

// on returns the leg's job, placed on one shard. Once, the job may move from there if the shard is throttled.
func (l *leg) on(sh *shard) part {
	x := l.waiter()
	x.job.MayMove = x.job.Forced == nil && !l.hopped && l.b.s.cfg.MaxShards > 1
	return part{sh: sh, x: x, known: sh.last() != nil}
}

// span divides the leg over as few shards as seem to have enough room. Without beyond, no shard may get more than it
// seems to have room for, and span returns nil if that is not enough.
func (l *leg) span(beyond bool) []part { return divide(l.byRoom(l.b.all()), l.waiter(), beyond) }

// byRoom sorts shards, the one with the most room first.
func (l *leg) byRoom(shards []*shard) []*shard {
	at := l.b.s.dice(len(shards)) // otherwise all legs would choose the same shard among equals
	shards = slices.Concat(shards[at:], shards[:at])
	left := make(map[*shard]int64, len(shards))
	for _, sh := range shards {
		left[sh] = l.leaves(sh)
	}
	slices.SortStableFunc(shards, func(a, b *shard) int { return cmp.Compare(left[b], left[a]) })
	return shards
}

// leaves returns the room that a shard has left after the leg's charges.
func (l *leg) leaves(sh *shard) int64 {
	left, _ := l.fit(sh)
	return left
}

// fit returns the room that a shard has left after the leg's charges, for the limit of which that is least, and whether
// the leg may be placed on it alone: no amount exceeds the shard's portion of the burst, and no forced amount puts the
// shard into a debt that others could share.
func (l *leg) fit(sh *shard) (left int64, alone bool) {
	left, alone = math.MaxInt64, true
	sh.queue.Lock()
	defer sh.queue.Unlock()
	sh.state.On = sh.place()
	now := sh.tick()
	for i := range l.view.Limits {
		c := &l.debit.Charges[i]
		room, burst := sh.state.Room(l.view, i, now)
		switch {
		case c.Shadow:
		case c.Force:
			alone = alone && c.Amount <= max(0, room)
		default:
			left, alone = min(left, room-c.Amount), alone && c.Amount <= burst
		}
	}
	return left, alone
}

// divide divides a job over shards, in their order: what it debits by the room that they have, what it returns by what
// they owe. With beyond, debits that exceed the room are divided by how much more the shards may owe; without, divide
// returns nil if there is not enough room. Returns that exceed what is owed go to the first shard.
func divide(shards []*shard, x *waiter, beyond bool) []part {
	j := &x.job
	parts := make([]part, len(shards))
	for n, sh := range shards {
		of := sh.waiter(j.Kind, j.View, j.Epoch)
		of.job.Forced, of.job.Terms, of.job.Phase, of.expires = j.Forced, j.Terms, j.Phase, x.expires
		parts[n] = part{sh: sh, x: of, known: !beyond}
	}
	for i, a := range j.Amounts {
		left := divideOne(parts, i, a)
		first := &parts[0].x.job.Amounts[i]
		switch {
		case left < 0:
			*first += left
		case left > 0 && j.Shadow != nil && j.Shadow[i]: // more than there is, so it is left out
			for _, p := range parts {
				p.x.job.Amounts[i] = 0
			}
			*first = math.MaxInt64
		case left > 0 && !beyond:
			return nil
		case left > 0:
			divideRest(parts, i, left)
		}
	}
	some := slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return p.x.nothing() })
	if len(some) == 0 {
		some = parts[:1]
	}
	for _, p := range some {
		p.x.job.Shadow = j.Shadow
	}
	some[0].x.job.Counts = j.Counts
	return some
}

// divideOne divides an amount of the i-th limit by room or, if it is negative, by debt, and returns what is left of it.
func divideOne(parts []part, i int, a int64) (left int64) {
	left = a
	for _, p := range parts {
		room, burst := p.sh.room(p.x.job.View, i)
		got := min(left, max(0, room))
		if a < 0 {
			got = max(left, min(0, room-burst))
		}
		p.x.job.Amounts[i] = got
		left -= got
	}
	return left
}

// divideRest divides an amount of the i-th limit, for which there is no room: by how much further into debt each shard
// may be brought and, beyond that or without such a bound, by the shards' portions of the burst.
func divideRest(parts []part, i int, a int64) {
	if t := parts[0].x.job.Terms; t != nil && t.MaxDebt[i] > 0 {
		owable := make([]int64, len(parts))
		for n, p := range parts {
			room, _ := p.sh.room(p.x.job.View, i)
			owable[n] = max(0, p.sh.place().PortionOf(p.x.job.View.Params[i], t.MaxDebt[i])+min(0, room))
		}
		a -= divideBy(parts, i, a, owable, true)
	}
	bursts := make([]int64, len(parts))
	for n, p := range parts {
		bursts[n] = p.sh.place().Burst(p.x.job.View.Params[i])
	}
	divideBy(parts, i, a, bursts, false)
}

// divideBy divides an amount of the i-th limit in proportion to weights, of which none is exceeded if they are bounds,
// and returns how much it has divided.
func divideBy(parts []part, i int, a int64, weights []int64, bounds bool) (divided int64) {
	total := int64(0)
	for _, w := range weights {
		total = clock.Add(total, w)
	}
	if bounds {
		a = min(a, total)
	}
	for n, w := range weights {
		if w == 0 {
			continue
		}
		got := min(a-divided, clock.MulDivFloor(w, a, max(total, 1))+1)
		if bounds {
			got = min(got, w)
		}
		parts[n].x.job.Amounts[i] += got
		divided += got
	}
	return divided
}

// elsewhere tries other shards after one has refused: the two with the most room, or all of them, then all together if
// they are now known to have enough between them. It does not if other processes take what the shard seemed to have,
// because the other shards are then no better.
func (l *leg) elsewhere(ctx context.Context) bool {
	shards := l.b.all()
	if len(shards) == 1 || !l.possible() || l.contended() {
		return false
	}
	refused := slices.Clone(l.parts) // l.parts may be placed anew, in the same space
	if told := slices.ContainsFunc(refused, func(p part) bool { return p.x.told }); !told && l.prepaid() {
		_ = l.b.look(ctx, true) // where the credits are
	}
	if len(refused) > 1 {
		_ = await(ctx, l.undo()) // so that their room is seen
	} else {
		others := l.byRoom(slices.DeleteFunc(slices.Clone(shards), func(sh *shard) bool { return sh == refused[0].sh }))
		if !l.lasting() {
			others = others[:min(2, len(others))]
		}
		for _, sh := range others {
			if l.leaves(sh) < 0 {
				break
			}
			if l.try(ctx, l.on(sh)) {
				return true
			}
			if l.err != nil || l.contended() {
				return false
			}
		}
	}
	for range 4 { // each attempt shows what some of the shards have
		parts := l.span(false)
		if parts == nil {
			l.parts = refused
			return false
		}
		if l.try(ctx, parts...) || l.err != nil || l.contended() {
			return l.allowed
		}
		refused = l.parts
	}
	return false
}

func (l *leg) prepaid() bool { return slices.Contains(l.view.Params, clock.Balance) }

// lasting reports whether a refusal may last until a window's end, or longer. Every shard that seems to have room is
// then asked.
func (l *leg) lasting() bool {
	return slices.ContainsFunc(l.view.Params, func(p clock.Params) bool { return p.Kind() != clock.Rate })
}

// contended reports whether a shard refused although it seemed to have room, because other processes write to it. A
// process that must be exact, or whose refusal would last, tries others all the same.
func (l *leg) contended() bool {
	cfg := &l.b.s.cfg
	return cfg.Guard >= 0 && cfg.RejectionTTL > 0 && !l.lasting() && slices.ContainsFunc(l.parts, func(p part) bool {
		return p.known && !p.lost && !p.x.told && p.x.err == nil && p.x.answer.Verdict == plan.Refused &&
			p.sh.contended()
	})
}

// contended reports whether the last answer showed that others had written since the answer before.
func (sh *shard) contended() bool {
	sh.queue.Lock()
	defer sh.queue.Unlock()
	return sh.state.Others.Alone == 0
}

// try decides jobs, all or none.
func (l *leg) try(ctx context.Context, parts ...part) bool {
	l.parts = parts
	for i := range parts {
		parts[i].send()
	}
	l.await(ctx)
	if !l.allowed {
		_ = await(ctx, l.undo())
	}
	return l.allowed
}

// possible reports whether the bucket as a whole could ever grant the leg's charges.
func (l *leg) possible() bool {
	for i := range l.debit.Charges {
		if c := &l.debit.Charges[i]; !c.Force && !c.Shadow && c.Amount > c.Limit.Burst {
			return false
		}
	}
	return true
}

// levels appends the levels of the leg's charges, as they were seen; if the item still had other parameters then, they
// are carried over. For a bucket with several shards, the level is the sum of what is outstanding on them. If that
// leaves room although the take was refused, because no shard had enough alone, the level is the lowest that refuses.
func (l *leg) levels(levels []store.Level, now int64, allowed bool) []store.Level {
	refused := l.done && !l.allowed
	shards := l.b.all()
	for i := range l.debit.Charges {
		c := &l.debit.Charges[i]
		p, name := l.view.Params[i], l.view.Names[i]
		reading := p.Clock(now)
		level := p.Fresh(now)
		for _, sh := range shards {
			it, at, ok := l.showed(sh, name, now)
			if !ok {
				continue
			}
			was := it.Find(name).Params
			if it.Shards == 1 && sh.k == 0 && was == p {
				level = at
				continue
			}
			level = clock.Add(level, plan.Place{K: sh.k, N: it.Shards}.Spent(was, at, now))
		}
		left := l.done && l.allowed && l.leftOut(i)
		if !allowed && l.done && l.allowed && !left {
			level = clock.Credit(level, c.Amount) // the amount is being returned
		}
		out := left || !allowed && !c.Force && !p.Fits(level, reading, c.Amount)
		levels = append(levels, store.Level{Limit: c.Limit, Level: level, Refused: out, Hold: l.hold(i, allowed)})
	}
	added := levels[len(levels)-len(l.debit.Charges):]
	if refused && len(shards) > 1 && !slices.ContainsFunc(added, func(l store.Level) bool { return l.Refused }) {
		for i := range added {
			c, p := &l.debit.Charges[i], l.view.Params[i]
			if !c.Force && !c.Shadow && c.Amount > 0 {
				added[i].Level, added[i].Refused = clock.Add(p.Clock(now), p.Burst-c.Amount+1), true
			}
		}
	}
	return levels
}

// hold returns what the leg holds of a limit of slots, of which all are on shard 0.
func (l *leg) hold(i int, allowed bool) *store.Hold {
	if !allowed || !l.view.Slots {
		return nil
	}
	at := slices.IndexFunc(l.parts, func(p part) bool { return p.sh.k == 0 })
	if at < 0 || l.parts[at].lost {
		return nil
	}
	return l.parts[at].x.answer.Hold(i)
}

// leftOut reports whether a shadow charge did not fit.
func (l *leg) leftOut(i int) bool {
	return slices.ContainsFunc(l.parts, func(p part) bool {
		return !p.lost && p.x.answer.Out != nil && p.x.answer.Out[i]
	})
}

// showed returns the item of a shard as it was last seen, and the level of a limit on it. If the leg itself saw the
// shard, it returns the item that it saw.
func (l *leg) showed(sh *shard, name string, now int64) (it *plan.Item, level int64, ok bool) {
	for i := range l.parts {
		if p := &l.parts[i]; p.sh == sh && !p.lost && p.x.answer.Item != nil {
			level, ok = p.x.answer.Level(name)
			return p.x.answer.Item, level, ok
		}
	}
	if it = sh.last(); it == nil {
		return nil, 0, false
	}
	level, ok = it.Level(name, now)
	return it, level, ok
}
