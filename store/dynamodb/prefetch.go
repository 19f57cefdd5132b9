package dynamodb

import (
	"time"

	"github.com/weirlimits/weir/internal/clock"
)

// surplus is what a write debited ahead, for each limit of a view. It occupies the interval from its level down. The
// part that the clock has passed would have been refilled by now, and is not handed out in addition.
type surplus struct {
	v     *view
	left  []int64
	proof *proof
	since time.Time
	timer *time.Timer

	asked []int64 // the amounts that takes asked for since the last write: the demand
	from  int64   // when that write was
}

// holds reports whether tokens that were debited ahead are unused. The lane must be locked.
func (sh *shard) holds() bool { return sh.surplus.v != nil }

// prefetched answers a take from what was debited ahead, and reports whether it did. The lane must be locked.
func (sh *shard) prefetched(j *job, now int64) bool {
	if sh.s.cfg.Prefetch.Share == 0 {
		return false
	}
	su := &sh.surplus
	if len(su.asked) != len(j.amounts) {
		su.asked = make([]int64, len(j.amounts))
		su.from = now
	}
	for i, a := range j.amounts {
		su.asked[i] = clock.Add(su.asked[i], a)
	}
	if su.v != j.v || (j.forced != nil || j.shadow != nil) || sh.s.clock().Sub(su.since) >= sh.s.cfg.Prefetch.For {
		return false
	}
	for i, a := range j.amounts {
		if a > min(su.left[i], sh.above(su.proof, su.v, i, now)) {
			return false
		}
	}
	for i, a := range j.amounts { // what has melted is neither handed out nor returned
		su.left[i] = min(su.left[i], sh.above(su.proof, su.v, i, now)) - a
	}
	j.told, j.allowed, j.at, j.item, j.takenOn = true, true, now, su.proof.item, su.proof.place
	if j.counted {
		sh.count(uncounted{id: su.proof.item.id, takes: 1})
	}
	j.later = append(j.space2[:0], su.left...) // what is left of the surplus lies above it
	return true
}

// ahead plans what a write of takes debits in addition: as much as recent demand, if it continues, needs while a
// surplus is kept, and at most the configured share of what is available.
func (sh *shard) ahead(b *batch) {
	cfg := &sh.s.cfg.Prefetch
	su := &sh.surplus
	if cfg.Share == 0 || b.seen == nil || b.alone || !b.own || sh.misses > 0 || b.now <= su.from {
		return
	}
	v := b.jobs[0].v
	for _, j := range b.jobs {
		if j.kind != take || j.v != v || (j.forced != nil || j.shadow != nil) {
			return
		}
	}
	if len(su.asked) != len(v.names) {
		return
	}
	extra := make([]int64, len(v.names))
	some := false
	for i, name := range v.names {
		p := b.part(name)
		reading, burst := b.place.clock(p.params, b.now), b.place.burst(p.params)
		available := burst - p.bound
		if p.has {
			available -= clock.Outstanding(p.level, reading)
		}
		want := float64(su.asked[i]) / float64(b.now-su.from) * float64(cfg.For)
		extra[i] = int64(max(0, min(want, cfg.Share*float64(available))))
		if p.sum == 0 && extra[i] > 0 {
			return
		}
		some = some || extra[i] > 0
	}
	if !some {
		return
	}
	for i, name := range v.names {
		p := b.part(name)
		p.sum += extra[i]
		p.bound += extra[i]
	}
	b.extra = extra
}

// keep takes over what a write that was applied debited ahead, and returns what was left of the previous surplus. The
// lane must be locked.
func (sh *shard) keep(b *batch, it *item) {
	su := &sh.surplus
	if b.extra == nil {
		return
	}
	sh.giveUp()
	v := b.jobs[0].v
	kept := &proof{b.place, it, make([]int64, len(v.names))}
	su.v, su.left, su.proof, su.since = v, b.extra, kept, b.sent
	for i, name := range v.names {
		kept.tops[i], _ = it.level(name)
	}
	clear(su.asked)
	su.from = b.now
	if sh.s.calls.Closed() {
		su.timer = time.NewTimer(0)
		sh.giveUp()
		return
	}
	su.timer = time.AfterFunc(sh.s.cfg.Prefetch.For, func() {
		sh.lane.Lock()
		defer sh.lane.Unlock()
		if su.proof == kept {
			sh.giveUp()
		}
	})
}

// giveUp returns what is left of a surplus. The lane must be locked.
func (sh *shard) giveUp() {
	su := &sh.surplus
	if su.v == nil {
		return
	}
	su.timer.Stop()
	j := sh.s.undoing(su.v, su.left, su.proof)
	su.v, su.left, su.proof = nil, nil, nil
	if !j.nothing() {
		sh.add(j)
	}
}

// returnSurpluses returns what is left of the surpluses of all shards.
func (s *Store) returnSurpluses() {
	if s.cfg.Prefetch.Share == 0 {
		return
	}
	s.memories.mu.Lock()
	defer s.memories.mu.Unlock()
	for _, m := range s.memories.m {
		for _, sh := range m.all() {
			sh.lane.Lock()
			sh.giveUp()
			sh.lane.Unlock()
		}
	}
}
