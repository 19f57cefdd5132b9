package dynamodb

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// forgotten reports whether the shard was last seen as an empty place of a bucket that was forgotten.
func (sh *shard) forgotten() bool {
	sh.lane.Lock()
	defer sh.lane.Unlock()
	return sh.seen != nil && !sh.seen.exists && sh.seen.shards > 1
}

// room returns how much of a limit is available on the shard, by the last sight, and the shard's share of the burst.
func (sh *shard) room(v *view, i int) (room, share int64) {
	sh.lane.Lock()
	defer sh.lane.Unlock()
	pl, p := sh.place(), v.params[i]
	share = pl.burst(p)
	if sh.seen == nil {
		return share, share
	}
	level, ok := sh.seen.level(v.names[i])
	if !ok {
		return share, share
	}
	return share - clock.Outstanding(level, pl.clock(p, sh.tick())), share
}

// place places a take on the bucket's shards, other than one that must not be used again. Of two picked at random, it
// uses the one with more room. A request that is too large for any one shard is divided over as many as it takes, and
// so are forced debits beyond the shard's room. A bucket that was forgotten starts again with shard 0, by which it is
// known.
func (l *leg) place(buf []placed, not *shard) []placed {
	shards := l.m.all()
	if len(shards) == 1 {
		return append(buf, l.on(shards[0]))
	}
	if not != nil {
		shards = slices.DeleteFunc(slices.Clone(shards), func(sh *shard) bool { return sh == not })
	}
	sh, other := shards[l.m.s.dice(len(shards))], shards[l.m.s.dice(len(shards))]
	if l.roomiest(sh) < l.roomiest(other) {
		sh = other
	}
	if shards[0].k == 0 && shards[0].forgotten() {
		sh = shards[0]
	}
	if l.fitsOn(sh) {
		return append(buf, l.on(sh))
	}
	return l.span(true)
}

// on returns the leg's job, placed on one shard. Once, the job may move from there if the shard is throttled.
func (l *leg) on(sh *shard) placed {
	j := l.job()
	j.mayMove = j.forced == nil && !l.hopped && l.m.s.cfg.MaxShards > 1
	return placed{sh: sh, j: j, known: sh.known()}
}

// known reports whether the shard was seen.
func (sh *shard) known() bool {
	sh.lane.Lock()
	defer sh.lane.Unlock()
	return sh.seen != nil
}

// span divides the leg over as few shards as seem to have enough room. Without beyond, no shard may get more than it
// seems to have room for, and span returns nil if that is not enough.
func (l *leg) span(beyond bool) []placed { return spread(l.byRoom(l.m.all()), l.job(), beyond) }

// byRoom sorts shards, the one with the most room first.
func (l *leg) byRoom(shards []*shard) []*shard {
	at := l.m.s.dice(len(shards)) // otherwise all legs would choose the same shard among equals
	shards = slices.Concat(shards[at:], shards[:at])
	slices.SortStableFunc(shards, func(a, b *shard) int { return cmp.Compare(l.roomiest(b), l.roomiest(a)) })
	return shards
}

// roomiest ranks a shard by the room that it has left after the leg's charges, for the limit of which that is least.
func (l *leg) roomiest(sh *shard) int64 {
	least := int64(1<<63 - 1)
	for i := range l.view.limits {
		if c := &l.debit.Charges[i]; !c.Force && !c.Shadow {
			room, _ := sh.room(l.view, i)
			least = min(least, room-c.Amount)
		}
	}
	return least
}

// fitsOn reports whether the leg may be placed on one shard: no amount exceeds the shard's share, and no forced amount
// puts the shard into a debt that others could share.
func (l *leg) fitsOn(sh *shard) bool {
	for i := range l.view.limits {
		c := &l.debit.Charges[i]
		if c.Shadow {
			continue
		}
		room, share := sh.room(l.view, i)
		if !c.Force && c.Amount > share || c.Force && c.Amount > max(0, room) {
			return false
		}
	}
	return true
}

