package plan

import (
	"math"
	"time"

	"github.com/weirlimits/weir/internal/clock"
)

// Place is a shard's position among all shards of its bucket: shard K of N, where N is a power of two.
type Place struct{ K, N int }

// portion returns the shard's portion of x. Over all shards, the portions add up to x exactly, and a shard's is exactly
// the sum of those of the two shards into which it splits.
func (pl Place) portion(x int64) int64 {
	if pl.N == 1 {
		return x
	}
	n, k := int64(pl.N), int64(pl.K)
	q, r := x/n, x%n // (x + k) / n would overflow at the end of int64
	if r < 0 {
		q, r = q-1, r+n
	}
	return q + (r+k)/n
}

// Clock returns the shard's portion of a limit's clock.
func (pl Place) Clock(p clock.Params, now int64) int64 { return pl.portion(p.Clock(now)) }

// Burst returns the shard's portion of a limit's burst.
func (pl Place) Burst(p clock.Params) int64 { return pl.portion(p.Burst) }

// assert makes a write assert that the bucket still has this number of shards, and is not being split. Otherwise the
// shard's clock would be a different one.
func (pl Place) assert(u *Update) {
	if pl.N == 1 {
		u.op(condAbsent, AttrShards)
	} else {
		u.op(condEqual, AttrShards, int64(pl.N))
	}
}

// halves divides a level of shard k of n among shards k and k+n of 2n, as the clock and the burst are divided. The new
// half has a millitoken less, so that together they never have more room than the shard had.
func halves(level int64) (low, high int64) { return level >> 1, clock.Add(level, 1)>>1 + 1 }

// A bucket's shards are doubled all at once. Shard 0 alone decides how many there are. Every write to a bucket asserts
// the number that its planner knows. Each step below is one write. A step that was made already fails, and the answer
// shows what it left, so any process may make any step again.
//
//  1. Freeze shard 0: its number of shards becomes negative, so that no write finds what it asserts.
//  2. Freeze the other shards. What a frozen shard holds is final.
//  3. For each shard k of n, put shard k+n of 2n, with half of what k holds.
//  4. Convert each shard but 0 to the other half. It is thereby used again.
//  5. Convert shard 0. From here on, there are 2n.

// Freeze returns the write that freezes a shard.
func Freeze(on Place, now int64) *Update {
	u := new(Update)
	if on.K == 0 {
		u.op(condExists, attrID)
	} else {
		u.op(condExists, attrKey)
	}
	on.assert(u)
	u.op(setTo, AttrShards, int64(-on.N))
	u.op(remove, attrTTL)
	u.stamp(now)
	return u
}

// FrozenAs reports whether the item is frozen, as one of n shards.
func (it *Item) FrozenAs(n int) bool { return it.Frozen && it.Shards == n }

// PutHalf returns the write that puts the new half of a frozen shard of n, unless it exists.
func (it *Item) PutHalf(id uint64, now int64) *Update {
	u := new(Update)
	u.op(condAbsent, attrKey)
	u.op(setTo, AttrShards, int64(2*it.Shards))
	if it.Exists {
		it.bear(u, id)
	}
	for i := range it.Limits {
		if l := &it.Limits[i]; l.Has {
			_, high := halves(l.Level)
			u.op(setTo, prefixLevel+l.Name, high)
		}
	}
	u.stamp(now)
	return u
}

// Convert returns the write that makes a frozen shard of n one of 2n, which keeps half of what it held.
func (it *Item) Convert(now int64) *Update {
	u := new(Update)
	u.op(condEqual, AttrShards, int64(-it.Shards))
	u.op(setTo, AttrShards, int64(2*it.Shards))
	for i := range it.Limits {
		if l := &it.Limits[i]; l.Has {
			low, _ := halves(l.Level)
			u.op(setTo, prefixLevel+l.Name, low)
		}
	}
	u.stamp(now)
	return u
}

// Refill returns the write that replaces shard k, last seen as it, by one that has nothing left, with the limits of
// shard 0.
func (it *Item) Refill(k int, root *Item, id uint64, now int64) *Update {
	u := new(Update)
	switch {
	case it == Missing:
		u.op(condAbsent, attrKey)
	case it.shardsAttr() == 1:
		u.op(condAbsent, AttrShards)
	default:
		u.op(condEqual, AttrShards, it.shardsAttr())
	}
	on := Place{k, root.Shards}
	u.op(setTo, AttrShards, root.shardsAttr())
	if root.Exists {
		root.bear(u, id)
	}
	for i := range root.Limits {
		l := &root.Limits[i]
		u.op(setTo, prefixLevel+l.Name, clock.Add(on.Clock(l.Params, now), on.Burst(l.Params)))
		u.op(remove, prefixDebited+l.Name)
		u.op(remove, prefixReturned+l.Name)
	}
	u.stamp(now)
	return u
}

// bear writes what a shard has that is made from this one, other than levels.
func (it *Item) bear(u *Update, id uint64) {
	u.op(setTo, attrID, int64(id&math.MaxInt64))
	u.op(setTo, attrEpoch, int64(it.Epoch))
	if it.Set != "" {
		u.opText(setTo, attrSet, it.Set)
	}
	if it.Overrides > 0 {
		u.op(setTo, attrOverrides, int64(it.Overrides))
	}
	for i := range it.Limits {
		if l := &it.Limits[i]; !isOverride(l.Name) {
			u.opText(setTo, prefixParams+l.Name, formatParams(l.Params))
		}
	}
}

// Meter measures how often all processes together write an item, from its count of writes in two of our own answers.
type Meter struct {
	n      int   // the number of shards while it measures
	at     int64 // when the last reading was made, with which the next is compared
	writes int64
	hot    time.Duration // how long it has been written too often
	denied int           // number of writes in a row that were throttled for their key
}

const (
	hotRate = 800 // writes a second: 80 % of what one item can be
	hotFor  = 2 * time.Second
)

// Saw takes a reading of a write's answer, and reports whether the item is written too often, or refuses writes for
// that reason. What was measured while the bucket had another number of shards does not count.
func (m *Meter) Saw(on Place, now int64, got *Got) bool {
	if m.n != on.N {
		*m = Meter{n: on.N}
	}
	switch it := got.Item; {
	case got.Hot:
		m.denied++
	case it == nil || !it.Exists || it.Frozen || it.Shards != on.N:
		return false
	default:
		m.denied = 0
		m.Read(it.Writes, now)
	}
	return m.TooMuch()
}

// TooMuch reports once that the item is written too often.
func (m *Meter) TooMuch() bool {
	if m.hot < hotFor && m.denied < 3 {
		return false
	}
	m.hot, m.denied = 0, 0
	return true
}

// Read takes a reading of an item's count of writes.
func (m *Meter) Read(writes, now int64) {
	elapsed := now - m.at
	switch {
	case m.at == 0 || writes < m.writes || elapsed < 0:
		m.hot = 0
	case elapsed < int64(time.Second):
		return
	case float64(writes-m.writes)/(float64(elapsed)/float64(time.Second)) > hotRate:
		m.hot += time.Duration(elapsed)
	default:
		m.hot = 0
	}
	m.at, m.writes = now, writes
}
