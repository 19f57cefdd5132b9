package simulate

import "github.com/weirlimits/weir/internal/clock"

// place is a shard's position in its bucket: shard k of n. Its clock and burst are shares of the limit's, which add up
// exactly, as in store/dynamodb.
type place struct{ k, n int }

func (pl place) share(x int64) int64 {
	if pl.n == 1 {
		return x
	}
	n, k := int64(pl.n), int64(pl.k)
	q, r := x/n, x%n
	if r < 0 {
		q, r = q-1, r+n
	}
	return q + (r+k)/n
}

func (pl place) clock(p *clock.Params, now int64) int64 { return pl.share(p.Clock(now)) }

func (pl place) burst(p *clock.Params) int64 { return pl.share(p.Burst) }

// item is what a write's answer shows of a shard.
type item struct {
	exists  bool
	n       int // shards of the bucket
	level   int64
	at      int64 // when it was last written, by that writer's clock
	writes  int64
	debited int64
	given   int64 // returned
}

// shared is an item in the table, with the remaining capacity of its partition.
type shared struct {
	item

	units    float64 // writes that it accepts at once
	refilled int64
}

// rows are a bucket's items.
type rows struct {
	n      int
	shards []shared
}

// takes reports whether a shard's partition accepts a write, and counts it.
func (s *shared) takes(now int64, capacity float64) bool {
	s.units = min(capacity, s.units+float64(now-s.refilled)/1e9*capacity)
	s.refilled = now
	if s.units < 1 {
		return false
	}
	s.units--
	return true
}

// form is what a write assumes about the level.
type form uint8

const (
	full    form = iota // missing, or below the clock: the write sets it
	running             // at or above the clock: the write adds to it
)

// apply performs a batch's conditional write, and reports whether its condition held.
func (b *batch) apply(it *item, n int, p *clock.Params) bool {
	if n != b.place.n || b.known && !it.exists {
		return false
	}
	reading, burst := b.place.clock(p, b.now), b.place.burst(p)
	net := b.sum - b.back
	switch {
	case b.sum == 0:
		if !it.exists {
			return false
		}
		it.level += net
	case b.form == full:
		if it.exists && it.level >= reading {
			return false
		}
		it.level = reading + net
	default:
		high := reading + burst - b.sum - b.guard
		if b.forced > 0 { // a forced amount fits whatever the level
			high = reading + max(burst, b.sum, clock.Outstanding(b.level, reading)+b.sum) - b.sum
			if b.forced < b.sum {
				high = min(high, reading+burst-(b.sum-b.forced))
			}
		}
		if b.guard > 0 {
			high = min(high, b.ceiling)
		}
		if it.level < reading-b.guard || it.level > high {
			return false
		}
		it.level += net + b.guard
	}
	it.exists, it.at = true, b.now
	it.writes++
	it.debited += b.sum
	it.given += b.back
	return true
}

// split divides every shard of a bucket in two, each with half of what is outstanding.
func (r *rows) split(now int64, p *clock.Params, capacity float64) {
	n := r.n
	for k := range n {
		was, to, over := place{k, n}, place{k, 2 * n}, place{k + n, 2 * n}
		sh := &r.shards[k]
		out := clock.Outstanding(sh.level, was.clock(p, now))
		half := min((out+1)/2, over.burst(p))
		sh.level = to.clock(p, now) + out - half
		sh.n, sh.at = 2*n, now
		sh.writes++
		r.shards = append(r.shards, shared{
			item: item{exists: true, n: 2 * n, level: over.clock(p, now) + half, at: now, writes: 1}, units: capacity,
		})
		r.shards[len(r.shards)-1].refilled = sh.refilled
	}
	r.n = 2 * n
}
