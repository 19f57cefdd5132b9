package inmem

import (
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Record is a bucket as a journal stores it.
type Record struct {
	ID     uint64
	At     int64 // nanoseconds since clock.Epoch
	Epoch  uint32
	Own    int // the first Own limits are the limits in force
	Takes  int64
	Limits []store.LimitState // their levels are those of [Bucket.Level]
	Held   map[int]Held       // of the limits of slots, by their indexes
}

// Load adds a bucket from its record, unless it is full by now. With reborn it is reborn: its counters are zero, and
// its ID is new.
func (t *Table) Load(key string, rec *Record, reborn bool) (loaded bool, err error) {
	b := &Bucket{key: key}
	b.id, b.at, b.epoch, b.own, b.takes = rec.ID, rec.At, rec.Epoch, uint16(rec.Own), rec.Takes
	var room [4]slot
	slots := slices.Grow(room[:0], len(rec.Limits))[:len(rec.Limits)]
	for i := range rec.Limits {
		l := &rec.Limits[i]
		if slots[i].limit, err = t.limits.intern(l.Limit); err != nil {
			return false, err
		}
		slots[i].level, slots[i].debited, slots[i].returned = l.Level, l.Debited, l.Returned
	}
	b.setSlots(slots)
	for i, h := range rec.Held {
		*b.keep(slots[i].limit.Name) = held{slots[i].limit.Name, h}
	}
	if now := t.Now(); b.full(now) {
		t.raise(now)
		return false, nil
	}
	if reborn {
		b.rebirth(ParseKey(key), t.births.Add(1))
	}
	b.Stored, b.Dirty = true, reborn
	s, hash := t.shard([]byte(key))
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.buckets.get(hash, []byte(key)); old != nil {
		s.buckets.remove(hash, old)
		t.count.Add(-1)
	}
	s.buckets.put(hash, b)
	t.count.Add(1)
	s.sweepAt = max(firstSweep, 2*s.buckets.len())
	return true, nil
}

// LoadSettled restores a settle's ID.
func (t *Table) LoadSettled(id string, expires time.Time) {
	s := t.settled.of(t.seed, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expires == nil {
		s.expires = make(map[string]time.Time)
	}
	s.expires[id] = expires
}

// Settled calls f with every recorded ID that has not expired.
func (t *Table) Settled(f func(id string, expires time.Time)) {
	now := clock.Time(t.Now())
	for i := range t.settled {
		s := &t.settled[i]
		s.mu.Lock()
		for id, e := range s.expires {
			if now.Before(e) {
				f(id, e)
			}
		}
		s.mu.Unlock()
	}
}

// Live reports whether there is a bucket for a key, and calls f with it locked.
func (t *Table) Live(key string, f func(b *Bucket)) bool {
	b := t.find(ParseKey(key))
	if b == nil {
		return false
	}
	defer b.mu.Unlock()
	if b.Dead() {
		return false
	}
	f(b)
	return true
}

// Lock locks a bucket for a journal.
func (b *Bucket) Lock() { b.mu.Lock() }

// Unlock unlocks a bucket.
func (b *Bucket) Unlock() { b.mu.Unlock() }

// Head returns the fixed part of a locked bucket's record; Limits is nil.
func (b *Bucket) Head() Record {
	return Record{ID: b.id, At: b.at, Epoch: b.epoch, Own: int(b.own), Takes: b.takes}
}

// Key returns the key under which the table keeps the bucket. It never changes.
func (b *Bucket) Key() string { return b.key }

// Level returns the level of a locked bucket's slot. Of a limit of slots, it is how often slots were taken or renewed.
func (b *Bucket) Level(i int) int64 { return b.slot(i).level }

// Limit returns the state of a slot of a locked bucket, with the level of [Bucket.Level].
func (b *Bucket) Limit(i int) store.LimitState {
	s := b.slot(i)
	return store.LimitState{Limit: s.limit, Level: s.level, Debited: s.debited, Returned: s.returned}
}
