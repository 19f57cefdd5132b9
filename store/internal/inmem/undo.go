package inmem

import (
	"slices"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Undo returns the tokens of an allowed take that was never answered because its ticket failed.
//
// It keeps back what the clock has issued since: without the take, a bucket that was full meanwhile would have lost
// those tokens, and returning them would admit more.
func (t *Table) Undo(take store.Take, ts Tickets) {
	for i, b := range ts.w.bs {
		b.mu.Lock()
		if !b.dead() {
			t.undo(b, &take.Debits[i], ts.w)
		}
		b.mu.Unlock()
	}
}

func (t *Table) undo(b *Bucket, d *store.Debit, w *waiting) {
	t.stamp(b, max(b.at, t.Now()))
	for j := range d.Charges {
		c := &d.Charges[j]
		i := b.find(c.Limit)
		if i < 0 || c.Amount == 0 || c.Shadow && slices.Contains(w.left, c) {
			continue
		}
		s := b.slot(i)
		issued := sinceThen(params(s.limit), w.at, b.at)
		if *s.limit != *c.Limit { // it drained by one limit, then by the other
			issued = clock.Spend(issued, issued, sinceThen(params(c.Limit), w.at, b.at))
		}
		back := max(0, c.Amount-issued)
		s.level = clock.Credit(s.level, back)
		s.returned += back
	}
	if t.cfg.Journal != nil {
		t.cfg.Journal.Changed(b, Undone)
	}
}

// sinceThen returns what a limit issued between two instants.
func sinceThen(p clock.Params, from, to int64) int64 {
	return clock.Outstanding(p.Clock(to), p.Clock(from))
}
