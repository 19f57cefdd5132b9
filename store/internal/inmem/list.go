package inmem

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/cursor"
	"github.com/weirlimits/weir/store/internal/ledger"
)

// Peek returns the state of buckets and changes nothing.
func (t *Table) Peek(keys []store.Bucket) store.Snapshot {
	now := t.Now()
	states := make([]store.State, len(keys))
	for i, key := range keys {
		states[i].Bucket = key
		if b := t.find(key); b != nil {
			if !b.Dead() {
				now = max(now, b.at)
				states[i] = b.state(key, now)
			}
			b.mu.Unlock()
		}
	}
	return store.Snapshot{At: clock.Time(now), States: states}
}

// has reports whether there is a bucket for a key, perhaps dead.
func (t *Table) has(key store.Bucket) bool {
	var buf [128]byte
	k := appendKey(buf[:0], key)
	s, hash := t.shard(k)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.buckets.get(hash, k) != nil
}

// find returns the bucket of a key, locked and perhaps dead, or nil if there is none.
func (t *Table) find(key store.Bucket) *Bucket {
	var buf [128]byte
	k := appendKey(buf[:0], key)
	s, hash := t.shard(k)
	s.mu.RLock()
	b := s.buckets.get(hash, k)
	s.mu.RUnlock()
	if b != nil {
		b.mu.Lock()
	}
	return b
}

// Buckets returns a page of the matching buckets, ordered by entity and resource.
func (t *Table) Buckets(q store.BucketQuery) (store.BucketPage, error) {
	pages := cursor.OfBuckets(&q)
	var after string
	if q.After != "" {
		at, err := pages.Parse(q.After)
		if err != nil {
			return store.BucketPage{}, err
		}
		b := store.Bucket{Namespace: q.Namespace, Entity: at.ID, Resource: at.Sub}
		after = string(appendKey(nil, b))
	}
	var keys []string
	prefix := q.Namespace + "\x00"
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		for b := range s.buckets.all() {
			rest, ok := strings.CutPrefix(b.key, prefix)
			if !ok || b.key <= after {
				continue
			}
			entity, resource, _ := strings.Cut(rest, "\x00")
			if (q.Entity == "" || q.Entity == entity) && (q.Resource == "" || q.Resource == resource) {
				keys = append(keys, b.key)
			}
		}
		s.mu.RUnlock()
	}
	slices.SortFunc(keys, cmp.Compare)
	page := store.BucketPage{}
	if limit := store.PageSize(q.Max); len(keys) > limit {
		keys = keys[:limit]
		last := ParseKey(keys[limit-1])
		page.Next = pages.Make(cursor.Position{ID: last.Entity, Sub: last.Resource})
	}
	wanted := make([]store.Bucket, len(keys))
	for i, k := range keys {
		wanted[i] = ParseKey(k)
	}
	snap := t.Peek(wanted)
	page.At = snap.At
	page.States = slices.DeleteFunc(snap.States, func(s store.State) bool { return s.ID == 0 })
	return page, nil
}

// Each calls f with every bucket in turn, locked, until f returns false. It may miss buckets born meanwhile.
func (t *Table) Each(f func(b *Bucket, key store.Bucket) bool) {
	for i := range t.shards {
		for _, b := range t.shards[i].all() {
			b.mu.Lock()
			more := b.Dead() || f(b, ParseKey(b.key))
			b.mu.Unlock()
			if !more {
				return
			}
		}
	}
}

// Read calls f with the readings of all buckets that have changed since an instant, some hundred at a time. It may
// miss a change in progress.
func (t *Table) Read(since int64, f func([]ledger.Observation) error) error {
	for i := range t.shards {
		var out []ledger.Observation
		for _, b := range t.shards[i].all() {
			b.mu.Lock()
			if !b.Dead() && b.at >= since && b.counted() {
				out = append(out, b.observation(false))
			}
			b.mu.Unlock()
		}
		if len(out) > 0 {
			if err := f(out); err != nil {
				return err
			}
		}
	}
	return nil
}

// all returns the buckets of a shard.
func (s *shard) all() []*Bucket {
	s.mu.RLock()
	defer s.mu.RUnlock()
	bs := make([]*Bucket, 0, s.buckets.len())
	return slices.AppendSeq(bs, s.buckets.all())
}
