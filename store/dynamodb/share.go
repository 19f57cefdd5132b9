package dynamodb

import (
	"github.com/weirlimits/weir/internal/clock"
)

// maxShards is the maximum number of shards of a bucket.
const maxShards = 64

// place is a shard's position among all shards of its bucket: shard k of n, where n is a power of two.
type place struct{ k, n int }

// share returns the shard's part of x. Over all shards, the parts add up to x exactly, and a shard's part is
// exactly the sum of those of the two shards into which it splits.
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
func (pl place) clock(p clock.Params, now int64) int64 { return pl.share(p.Clock(now)) }

// burst returns the shard's part of a limit's burst.
func (pl place) burst(p clock.Params) int64 { return pl.share(p.Burst) }

// fits reports whether a debit fits the shard, by the shard's clock. A debit of 0 fits unless the shard is in debt.
func (pl place) fits(p clock.Params, level, reading, amount int64) bool {
	p.Burst = pl.burst(p)
	return p.Fits(level, reading, amount)
}

// assert makes a write assert that the bucket still has this number of shards, and is not being split. Otherwise the
// shard's clock would be a different one.
func (pl place) assert(u *update) {
	if pl.n == 1 {
		u.op(condAbsent, attrShards)
	} else {
		u.op(condEqual, attrShards, int64(pl.n))
	}
}

// halves divides a level of shard k of n among shards k and k+n of 2n, as the clock and the burst are divided. The new
// half has a millitoken less, so that together they never have more room than the shard had.
func halves(level int64) (low, high int64) { return level >> 1, clock.Add(level, 1)>>1 + 1 }
