package dynamodb

import (
	"math/bits"

	"github.com/weirlimits/weir/internal/bucket"
)

// maxShards is how many shards a bucket is split into at most.
const maxShards = 64

// place is a shard's among all shards of its bucket: shard k of n, n a power of two. Shards of one bucket may be split
// to different depths: of n = 4, shards 0 and 2 may stand beside shard 1 of 2.
type place struct{ k, n int }

// share returns what of x falls to the shard: over all shards of one depth the shares add up to x exactly, and a
// shard's is exactly that of the two into which it splits.
func (pl place) share(x int64) int64 {
	if pl.n == 1 {
		return x
	}
	n, k := int64(pl.n), int64(pl.k)
	q, r := x/n, x%n // (x + k) / n would overflow at the end of int64
	if r < 0 {
		q, r = q-1, r+n
	}
	return q + (r+k)/n
}

// clock returns the shard's part of a limit's clock.
func (pl place) clock(p bucket.Params, now int64) int64 { return pl.share(p.Clock(now)) }

// burst returns the shard's part of a limit's burst.
func (pl place) burst(p bucket.Params) int64 { return pl.share(p.Burst) }

// fits reports whether a debit fits the shard, at its clock. A debit of 0 fits unless it is in debt.
func (pl place) fits(p bucket.Params, level, clock, amount int64) bool {
	p.Burst = pl.burst(p)
	return p.Fits(level, clock, amount)
}

// assert has a write ask that the shard is still split as deep: else its clock is another.
func (pl place) assert(u *update) {
	if pl.n == 1 {
		u.op(condAbsent, attrShards)
	} else {
		u.op(condEqual, attrShards, int64(pl.n))
	}
}

// split returns the two places that one splits into.
func (pl place) split() (parent, child place) {
	return place{pl.k, 2 * pl.n}, place{pl.k + pl.n, 2 * pl.n}
}

// born returns the place that shard k has when it comes into being.
func born(k int) place {
	if k == 0 {
		return place{0, 1}
	}
	return place{k, 1 << bits.Len(uint(k))}
}

// parentOf returns the shard that shard k, which is not 0, comes from.
func parentOf(k int) int { return k - born(k).n/2 }
