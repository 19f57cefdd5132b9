package inmem

import (
	"slices"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// operation is a change of some locked buckets of a table.
type operation struct {
	table   *Table
	now     int64
	tickets Tickets
	retired []store.State
	left    []*store.Charge // charges of a take in shadow that do not fit
	took    []took
}

func (op *operation) take(take *store.Take, bs []*Bucket) (out store.Outcome, err error) {
	op.now = op.table.Now()
	for _, b := range bs {
		op.now = max(op.now, b.at)
	}
	allowed := true
	for i := range bs {
		if err := op.follow(bs[i], &take.Debits[i]); err != nil {
			return out, err
		}
	}
	var room [8]charged
	slots := room[:0] // of all charges, which follow added
	for i, b := range bs {
		for j := range take.Debits[i].Charges {
			c := &take.Debits[i].Charges[j]
			s := b.of(j, c.Limit)
			slots = append(slots, charged{s, s.limit.Params().Clock(op.now)})
			fits, err := op.fits(b, slots[len(slots)-1], c)
			if err != nil {
				return out, err
			}
			allowed = allowed && fits
		}
	}
	if allowed {
		rest := slots
		for i, b := range bs {
			rest = op.charge(b, rest, take.Debits[i].Charges)
			op.changed(b, Debited)
		}
		op.tickets.remember(bs, op)
	}
	out.Allowed, out.At = allowed, clock.Time(op.now)
	out.Levels = op.levels(take.Debits, bs, slots, allowed)
	return out, nil
}

// charged is a slot with its clock's reading.
type charged struct {
	*slot

	reading int64
}

func (op *operation) changed(b *Bucket, c Change) {
	if j := op.table.cfg.Journal; j != nil {
		op.tickets.add(j.Changed(b, c))
	}
}

// fits reports whether a charge fits, or may not refuse, and notes one in shadow that does not.
func (op *operation) fits(b *Bucket, s charged, c *store.Charge) (bool, error) {
	level := b.level(s.slot, op.now)
	switch {
	case c.Shadow:
		if !clock.Fits(s.limit.Burst, level, s.reading, c.Amount) {
			op.left = append(op.left, c)
		}
	case !c.Force:
		return clock.Fits(s.limit.Burst, level, s.reading, c.Amount), nil
	case clock.Spend(level, s.reading, c.Amount) > clock.MaxLevel:
		return false, store.ErrOverflow
	}
	return true, nil
}

// charge makes charges on a bucket, whose slots are the first of those given, and returns the others.
func (op *operation) charge(b *Bucket, of []charged, charges []store.Charge) (rest []charged) {
	op.table.stamp(b, op.now)
	b.takes++
	for i := range charges {
		c, s := &charges[i], of[i]
		if c.Amount == 0 || c.Shadow && slices.Contains(op.left, c) {
			continue
		}
		s.debited += c.Amount
		if s.limit.IsSlots() {
			op.took = append(op.took, took{c, op.hold(b, s.slot, c.Amount)})
			continue
		}
		s.level = clock.Spend(s.level, s.reading, c.Amount)
	}
	return of[len(charges):]
}

// hold takes slots without a check, and returns what the lease holds.
func (op *operation) hold(b *Bucket, s *slot, amount int64) store.Hold {
	h := b.keep(s.limit.Name)
	if h.Birth == 0 {
		h.Birth = op.table.births.Add(1)
	}
	h.Held.Held = s.limit.Params().Slots(0).Force(h.Held.Held, op.now, amount)
	s.level++
	return store.HoldOf(s.limit, h.Birth, h.End, op.now, 0)
}

func (op *operation) levels(debits []store.Debit, bs []*Bucket, of []charged, allowed bool) []store.Level {
	ls := make([]store.Level, 0, len(of))
	for i, b := range bs {
		for j := range debits[i].Charges {
			c, s := &debits[i].Charges[j], of[len(ls)]
			level := b.level(s.slot, op.now)
			refused := !allowed && !c.Force && !clock.Fits(s.limit.Burst, level, s.reading, c.Amount)
			if c.Shadow {
				refused = slices.Contains(op.left, c)
			}
			ls = append(ls, store.Level{Limit: s.limit, Level: level, Refused: refused, Hold: holdOf(op.took, c)})
		}
	}
	return ls
}

func (op *operation) undo(b *Bucket, d *store.Debit, w *waiting) {
	op.now = max(b.at, op.table.Now())
	op.table.stamp(b, op.now)
	for j := range d.Charges {
		c := &d.Charges[j]
		i := b.find(c.Limit)
		if i < 0 || c.Amount == 0 || c.Shadow && slices.Contains(w.left, c) {
			continue
		}
		s := b.slot(i)
		if s.limit.IsSlots() {
			s.returned += op.giveBack(b, s, c.Amount, holdOf(w.took, c))
			continue
		}
		issued := sinceThen(s.limit.Params(), w.at, b.at)
		if *s.limit != *c.Limit { // it drained by one limit, then by the other
			issued = clock.Spend(issued, issued, sinceThen(c.Limit.Params(), w.at, b.at))
		}
		back := max(0, c.Amount-issued)
		s.level = clock.Credit(s.level, back)
		s.returned += back
	}
	op.changed(b, Undone)
}

// sinceThen returns what a limit issued between two instants.
func sinceThen(p clock.Params, from, to int64) int64 {
	return clock.Outstanding(p.Clock(to), p.Clock(from))
}
