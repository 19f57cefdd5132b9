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

// place places a take on the bucket's shards, other than one that must not be used again. Of two picked at random, it
// uses the one with more room. A request that is too large for any one shard is divided over as many as it takes, and
// so are forced debits beyond the shard's room. A bucket that was forgotten starts again with shard 0, by which it is
// known.
func (l *leg) place(buf []part, not *shard) []part {
	shards := l.b.all()
	if len(shards) == 1 {
		return append(buf, l.on(shards[0]))
	}
	if not != nil {
		shards = slices.DeleteFunc(slices.Clone(shards), func(sh *shard) bool { return sh == not })
	}
	sh, other := shards[l.b.s.dice(len(shards))], shards[l.b.s.dice(len(shards))]
	left, alone := l.fit(sh)
	if more, too := l.fit(other); more > left {
		sh, alone = other, too
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
		left[sh], _ = l.fit(sh)
	}
	slices.SortStableFunc(shards, func(a, b *shard) int { return cmp.Compare(left[b], left[a]) })
	return shards
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
// they owe. With beyond, debits that exceed the room are divided by the bursts; without, divide returns nil if there is
// not enough room. Returns that exceed what is owed go to the first shard.
func divide(shards []*shard, x *waiter, beyond bool) []part {
	j := &x.job
	parts := make([]part, len(shards))
	for n, sh := range shards {
		of := sh.waiter(j.Kind, j.View, j.Epoch)
		of.job.Forced, of.expires = j.Forced, x.expires
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

// divideRest divides an amount of the i-th limit by the shards' portions of the burst.
func divideRest(parts []part, i int, a int64) {
	bursts, total := make([]int64, len(parts)), int64(0)
	for n, p := range parts {
		bursts[n] = p.sh.place().Burst(p.x.job.View.Params[i])
		total += bursts[n]
	}
	for n, rest := 0, a; n < len(parts) && rest > 0; n++ {
		got := min(rest, clock.MulDivFloor(bursts[n], a, max(total, 1))+1)
		parts[n].x.job.Amounts[i] += got
		rest -= got
	}
}

// elsewhere tries other shards after one has refused: the two with the most room, then all together if they are now
// known to have enough between them. It does not if other processes take what the shard seemed to have, because the
// other shards are then no better.
func (l *leg) elsewhere(ctx context.Context) bool {
	shards := l.b.all()
	if len(shards) == 1 || !l.possible() || l.contended() {
		return false
	}
	refused := slices.Clone(l.parts) // l.parts may be placed anew, in the same space
	if len(refused) > 1 {
		_ = await(ctx, l.undo()) // so that their room is seen
	} else {
		others := l.byRoom(slices.DeleteFunc(slices.Clone(shards), func(sh *shard) bool { return sh == refused[0].sh }))
		for _, sh := range others[:min(2, len(others))] {
			if left, _ := l.fit(sh); left < 0 {
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

// contended reports whether a shard refused although it seemed to have room, because other processes write to it. A
// process that must be exact tries others all the same.
func (l *leg) contended() bool {
	cfg := &l.b.s.cfg
	return cfg.Guard >= 0 && cfg.RejectionTTL > 0 && slices.ContainsFunc(l.parts, func(p part) bool {
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

// levels appends the levels of the leg's charges, as they were seen. For a bucket with several shards, that is the sum
// of what is outstanding on them. If that leaves room although the take was refused, because no shard had enough alone,
// the level is the lowest that refuses.
func (l *leg) levels(levels []store.Level, now int64, allowed bool) []store.Level {
	refused := l.done && !l.allowed
	shards := l.b.all()
	for i := range l.debit.Charges {
		c := &l.debit.Charges[i]
		p, name := l.view.Params[i], l.view.Names[i]
		reading := p.Clock(now)
		level := reading
		for _, sh := range shards {
			it, at, ok := l.showed(sh, name)
			switch {
			case !ok:
			case it.Shards == 1 && sh.k == 0:
				level = at
			default:
				level = clock.Add(level, clock.Outstanding(at, plan.Place{K: sh.k, N: it.Shards}.Clock(p, now)))
			}
		}
		left := l.done && l.allowed && l.leftOut(i)
		if !allowed && l.done && l.allowed && !left {
			level = clock.Credit(level, c.Amount) // the amount is being returned
		}
		out := left || !allowed && !c.Force && !p.Fits(level, reading, c.Amount)
		levels = append(levels, store.Level{Limit: c.Limit, Level: level, Refused: out})
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

// leftOut reports whether a shadow charge did not fit.
func (l *leg) leftOut(i int) bool {
	return slices.ContainsFunc(l.parts, func(p part) bool {
		return !p.lost && p.x.answer.Out != nil && p.x.answer.Out[i]
	})
}

// showed returns the item of a shard as it was last seen, and the level of a limit on it. If the leg itself saw the
// shard, it returns the item that it saw.
func (l *leg) showed(sh *shard, name string) (it *plan.Item, level int64, ok bool) {
	for i := range l.parts {
		if p := &l.parts[i]; p.sh == sh && !p.lost && p.x.answer.Item != nil {
			level, ok = p.x.answer.Level(name)
			return p.x.answer.Item, level, ok
		}
	}
	if it = sh.last(); it == nil {
		return nil, 0, false
	}
	level, ok = it.Level(name)
	return it, level, ok
}
