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
	for i, b := range bs {
		fits, err := op.fits(b, take.Debits[i].Charges)
		if err != nil {
			return out, err
		}
		allowed = allowed && fits
	}
	if allowed {
		for i, b := range bs {
			op.charge(b, take.Debits[i].Charges)
			op.changed(b, Debited)
		}
		op.tickets.remember(bs, op)
	}
	out.Allowed, out.At = allowed, clock.Time(op.now)
	out.Levels = op.levels(take.Debits, bs, allowed)
	return out, nil
}

func (op *operation) changed(b *Bucket, c Change) {
	if j := op.table.cfg.Journal; j != nil {
		op.tickets.add(j.Changed(b, c))
	}
}

// fits reports whether all charges that may refuse fit, and notes those in shadow that do not. Every charge has a
// slot, because follow added it.
func (op *operation) fits(b *Bucket, charges []store.Charge) (bool, error) {
	fits := true
	for i := range charges {
		c := &charges[i]
		s := b.of(i, c.Limit)
		p := params(s.limit)
		reading := p.Clock(op.now)
		switch {
		case c.Shadow:
			if !p.Fits(s.level, reading, c.Amount) {
				op.left = append(op.left, c)
			}
		case !c.Force:
			fits = fits && p.Fits(s.level, reading, c.Amount)
		case clock.Spend(s.level, reading, c.Amount) > clock.MaxLevel:
			return false, store.ErrOverflow
		}
	}
	return fits, nil
}

func (op *operation) charge(b *Bucket, charges []store.Charge) {
	op.table.stamp(b, op.now)
	b.takes++
	for i := range charges {
		c := &charges[i]
		if c.Amount == 0 || c.Shadow && slices.Contains(op.left, c) {
			continue
		}
		s := b.of(i, c.Limit)
		s.level = clock.Spend(s.level, params(s.limit).Clock(op.now), c.Amount)
		s.debited += c.Amount
	}
}

// of returns the slot of the i-th charge's limit, which is usually the i-th.
func (b *Bucket) of(i int, l *store.Limit) *slot {
	if i < int(b.own) {
		if s := b.slot(i); s.limit == l || *s.limit == *l {
			return s
		}
	}
	return b.slot(b.find(l))
}

func (op *operation) levels(debits []store.Debit, bs []*Bucket, allowed bool) []store.Level {
	n := 0
	for i := range debits {
		n += len(debits[i].Charges)
	}
	ls := make([]store.Level, 0, n)
	for i, b := range bs {
		for j := range debits[i].Charges {
			c := &debits[i].Charges[j]
			s := b.of(j, c.Limit)
			p := params(s.limit)
			refused := !allowed && !c.Force && !p.Fits(s.level, p.Clock(op.now), c.Amount)
			if c.Shadow {
				refused = slices.Contains(op.left, c)
			}
			ls = append(ls, store.Level{Limit: s.limit, Level: s.level, Refused: refused})
		}
	}
	return ls
}

func (op *operation) undo(b *Bucket, d *store.Debit, w *waiting) {
	op.table.stamp(b, max(b.at, op.table.Now()))
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
	op.changed(b, Undone)
}

// sinceThen returns what a limit issued between two instants.
func sinceThen(p clock.Params, from, to int64) int64 {
	return clock.Outstanding(p.Clock(to), p.Clock(from))
}
