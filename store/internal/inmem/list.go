package inmem

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Peek returns the state of buckets and changes nothing.
func (t *Table) Peek(keys []store.Bucket) store.Snapshot {
	now := t.Now()
	states := make([]store.State, len(keys))
	for i, key := range keys {
		states[i].Bucket = key
		if b := t.find(key); b != nil {
			if !b.dead() {
				states[i] = b.state(key)
				now = max(now, b.at)
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
	var after string
	if q.After != "" {
		raw, err := base64.RawURLEncoding.DecodeString(q.After)
		var ok bool
		if after, ok = strings.CutPrefix(string(raw), q.Namespace+"\x00"); err != nil || !ok ||
			strings.Count(after, "\x00") != 1 {
			return store.BucketPage{}, store.ErrBadCursor
		}
	}
	var keys []string
	prefix := q.Namespace + "\x00"
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		for b := range s.buckets.all() {
			rest, ok := strings.CutPrefix(b.key, prefix)
			if !ok || after != "" && rest <= after {
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
		page.Next = base64.RawURLEncoding.EncodeToString([]byte(keys[limit-1]))
	}
	wanted := make([]store.Bucket, len(keys))
	for i, k := range keys {
		wanted[i] = parseKey(k)
	}
	snap := t.Peek(wanted)
	page.At = snap.At
	page.States = slices.DeleteFunc(snap.States, func(s store.State) bool { return s.ID == 0 })
	return page, nil
}

// Forget removes buckets, whatever they owe. Wait for the tickets before answering.
func (t *Table) Forget(keys []store.Bucket) Tickets {
	var op operation
	for _, key := range keys {
		b := t.find(key)
		if b == nil {
			continue
		}
		if b.dead() {
			b.mu.Unlock()
			continue
		}
		t.gone(b)
		if t.cfg.Retired != nil && b.counted() {
			op.retired = append(op.retired, b.state(key))
		}
		op.changed(t, b, Forgotten)
		b.setSlots(nil)
		b.own = 0
		b.id = 0
		b.mu.Unlock()
		// Never wait for a shard's lock while holding a bucket's.
		s, hash := t.shard([]byte(b.key))
		s.mu.Lock()
		if s.buckets.remove(hash, b) {
			t.count.Add(-1)
		}
		s.mu.Unlock()
	}
	t.retire(op.retired)
	return op.tickets
}

// Each calls f with every bucket in turn, locked, until f returns false. It may miss buckets born meanwhile.
func (t *Table) Each(f func(b *Bucket, key store.Bucket) bool) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		bs := slices.Collect(s.buckets.all())
		s.mu.RUnlock()
		for _, b := range bs {
			b.mu.Lock()
			more := b.dead() || f(b, parseKey(b.key))
			b.mu.Unlock()
			if !more {
				return
			}
		}
	}
}