// elsewhere asks other shards after one has refused: the two with the most room, then all together if they are now
// known to have enough between them. It does not if other processes take what the shard seemed to have, because the
// other shards are then no better.
func (l *leg) elsewhere(ctx context.Context) bool {
	shards := l.m.all()
	if len(shards) == 1 || !l.possible() || l.contended() {
		return false
	}
	refused := l.jobs
	if len(refused) > 1 {
		_ = await(ctx, l.undo()) // so that their room is seen
	} else {
		others := l.byRoom(slices.DeleteFunc(slices.Clone(shards), func(sh *shard) bool { return sh == refused[0].sh }))
		for _, sh := range others[:min(2, len(others))] {
			if l.roomiest(sh) < 0 {
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
		jobs := l.span(false)
		if jobs == nil {
			l.jobs = refused
			return false
		}
		if l.try(ctx, jobs...) || l.err != nil || l.contended() {
			return l.allowed
		}
		refused = l.jobs
	}
	return false
}

// contended reports whether a shard refused although it seemed to have room, because other processes write to it. A
// process that must be exact asks on.
func (l *leg) contended() bool {
	cfg := &l.m.s.cfg
	return cfg.Guard >= 0 && cfg.RejectionTTL > 0 && slices.ContainsFunc(l.jobs, func(p placed) bool {
		return p.known && !p.lost && !p.j.told && !p.j.moved && p.j.err == nil && !p.j.allowed && p.sh.shared()
	})
}

// try decides jobs, all or none.
func (l *leg) try(ctx context.Context, jobs ...placed) bool {
	l.jobs = jobs
	for i := range jobs {
		jobs[i].send()
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

// spread divides a job over shards, in their order, by the room that they have. With beyond, what exceeds that is
// divided by their shares; without, spread returns nil if there is not enough room.
func spread(shards []*shard, j *job, beyond bool) []placed {
	jobs := make([]placed, len(shards))
	for n, sh := range shards {
		part := sh.s.newJob(j.kind, j.v, j.epoch)
		part.forced, part.expires = j.forced, j.expires
		jobs[n] = placed{sh: sh, j: part, known: !beyond}
	}
	shares := make([]int64, len(shards))
	for i, left := range j.amounts {
		total := int64(0)
		for n, sh := range shards {
			room, share := sh.room(j.v, i)
			got := min(left, max(0, room))
			jobs[n].j.amounts[i] = got
			left -= got
			shares[n] = share
			total += share
		}
		if left > 0 && j.inShadow(i) { // more than there is, so it is left out
			for n := range jobs {
				jobs[n].j.amounts[i] = 0
			}
			jobs[0].j.amounts[i], left = math.MaxInt64, 0
		}
		if left > 0 && !beyond {
			return nil
		}
		for n, rest := 0, left; n < len(shards) && rest > 0; n++ {
			got := min(rest, clock.MulDivFloor(shares[n], left, max(total, 1))+1)
			jobs[n].j.amounts[i] += got
			rest -= got
		}
	}
	if j.shadow != nil {
		for _, p := range jobs {
			p.j.shadow = &shadow{j.shadow.is, slices.Clone(p.j.amounts), make([]bool, len(j.amounts))}
		}
	}
	some := slices.DeleteFunc(slices.Clone(jobs), func(p placed) bool { return p.j.nothing() })
	if len(some) == 0 {
		some = jobs[:1]
	}
	some[0].j.counted = j.counted
	return some
}

// placeForced places forced debits: on shard 0, or, if they exceed its room, on all shards.
func (m *memory) placeForced(j *job) []placed {
	return spread(m.all(), j, true)
}

// placeReturn places returns on the shards that paid, as far as that can be seen.
func (m *memory) placeReturn(j *job) []placed {
	shards := m.all()
	jobs := make([]placed, len(shards))
	for n, sh := range shards {
		jobs[n] = placed{sh: sh, j: m.s.newJob(settle, j.v, j.epoch)}
	}
	for i, a := range j.amounts {
		left := -a
		for n, sh := range shards {
			room, share := sh.room(j.v, i)
			got := min(left, max(0, share-room))
			jobs[n].j.amounts[i] = -got
			left -= got
		}
		jobs[0].j.amounts[i] -= left
	}
	return slices.DeleteFunc(jobs, func(p placed) bool { return p.j.nothing() })
}

// levels appends the levels of the leg's charges, as they were seen. For a bucket with several shards, that is the sum
// of what is outstanding on them. If that leaves room although the take was refused, because no shard had enough alone,
// the level is the lowest that refuses.
func (l *leg) levels(levels []store.Level, now int64, allowed bool) []store.Level {
	refused := l.done && !l.allowed
	shards := l.m.all()
	for i := range l.debit.Charges {
		c := &l.debit.Charges[i]
		p, name := l.view.params[i], l.view.names[i]
		reading := p.Clock(now)
		level := reading
		for _, sh := range shards {
			it, at, ok := l.showed(sh, name)
			switch {
			case !ok:
			case it.shards == 1 && sh.k == 0:
				level = at
			default:
				level = clock.Add(level, clock.Outstanding(at, place{sh.k, it.shards}.clock(p, now)))
			}
		}
		left := l.done && l.allowed && l.leftOut(i)
		if !allowed && l.done && l.allowed && !left {
			level = clock.Credit(level, c.Amount) // the amount is being returned
		}
		out := left || !allowed && !c.Force && !p.Fits(level, reading, c.Amount)
		levels = append(levels, store.Level{Limit: c.Limit, Level: level, Refused: out})
	}
	if refused && len(shards) > 1 &&
		!slices.ContainsFunc(levels[len(levels)-len(l.debit.Charges):], func(l store.Level) bool { return l.Refused }) {
		own := levels[len(levels)-len(l.debit.Charges):]
		for i := range own {
			c, p := &l.debit.Charges[i], l.view.params[i]
			if !c.Force && !c.Shadow && c.Amount > 0 {
				own[i].Level, own[i].Refused = clock.Add(p.Clock(now), p.Burst-c.Amount+1), true
			}
		}
	}
	return levels
}

// leftOut reports whether a shadow charge did not fit.
func (l *leg) leftOut(i int) bool {
	return slices.ContainsFunc(l.jobs, func(p placed) bool { return !p.lost && p.j.leftOut(i) })
}

// showed returns the last sight of a shard, and the level of a limit on it. If the leg itself saw the shard, it returns
// that sight.
func (l *leg) showed(sh *shard, name string) (it *item, level int64, ok bool) {
	for _, p := range l.jobs {
		if p.sh == sh && !p.lost && p.j.item != nil {
			level, ok = p.j.level(name)
			return p.j.item, level, ok
		}
	}
	sh.lane.Lock()
	it = sh.seen
	sh.lane.Unlock()
	if it == nil {
		return nil, 0, false
	}
	level, ok = it.level(name)
	return it, level, ok
}
