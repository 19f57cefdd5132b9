package inmem

import (
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

func (op *operation) settle(s *store.Settle, bs []*Bucket) (out store.Outcome, err error) {
	t := op.table
	op.now = t.Now()
	for _, b := range bs {
		if b != nil {
			op.now = max(op.now, b.at)
		}
	}
	if s.ID != "" {
		if err := t.settled.check(s.ID, s.Expires, clock.Time(op.now)); err != nil {
			return out, err
		}
	}
	for i, b := range bs {
		if b == nil {
			continue
		}
		if err := op.admitForced(b, &s.Debits[i]); err != nil {
			return out, err
		}
	}
	if s.ID != "" {
		purged, err := t.settled.add(s.ID, s.Expires, clock.Time(op.now))
		if err != nil {
			return out, err
		}
		if purged { // an expired ID must stay expired
			t.raise(op.now)
		}
	}
	for i, b := range bs {
		if b == nil {
			continue
		}
		t.stamp(b, op.now)
		out.Levels = op.apply(b, s.Debits[i].Charges, s.ID != "", out.Levels)
		op.changed(b, Settled)
	}
	if s.ID != "" && t.cfg.Journal != nil {
		op.tickets.add(t.cfg.Journal.Once(s.ID, s.Expires, bs))
	}
	out.Allowed, out.At = true, clock.Time(op.now)
	return out, nil
}

// apply applies the charges of a settle to a bucket and appends the levels that they leave. What a settle with an ID
// returns must not be spent before the ID is durable.
func (op *operation) apply(b *Bucket, charges []store.Charge, once bool, levels []store.Level) []store.Level {
	for i := range charges {
		c := &charges[i]
		at := b.find(c.Limit)
		if at < 0 {
			continue // returned to a limit that has filled up and is gone
		}
		s := b.slot(at)
		if c.Amount < 0 {
			s.level = clock.Credit(s.level, -c.Amount)
			s.returned -= c.Amount
			if once {
				b.Reserve().uncover(at, -c.Amount)
			}
		} else if c.Amount > 0 {
			s.level = clock.Spend(s.level, params(s.limit).Clock(op.now), c.Amount)
			s.debited += c.Amount
		}
		levels = append(levels, store.Level{Limit: s.limit, Level: s.level})
	}
	return levels
}

// admitForced adds slots for forced limits that the bucket does not have, and rejects amounts that overflow.
func (op *operation) admitForced(b *Bucket, d *store.Debit) error {
	for j := range d.Charges {
		c := &d.Charges[j]
		if c.Amount <= 0 {
			continue
		}
		at := b.find(c.Limit)
		if at < 0 {
			l, err := op.table.limits.intern(c.Limit)
			if err != nil {
				return err
			}
			at = b.Len()
			b.setSlots(append(b.slots(), slot{limit: l, level: params(l).Clock(op.now)}))
		}
		s := b.slot(at)
		if clock.Spend(s.level, params(s.limit).Clock(op.now), c.Amount) > clock.MaxLevel {
			return store.ErrOverflow
		}
	}
	return nil
}

// settledIDs remembers which settles were applied, until they expire.
type settledIDs struct {
	mu      sync.Mutex
	expires map[string]time.Time
	sweepAt int
}

// check returns the error that add would.
func (s *settledIDs) check(id string, expires, now time.Time) error {
	if !now.Before(expires) {
		return store.ErrExpired
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.expires[id]; ok {
		return store.ErrSettled
	}
	return nil
}

// add records an ID, and reports whether it purged expired ones.
func (s *settledIDs) add(id string, expires, now time.Time) (purged bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.expires[id]; ok {
		return false, store.ErrSettled
	}
	if s.expires == nil {
		s.expires = make(map[string]time.Time)
	}
	if len(s.expires) >= s.sweepAt {
		for id, e := range s.expires {
			if !now.Before(e) {
				delete(s.expires, id)
				purged = true
			}
		}
		s.sweepAt = max(1024, 2*len(s.expires))
	}
	s.expires[id] = expires
	return purged, nil
}
