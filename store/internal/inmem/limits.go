package inmem

import (
	"fmt"
	"slices"
	"sync"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// follow updates the bucket's limits to those of the debit, if the debit's are newer, and adds its overrides.
// Outstanding tokens are kept throughout.
func (op *operation) follow(b *Bucket, d *store.Debit) error {
	if aligned(b, d.Charges) {
		return nil
	}
	own, overrides := 0, 0
	same := true
	for i := range d.Charges {
		l := d.Charges[i].Limit
		if l.Override {
			if b.find(l) < 0 {
				overrides++
			}
			continue
		}
		own++
		if at := b.find(l); at < 0 || at >= int(b.own) || *b.slot(at).limit != *l {
			same = false
		}
	}
	if own > 0 && !(same && own == int(b.own)) {
		if from, until := d.Phase.Bounds(); op.now < from || b.own > 0 && op.now >= until {
			return &store.PhaseError{At: clock.Time(op.now)}
		}
		if b.own > 0 && shortEpoch(d.Epoch) < b.epoch {
			return store.ErrStaleLimits
		}
		if err := op.replace(b, d, own); err != nil {
			return err
		}
		b.epoch = shortEpoch(d.Epoch)
	}
	if overrides > 0 {
		return op.addOverrides(b, d, overrides)
	}
	return nil
}

// aligned reports whether the charges are the bucket's limits in order, which is the common case.
func aligned(b *Bucket, charges []store.Charge) bool {
	if len(charges) != int(b.own) {
		return false
	}
	for i := range charges {
		have, want := b.slot(i).limit, charges[i].Limit
		if have != want && *have != *want {
			return false
		}
	}
	return true
}

// replace makes the limits of the own charges the limits in force. Removed limits stay after them, so that what they
// owe and have counted is not lost.
func (op *operation) replace(b *Bucket, d *store.Debit, own int) error {
	charges, old := d.Charges, b.slots()
	used := make([]bool, len(old))
	slots := make([]slot, 0, own+len(old))
	for i := range charges {
		l := charges[i].Limit
		if l.Override {
			continue
		}
		l, err := op.table.limits.intern(l)
		if err != nil {
			return err
		}
		s := slot{limit: l, level: l.Params().Fresh(op.now)}
		if at := b.find(l); at >= 0 {
			if used[at] {
				return fmt.Errorf("%w: limit %q twice in one debit", store.ErrInvalid, l.Name)
			}
			used[at] = true
			s = old[at]
			if s.holds() && !l.IsBalance() {
				return &store.KindError{Bucket: d.Bucket, Limit: l.Name, Held: true}
			}
			if *s.limit != *l && !l.IsSlots() {
				s.level = clock.Rebase(s.limit.Params(), l.Params(), s.level, op.now)
			}
			s.limit = l
		}
		slots = append(slots, s)
	}
	for i := range slots {
		for j := range i {
			if slots[i].limit.Name == slots[j].limit.Name {
				return fmt.Errorf("%w: limit %q twice in one debit", store.ErrInvalid, slots[i].limit.Name)
			}
		}
	}
	rest, counted, err := op.former(b, old, used, store.IsSeal(slots[0].limit))
	if err != nil {
		return err
	}
	slots = append(slots, rest...)
	op.table.stamp(b, op.now) // nothing is judged at an earlier time from now on, even if the take is refused
	if counted {
		op.restart(b, d.Bucket, slots)
	}
	b.setSlots(slots)
	b.own = uint16(own)
	return nil
}

// former returns the slots that are not used any more. If there are too many, it leaves out those that are full, and
// reports whether these have counted something. A seal keeps any number of them, because no other limits follow it.
func (op *operation) former(
	b *Bucket, old []slot, used []bool, seals bool,
) (rest []slot, counted bool, err error) {
	n := 0
	for i, s := range old {
		if !used[i] {
			rest = append(rest, s)
			if !s.limit.Override {
				n++
			}
		}
	}
	if n <= store.MaxFormer || seals {
		return rest, false, nil
	}
	rest = slices.DeleteFunc(rest, func(s slot) bool {
		full := !s.limit.Override && b.fullSlot(&s, op.now)
		if full {
			n--
			counted = counted || s.debited != 0 || s.returned != 0
		}
		return full
	})
	if n > store.MaxFormer {
		return nil, false, store.TooManyFormer(n)
	}
	return rest, counted, nil
}

// restart starts the counters of a bucket again, because some of them are about to be dropped, and hands them over.
func (op *operation) restart(b *Bucket, key store.Bucket, slots []slot) {
	t := op.table
	t.gone(b)
	st := b.rebirth(key, t.births.Add(1))
	if t.cfg.Retired != nil {
		op.retired = append(op.retired, st)
	}
	for i := range slots {
		slots[i].debited, slots[i].returned = 0, 0
	}
}

// addOverrides adds slots for overriding limits that the bucket does not have yet. Full overrides that the debit does
// not name are dropped; the counters are then handed over and restart.
func (op *operation) addOverrides(b *Bucket, d *store.Debit, added int) error {
	wanted := func(l *store.Limit) bool {
		return slices.ContainsFunc(d.Charges, func(c store.Charge) bool { return *c.Limit == *l })
	}
	kept := make([]slot, 0, b.Len()+added)
	inUse, counted := 0, false
	for _, s := range b.slots() {
		if s.limit.Override {
			if !wanted(s.limit) && s.full(op.now) {
				counted = counted || s.debited != 0 || s.returned != 0
				continue
			}
			inUse++
		}
		kept = append(kept, s)
	}
	if inUse+added > store.MaxOverrides {
		return store.ErrTooManyOverrides
	}
	for i := range d.Charges {
		l := d.Charges[i].Limit
		if !l.Override || b.find(l) >= 0 {
			continue
		}
		l, err := op.table.limits.intern(l)
		if err != nil {
			return err
		}
		kept = append(kept, slot{limit: l, level: l.Params().Fresh(op.now)})
	}
	op.table.stamp(b, op.now)
	if counted {
		op.restart(b, d.Bucket, kept)
	}
	b.setSlots(kept)
	return nil
}

// interner shares equal limits between buckets.
type interner struct {
	mu sync.Mutex
	m  map[store.Limit]*store.Limit
}

// maxInterned is the maximum size of the interner; beyond it, sharing starts over.
const maxInterned = 1 << 16

// intern returns the shared copy of a limit, or an error if the limit is out of range for the arithmetic.
func (in *interner) intern(l *store.Limit) (*store.Limit, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if p := in.m[*l]; p != nil {
		return p, nil
	}
	if l.Override && l.IsBalance() {
		return nil, fmt.Errorf("%w: limit %q: a request cannot bring a balance", store.ErrInvalid, l.Name)
	}
	if l.Override && l.IsSlots() {
		return nil, fmt.Errorf("%w: limit %q: a request cannot bring a limit of slots", store.ErrInvalid, l.Name)
	}
	if p := l.Params().Check(); p != nil {
		return nil, fmt.Errorf("%w: limit %q: %s %s", store.ErrInvalid, l.Name, p.Field, p.Reason)
	}
	if in.m == nil || len(in.m) >= maxInterned {
		in.m = make(map[store.Limit]*store.Limit)
	}
	c := *l
	in.m[c] = &c
	return &c, nil
}
