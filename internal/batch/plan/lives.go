package plan

import (
	"time"

	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/clock"
)

// An item lives until its bucket is full, and a day longer. Its ttl never shrinks: a write asserts that it is late
// enough and keeps it, or asserts that it is not later than the new one.
//
// The items of a split bucket expire one by one. Two rules make that exact:
//
//   - Shard 0 lives a day longer than any other shard: its ttl is raised first, with a write of its own if need be.
//   - What is written to another shard asserts that its ttl is far enough ahead.
//
// So when shard 0 is gone, every other shard was full a day ago, and nothing is written to it any more, although some
// process may still take it for a shard of the bucket, and DynamoDB may delete it later than it deletes shard 0. The
// bucket begins again, full and in one item. And when another shard is gone before shard 0, it was full, and is put
// anew. Items of buckets that earlier builds split have no ttl, and never expire.

// Lives is what a write has to know of how long items live.
type Lives struct {
	Retention time.Duration // the minimum time for which an item outlives its last write
	Seen      bool          // the item was seen, existing or not
	TTL       int64         // its ttl then
	Root      int64         // a ttl that shard 0 of the split bucket is known to have at least
}

// Roots is what is known of the ttl of shard 0 of a split bucket, in Unix seconds.
type Roots struct {
	TTL  int64 // it has at least this one
	Need int64 // it must have this one before the jobs can be written that were placed anew for it
}

const day = 24 * 60 * 60

// The least that items outlive what they owe, in seconds: a shard, and shard 0 of a split bucket. A shard's ttl is set
// a day later than it must be, and so is that of shard 0, which has to be a day later than any other.
const (
	shardLives = day
	rootLives  = 3 * day
)

// seconds returns an instant in Unix seconds, rounded up.
func seconds(nanos int64) int64 {
	return clock.Epoch.Unix() + nanos/int64(time.Second) + 1
}

// need returns the ttl that the item must have for the write.
func (w *Write) need() int64 {
	need := max(seconds(w.full()), seconds(clock.Add(w.Now, int64(w.Lives.Retention))))
	if w.On.N > 1 && w.On.K == 0 {
		return need + rootLives
	}
	return need + shardLives
}

// neverExpires reports whether the item belongs to a bucket that an earlier build has split.
func (w *Write) neverExpires() bool {
	l := &w.Lives
	return w.On.N > 1 && l.Seen && l.TTL == 0 && (w.On.K == 0 || l.Root == 0)
}

// retain ensures that the item outlives whatever it owes.
func (w *Write) retain(u *expr.Update) {
	if w.neverExpires() {
		return
	}
	need := w.need()
	switch l := &w.Lives; {
	case w.On.N > 1 && !l.Seen, w.On.N > 1 && l.TTL >= need, w.Last != nil && l.TTL >= need:
		u.Op(expr.AtLeast, AttrTTL, need)
	default:
		u.Op(expr.AbsentAtMost, AttrTTL, need+day)
		u.Op(expr.Set, AttrTTL, need+day)
	}
}

// rootNeeds returns the ttl that shard 0 must have before the write can be made; 0 if it has that, as far as is known.
func (w *Write) rootNeeds() int64 {
	l := &w.Lives
	if w.On.K == 0 || w.undoes() || w.Upkeep == nil && w.onlyGives() || !l.Seen || w.neverExpires() {
		return 0
	}
	need := w.need()
	if root := need + rootLives - shardLives; l.TTL < need && l.Root < root {
		return root
	}
	return 0
}

// move dismisses all jobs of the write, and those that wait, but undos, which the next write carries.
func (p *planner) move(later []*Job) []*Job {
	var jobs, undos []*Job
	for _, e := range p.w.Entries {
		jobs = append(jobs, e.Job)
	}
	for _, j := range append(jobs, later...) {
		if j.Kind == Undo {
			undos = append(undos, j)
		} else {
			p.dismiss([]*Job{j})
		}
	}
	w := &p.w
	*p = planner{s: p.s, at: p.at, w: Write{
		Now: w.Now, Planned: w.Planned, On: w.On, Lives: w.Lives, Last: w.Last, Answers: w.Answers,
	}}
	return p.finish(p.join(undos))
}

// full returns when a limit is full of which as much as most is outstanding. Slots have ends instead.
func (pl Place) full(p clock.Params, now, most int64) int64 {
	if p.Kind() == clock.Slots {
		return now
	}
	if pl.N > 1 {
		most = clock.Times(clock.Add(most, 1), pl.N)
	}
	return p.Full(clock.Add(p.Clock(now), most))
}

// fullAt returns when the shard's portion of a limit's clock reaches a level.
func (pl Place) fullAt(p clock.Params, level int64) int64 {
	return p.Full(clock.Sub(clock.Times(level, pl.N), int64(pl.K)))
}

// lease returns the ttl of a shard that is put with these levels: it then need not be raised for a day.
func lease(on Place, limits []Limit, now int64) int64 {
	full := now
	for i := range limits {
		l := &limits[i]
		full = max(full, on.full(l.Params, now, on.Burst(l.Params)))
		if l.Has {
			full = max(full, on.fullAt(l.Params, l.Level))
		}
	}
	return seconds(full) + shardLives + day
}

// RootTTL returns the ttl that shard 0 must have before frozen shards, which are all of a bucket, are divided.
func RootTTL(frozen []*Item, now int64) (ttl int64) {
	for k, it := range frozen {
		on := Place{k, len(frozen)}
		ttl = max(ttl, lease(on, it.Limits, now), it.half(on, now).ttl)
	}
	return ttl + rootLives - shardLives
}
