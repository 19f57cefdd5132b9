package inmem

import (
	"slices"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Take decides a take in memory. Wait for the tickets before answering.
func (t *Table) Take(take store.Take) (store.Outcome, Tickets, error) {
	if err := checkTake(take.Debits); err != nil {
		return store.Outcome{}, Tickets{}, err
	}
	var room [4]*Bucket
	bs := room[:1]
	if len(take.Debits) == 1 {
		b, err := t.lock(take.Debits[0].Bucket, true)
		if err != nil {
			return store.Outcome{}, Tickets{}, err
		}
		bs[0] = b
	} else {
		var err error
		if bs, err = t.lockAll(take.Debits, room[:], always); err != nil {
			return store.Outcome{}, Tickets{}, err
		}
	}
	var op operation
	out, err := op.take(t, &take, bs)
	for _, b := range bs {
		b.mu.Unlock()
	}
	t.retire(op.retired)
	return out, op.tickets, err
}

// operation is a change of some locked buckets.
type operation struct {
	now     int64
	tickets Tickets
	retired []store.State
	left    []*store.Charge // charges of a take in shadow that do not fit
}

func (op *operation) take(t *Table, take *store.Take, bs []*Bucket) (out store.Outcome, err error) {
	op.now = t.Now()
	for _, b := range bs {
		op.now = max(op.now, b.at)
	}
	allowed := true
	for i := range bs {
		if err := t.follow(bs[i], &take.Debits[i], op.now, &op.retired); err != nil {
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
			op.charge(t, b, take.Debits[i].Charges)
			op.changed(t, b, Debited)
		}
		op.tickets.remember(bs, op)
	}
	out.Allowed, out.At = allowed, clock.Time(op.now)
	out.Levels = op.levels(take.Debits, bs, allowed)
	return out, nil
}

func (op *operation) changed(t *Table, b *Bucket, c Change) {
	if t.cfg.Journal != nil {
		op.tickets.add(t.cfg.Journal.Changed(b, c))
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

func (op *operation) charge(t *Table, b *Bucket, charges []store.Charge) {
	t.stamp(b, op.now)
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

// lockAll locks the buckets of several debits in the order of their keys, and returns them in the order of the
// debits, in room if it suffices. A bucket that does not exist and must not be created is nil.
func (t *Table) lockAll(debits []store.Debit, room []*Bucket, create func(*store.Debit) bool) ([]*Bucket, error) {
	order := make([]int, len(debits))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return debits[i].Bucket.Compare(debits[j].Bucket) })
	for n := 1; n < len(order); n++ {
		if debits[order[n-1]].Bucket == debits[order[n]].Bucket {
			return nil, store.ErrDuplicateBucket
		}
	}
	bs := room
	if len(debits) > len(bs) {
		bs = make([]*Bucket, len(debits))
	}
	bs = bs[:len(debits)]
	for {
		// Hold no bucket locks while looking up or creating buckets, which takes the shards' locks.
		for i := range debits {
			var err error
			if bs[i], err = t.get(debits[i].Bucket, create(&debits[i])); err != nil {
				return nil, err
			}
		}
		moved := false
		for _, i := range order {
			if b := bs[i]; b != nil {
				b.mu.Lock()
				if b.dead() {
					moved = true
				}
			}
		}
		// A missing bucket may have been born before the others were locked. Holders of a shard's lock never wait for
		// a bucket's, so has may be called here.
		for i := range debits {
			moved = moved || bs[i] == nil && t.has(debits[i].Bucket)
		}
		if !moved {
			return bs, nil
		}
		for _, b := range bs {
			if b != nil {
				b.mu.Unlock()
			}
		}
	}
}

func checkTake(debits []store.Debit) error {
	if len(debits) == 0 {
		return store.ErrInvalid
	}
	for i := range debits {
		if len(debits[i].Charges) == 0 {
			return store.ErrInvalid
		}
		for j := range debits[i].Charges {
			if c := &debits[i].Charges[j]; c.Limit == nil || c.Amount < 0 || c.Force && c.Shadow {
				return store.ErrInvalid
			}
		}
	}
	return nil
}

func always(*store.Debit) bool { return true }
