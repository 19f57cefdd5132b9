package inmem

import (
	"maps"
	"strings"
	"sync"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/varint"
)

// credits remembers which credits were applied, by their marks. The lock of the bucket guards each of them.
type credits struct {
	mu      sync.Mutex
	amounts map[string]int64
}

// mark is what a credit is remembered by.
func mark(c *store.Credit) string {
	b := c.Bucket
	return string(varint.AppendParts(nil, b.Namespace, b.Entity, b.Resource, c.Limit, c.ID))
}

func (s *credits) of(mark string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.amounts[mark]
}

func (s *credits) add(mark string, amount int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.amounts == nil {
		s.amounts = make(map[string]int64)
	}
	s.amounts[mark] = amount
}

func (s *credits) forget(prefix string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.amounts, func(mark string, _ int64) bool { return strings.HasPrefix(mark, prefix) })
}

func (op *operation) credit(b *Bucket, c *store.Credit) (out store.Credited, err error) {
	t, mark := op.table, mark(c)
	amount := t.credits.of(mark)
	here := amount != 0 // otherwise the journal has it durably, if at all
	if j := t.cfg.Journal; j != nil && !here {
		if amount, err = j.Recorded(mark); err != nil {
			return out, err
		}
	}
	if amount != 0 && amount != c.Amount {
		return out, &store.CreditError{ID: c.ID, Have: amount, Want: c.Amount}
	}
	out = store.Credited{At: clock.Time(op.now), Before: amount != 0}
	at := b.find(&store.Limit{Name: c.Limit})
	switch {
	case out.Before && (at < 0 || !b.slot(at).limit.IsBalance()): // spent, and gone since
		return out, nil
	case at >= 0 && !b.slot(at).limit.IsBalance():
		return out, &store.KindError{Bucket: c.Bucket, Limit: c.Limit}
	case at < 0:
		l, err := t.limits.intern(store.Balance(c.Limit))
		if err != nil {
			return out, err
		}
		at = b.Len()
		b.setSlots(append(b.slots(), slot{limit: l}))
	}
	s := b.slot(at)
	if !out.Before {
		level, err := c.Apply(s.level)
		if err != nil {
			return out, err
		}
		t.stamp(b, op.now)
		t.credits.add(mark, c.Amount)
		s.level = level
		b.Reserve().uncover(at, c.Amount)
		op.changed(b, Settled)
		here = true
	}
	out.Level = s.level
	if j := t.cfg.Journal; j != nil && here {
		op.tickets.add(j.Credited(b, mark, c.Amount))
	}
	return out, nil
}

// holds reports whether a slot has a balance that is not 0.
func (s *slot) holds() bool { return s.level != 0 && s.limit.IsBalance() }

// full reports whether a slot carries no information: its level lies under the clock, or is a balance of 0.
func (s *slot) full(now int64) bool {
	p := s.limit.Params()
	return s.level <= p.Clock(now) || s.level == 0 && p.Kind() == clock.Credits
}

// reset removes all limits of a locked bucket but the balances in it and slots that are held, and reports whether there
// are any.
func (op *operation) reset(b *Bucket, key store.Bucket) bool {
	op.now = max(b.at, op.table.Now())
	var held []slot
	for i := range b.Len() {
		if s := b.slot(i); s.holds() || s.limit.IsSlots() && !b.fullSlot(s, op.now) {
			held = append(held, *s)
		}
	}
	if len(held) == 0 {
		return false
	}
	op.table.stamp(b, op.now)
	op.restart(b, key, held)
	b.setSlots(held)
	b.own = 0
	op.changed(b, Settled)
	return true
}
