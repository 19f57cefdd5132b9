package simulate

import (
	"math/bits"
	"slices"
)

// sendAway moves a decision whose shard is throttled to another shard, if there is one.
func (p *process) sendAway(j *job, from *lane) bool {
	if j.forced || j.of != nil || j.moves >= maxMoves || j.m.n > 1 && j.heats >= maxHeats || j.m.n == 1 &&
		p.next(j) == 0 {
		return false
	}
	p.sendOn(j, from)
	return true
}

// sendOn lets another shard decide. If the bucket is not known to be split, it picks one of the next generation at
// random.
func (p *process) sendOn(j *job, from *lane) {
	j.moves++
	var to *lane
	switch k := p.next(j); {
	case j.m.n > 1:
		to = p.pick(j.m, from)
		j.heats++
		to.throttled = max(to.throttled, j.heats)
	case k > 0:
		j.sought = k
		to = j.m.lane(p, k+p.s.dice.IntN(k))
	default:
		j.moves = maxMoves
		to = j.m.lane(p, p.s.dice.IntN(max(1, j.sought)))
	}
	p.s.after(0, func() { to.ask(j) }) // deferred: a lane is in the middle of its planning
}

// next returns the first shard of the next generation to try; 0 if there is none.
func (p *process) next(j *job) int {
	k := max(1, 2*j.sought)
	if k >= p.s.cfg.MaxShards || j.m.flat > 0 && k >= j.m.flat && p.s.now-j.m.flatAt < callTimeout {
		return 0
	}
	return k
}

// ends moves jobs that asked a missing shard to other shards.
func (l *lane) ends(b *batch) {
	l.m.flat, l.m.flatAt = 1<<(bits.Len(uint(l.k))-1), l.p.s.now
	for _, j := range slices.Concat(b.jobs, l.waiting) {
		if !j.answered {
			l.p.sendOn(j, l)
		}
	}
	l.waiting = nil
}

// judge updates how far what is remembered about a bucket can be relied on, from the answer to a decision.
func (p *process) judge(j *job, allowed bool) {
	switch m := j.m; {
	case !j.hoped:
	case allowed:
		m.doubts = max(0, m.doubts-1)
	default:
		m.doubts, m.doubtedAt = min(m.doubts+1, mostDoubts), p.s.now
	}
}

// short reports whether other processes use up all that the bucket has, on whatever shard.
func (p *process) short(m *memory) bool {
	return m.doubts >= manyDoubts && p.s.now-m.doubtedAt < int64(p.s.cfg.Hold)
}
