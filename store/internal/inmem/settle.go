package inmem

import (
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Settle returns and forces tokens in memory. Wait for the tickets before answering.
func (t *Table) Settle(s store.Settle) (store.Outcome, Tickets, error) {
	if err := checkSettle(s); err != nil {
		return store.Outcome{}, Tickets{}, err
	}
	bs, err := t.lockSettle(s.Debits)
	if err != nil {
		return store.Outcome{}, Tickets{}, err
	}
	var op operation
	out, err := op.settle(t, &s, bs)
	for _, b := range bs {
		if b != nil {
			b.mu.Unlock()
		}
	}
	return out, op.tickets, err
}

func (op *operation) settle(t *Table, s *store.Settle, bs []*Bucket) (out store.Outcome, err error) {
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
		if err := t.admitForced(b, &s.Debits[i], op.now); err != nil {
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
		op.changed(t, b, Settled)
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
func (t *Table) admitForced(b *Bucket, d *store.Debit, now int64) error {
	for j := range d.Charges {
		c := &d.Charges[j]
		if c.Amount <= 0 {
			continue
		}
		at := b.find(c.Limit)
		if at < 0 {
			l, err := t.limits.intern(c.Limit)
			if err != nil {
				return err
			}
			at = b.len()
			b.setSlots(append(b.slots(), slot{limit: l, level: params(l).Clock(now)}))
		}
		s := b.slot(at)
		if clock.Spend(s.level, params(s.limit).Clock(now), c.Amount) > clock.MaxLevel {
			return store.ErrOverflow
		}
	}
	return nil
}

// lockSettle locks the existing buckets, and creates those on which something is forced.
func (t *Table) lockSettle(debits []store.Debit) ([]*Bucket, error) {
	if len(debits) == 1 {
		b, err := t.lock(debits[0].Bucket, forcing(&debits[0]))
		return []*Bucket{b}, err
	}
	return t.lockAll(debits, nil, forcing)
}

func forcing(d *store.Debit) bool {
	for j := range d.Charges {
		if d.Charges[j].Amount > 0 {
			return true
		}
	}
	return false
}

func checkSettle(s store.Settle) error {
	if len(s.Debits) == 0 && s.ID == "" || s.ID != "" && s.Expires.IsZero() {
		return store.ErrInvalid
	}
	for i := range s.Debits {
		for j := range s.Debits[i].Charges {
			if c := &s.Debits[i].Charges[j]; c.Limit == nil || c.Force || c.Shadow || c.Amount == -1<<63 {
				return store.ErrInvalid
			}
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
