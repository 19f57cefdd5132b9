package inmem

import (
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Find returns the bucket of a key, or nil if there is none.
func (t *Table) Find(key store.Bucket) *Bucket {
	b, _ := t.get(key, false)
	return b
}

// TakeOne decides a take of one charge on a bucket. ok is false, and nothing was decided, unless the bucket is alive
// and the charge's limit is its only one in force. It is for tables without a journal, because it does not report the
// change.
func (t *Table) TakeOne(b *Bucket, c *store.Charge) (allowed, ok bool) {
	// Before the lock, because others wait there.
	p := params(c.Limit)
	now := t.Now()
	reading := p.Clock(now)
	b.mu.Lock()
	if b.dead() || b.own != 1 || b.first.limit != c.Limit && *b.first.limit != *c.Limit {
		b.mu.Unlock()
		return false, false
	}
	if now < b.at {
		now = b.at
		reading = p.Clock(now)
	}
	if allowed = p.Fits(b.first.level, reading, c.Amount); allowed {
		t.stamp(b, now)
		b.takes++
		b.first.level = clock.Spend(b.first.level, reading, c.Amount)
		b.first.debited += c.Amount
	}
	b.mu.Unlock()
	return allowed, true
}
