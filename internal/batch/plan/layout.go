package plan

import (
	"math"
	"slices"

	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/batch/limitname"
	"github.com/weirlimits/weir/internal/clock"
)

// Place is a shard's position among all shards of its bucket: shard K of N, where N is a power of two.
type Place struct{ K, N int }

// Portion returns the shard's portion of x. Over all shards, the portions add up to x exactly, and a shard's is exactly
// the sum of those of the two shards into which it splits.
func (pl Place) Portion(x int64) int64 {
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
func (pl Place) Clock(p clock.Params, now int64) int64 { return pl.Portion(p.Clock(now)) }

// Fresh returns the level of a limit of which the shard has none: it is full, and a balance is empty.
func (pl Place) Fresh(p clock.Params, now int64) int64 { return pl.Portion(p.Fresh(now)) }

// Spent returns how far a level is above a fresh one. Of a balance, that is the level itself, which credits lower.
func (pl Place) Spent(p clock.Params, level, now int64) int64 {
	return clock.Sub(max(level, pl.Clock(p, now)), pl.Fresh(p, now))
}

// Burst returns the shard's portion of a limit's burst.
func (pl Place) Burst(p clock.Params) int64 { return pl.PortionOf(p, p.Burst) }

// PortionOf returns the shard's portion of an amount of a limit. Slots are all on shard 0.
func (pl Place) PortionOf(p clock.Params, x int64) int64 {
	switch {
	case p.Kind() != clock.Slots:
		return pl.Portion(x)
	case pl.K > 0:
		return 0
	default:
		return x
	}
}

// assert makes a write assert that the bucket still has this number of shards, and is not being split. Otherwise the
// shard's clock would be a different one.
func (pl Place) assert(u *expr.Update) {
	if pl.N == 1 {
		u.Op(expr.Absent, AttrShards)
	} else {
		u.Op(expr.Equal, AttrShards, int64(pl.N))
	}
}

// halves divides the level of a limit of shard k of n among shards k and k+n of 2n, as the clock and the burst are
// divided. The new half has a millitoken less, so that together they never have more room than the shard had. A
// balance, whose clock and burst have no remainders, is divided exactly.
func (l *Limit) halves() (low, high int64) {
	low, high = l.Level>>1, clock.Sub(l.Level, l.Level>>1)
	if l.Params.Kind() != clock.Credits {
		high++
	}
	return low, high
}

// A bucket's shards are doubled all at once. Shard 0 alone decides how many there are. Every write to a bucket asserts
// the number that its planner knows. Each step below is one write. A step that was made already fails, and the answer
// shows what it left, so any process may make any step again.
//
//  1. Freeze shard 0: its number of shards becomes negative, so that no write finds what it asserts.
//  2. Freeze the other shards. What a frozen shard holds is final. Then let shard 0 outlive all halves.
//  3. For each shard k of n, put shard k+n of 2n, with half of what k holds.
//  4. Convert each shard but 0 to the other half. It is thereby used again.
//  5. Convert shard 0. From here on, there are 2n.

// Freeze returns the write that freezes a shard other than 0.
func Freeze(on Place, now int64) *expr.Update { return freeze(on, 0, now) }

// FreezeRoot returns the write that freezes shard 0, last seen as it. It also raises its ttl, as a rule far enough for
// all shards that are put next.
func (it *Item) FreezeRoot(now int64) *expr.Update {
	others := make([]*Item, it.Shards)
	for k := range others {
		others[k] = it // they are like it, as a rule
	}
	return freeze(Place{N: it.Shards}, max(it.TTL, RootTTL(others, now)+day), now)
}

func freeze(on Place, ttl, now int64) *expr.Update {
	u := new(expr.Update)
	if on.K == 0 {
		u.Op(expr.Exists, attrID)
	} else {
		u.Op(expr.Exists, expr.Key)
	}
	on.assert(u)
	u.Op(expr.Set, AttrShards, int64(-on.N))
	if ttl > 0 {
		u.Op(expr.AbsentAtMost, AttrTTL, ttl)
		u.Op(expr.Set, AttrTTL, ttl)
	}
	stamp(u, now)
	return u
}

// FrozenAs reports whether the item is frozen, as one of n shards.
func (it *Item) FrozenAs(n int) bool { return it.Frozen && it.Shards == n }

// PutHalf returns the write that puts the new half of frozen shard k of n, unless it exists.
func (it *Item) PutHalf(k int, id uint64, now int64) *expr.Update {
	u := new(expr.Update)
	u.Op(expr.Absent, expr.Key)
	u.Op(expr.Set, AttrShards, int64(2*it.Shards))
	if it.Exists {
		it.bear(u, id)
	}
	h := it.half(Place{k, it.Shards}, now)
	levels(u, h.limits)
	u.Op(expr.Set, AttrTTL, h.ttl)
	stamp(u, now)
	return u
}

// Convert returns the write that makes frozen shard k of n one of 2n, which keeps half of what it held.
func (it *Item) Convert(k int, now int64) *expr.Update {
	u := new(expr.Update)
	u.Op(expr.Equal, AttrShards, int64(-it.Shards))
	u.Op(expr.Set, AttrShards, int64(2*it.Shards))
	for i := range it.Limits {
		if l := &it.Limits[i]; l.Has {
			low, _ := l.halves()
			u.Op(expr.Set, prefixLevel+l.Name, low)
		}
	}
	if k > 0 && it.TTL == 0 { // split by an earlier build
		u.Op(expr.Set, AttrTTL, lease(Place{k, it.Shards}, it.Limits, now))
	}
	stamp(u, now)
	return u
}

// Refill returns the write that replaces shard k, last seen as it, and the ttl that shard 0 must have first; 0 if its
// items have none. A shard that has expired is full. Any other has nothing left.
func (it *Item) Refill(k int, root *Item, id uint64, now int64) (u *expr.Update, rootTTL int64) {
	u = new(expr.Update)
	switch {
	case it == Missing:
		u.Op(expr.Absent, expr.Key)
	case it.shardsAttr() == 1:
		u.Op(expr.Absent, AttrShards)
	default:
		u.Op(expr.Equal, AttrShards, it.shardsAttr())
	}
	on := Place{k, root.Shards}
	u.Op(expr.Set, AttrShards, root.shardsAttr())
	if root.Exists {
		root.bear(u, id)
	}
	empty := slices.Clone(root.Limits)
	for i := range empty {
		l := &empty[i]
		if l.Has = it != Missing || root.TTL == 0; l.Has {
			l.Level = clock.Add(on.Clock(l.Params, now), on.Burst(l.Params))
		}
	}
	levels(u, empty)
	it.uncount(u)
	if root.TTL > 0 {
		ttl := lease(on, empty, now)
		u.Op(expr.Set, AttrTTL, ttl)
		rootTTL = ttl + rootLives - shardLives
	}
	stamp(u, now)
	return u, rootTTL
}

// Expired reports whether the item's time was up.
func (it *Item) Expired(now int64) bool { return it.TTL > 0 && it.TTL < seconds(now) }

// Outlive returns the write that makes shard 0 of a split bucket live until ttl at least, or nil if it does.
func (it *Item) Outlive(ttl, now int64) *expr.Update {
	if it.TTL >= ttl {
		return nil
	}
	u := new(expr.Update)
	u.Op(expr.Equal, AttrShards, it.shardsAttr())
	u.Op(expr.AbsentAtMost, AttrTTL, ttl)
	u.Op(expr.Set, AttrTTL, ttl)
	stamp(u, now)
	return u
}

// half is the new half of a frozen shard.
type half struct {
	limits []Limit
	ttl    int64
}

func (it *Item) half(on Place, now int64) half {
	h := half{limits: make([]Limit, len(it.Limits))}
	for i, l := range it.Limits {
		if h.limits[i] = l; l.Has {
			_, h.limits[i].Level = l.halves()
		}
	}
	h.ttl = lease(Place{on.K + on.N, 2 * on.N}, h.limits, now)
	return h
}

// bear writes what a shard has that is made from this one, other than levels.
func (it *Item) bear(u *expr.Update, id uint64) {
	u.Op(expr.Set, attrID, int64(id&math.MaxInt64))
	u.Op(expr.Set, attrEpoch, int64(it.Epoch))
	if it.Set != "" {
		u.OpText(expr.Set, attrSet, it.Set)
	}
	for i := range it.Limits {
		if l := &it.Limits[i]; !limitname.IsOverride(l.Name) {
			u.OpText(expr.Set, prefixParams+l.Name, limitname.Format(l.Params))
		}
	}
}

// levels writes the levels that a shard begins with, and counts the overrides among them.
func levels(u *expr.Update, limits []Limit) {
	overrides := 0
	for i := range limits {
		l := &limits[i]
		if !l.Has {
			continue
		}
		u.Op(expr.Set, prefixLevel+l.Name, l.Level)
		if limitname.IsOverride(l.Name) {
			overrides++
		}
	}
	if overrides > 0 {
		u.Op(expr.Set, attrOverrides, int64(overrides))
	}
}
