package inmem

import (
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// TakeOne decides a take of one charge on the bucket that ref remembers. ok is false, and nothing was decided, unless
// the bucket is alive and the charge's limit is its only one in force. It is for tables without a journal, because it
// does not report the change.
func (t *Table) TakeOne(ref *store.Ref, c *store.Charge) (allowed, ok bool) {
	b := store.Recall[Bucket](ref)
	if b == nil {
		return false, false
	}
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
