package inmem

import (
	"hash/maphash"
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
		if err := t.settled.of(t.seed, s.ID).check(s.ID, s.Expires, clock.Time(op.now)); err != nil {
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
		if err := t.settled.of(t.seed, s.ID).add(s.ID, s.Expires, clock.Time(op.now)); err != nil {
			return out, err
		}
	}
	for i, b := range bs {
		if b != nil {
			t.stamp(b, op.now)
		}
		out.Levels = op.apply(b, s, &s.Debits[i], out.Levels)
		if b != nil {
			op.changed(b, Settled)
		}
	}
	if s.ID != "" && t.cfg.Journal != nil {
		op.tickets.add(t.cfg.Journal.Once(s.ID, s.Expires, bs))
	}
	out.Allowed, out.At = true, clock.Time(op.now)
	return out, nil
}

// apply applies the charges of a settle to a bucket and appends the levels that they leave. What a settle with an ID
// returns must not be spent before the ID is durable.
func (op *operation) apply(b *Bucket, y *store.Settle, d *store.Debit, levels []store.Level) []store.Level {
	for i := range d.Charges {
		c := &d.Charges[i]
		at := -1
		if b != nil {
			at = b.find(c.Limit)
		}
		if at < 0 { // returned to a limit that has filled up and is gone
			levels = append(levels, store.Level{
				Limit: c.Limit, Level: c.Limit.Params().Fresh(op.now), Refused: c.Hold != nil && c.Amount > 0,
			})
			continue
		}
		s := b.slot(at)
		if s.limit.IsSlots() {
			levels = append(levels, op.settleSlots(b, s, c))
			continue
		}
		level := store.Level{Limit: s.limit}
		if c.Amount < 0 {
			back := op.given(b, at, y, d, c)
			s.level = clock.Credit(s.level, back)
			s.returned += back
			if y.ID != "" {
				b.Reserve().uncover(at, back)
			}
		} else if c.Amount > 0 {
			n := op.owes(b, s, c)
			s.level = clock.Spend(s.level, s.limit.Params().Clock(op.now), n)
			s.debited += n
			level.Left = c.Amount - n
		}
		level.Level = s.level
		levels = append(levels, level)
	}
	return levels
}

// giveBack gives back what a lease holds, and returns by how much less is held.
func (op *operation) giveBack(b *Bucket, s *slot, amount int64, hold *store.Hold) int64 {
	h := b.held(s.limit.Name)
	if h == nil || hold == nil || h.Birth != hold.Birth {
		return 0
	}
	was := h.At(op.now, 0).Total()
	h.Held.Held = s.limit.Params().Slots(0).Release(h.Held.Held, op.now, amount, clock.Nanos(hold.End))
	return was - h.At(op.now, 0).Total()
}

// settleSlots applies a charge of a settle on a limit of slots.
func (op *operation) settleSlots(b *Bucket, s *slot, c *store.Charge) store.Level {
	level := store.Level{Limit: s.limit}
	switch {
	case c.Amount < 0:
		s.returned += op.giveBack(b, s, -c.Amount, c.Hold)
	case c.Amount > 0 && c.Hold == nil:
		n := op.owes(b, s, c)
		level.Left = c.Amount - n
		if n > 0 {
			s.debited += n
			hold := op.hold(b, s, n)
			level.Hold = &hold
		}
	case c.Amount > 0:
		level.Hold = op.renew(b, s, c)
		level.Refused = level.Hold == nil
	}
	level.Level = b.level(s, op.now)
	return level
}

func (op *operation) renew(b *Bucket, s *slot, c *store.Charge) *store.Hold {
	h := b.held(s.limit.Name)
	if h == nil || h.Birth != c.Hold.Birth {
		return nil
	}
	now, ok := s.limit.Params().Slots(0).Renew(h.Held.Held, op.now, c.Amount, clock.Nanos(c.Hold.End))
	if !ok {
		return nil
	}
	h.Held.Held = now
	s.level++
	hold := store.HoldOf(s.limit, h.Birth, h.End, op.now, 0)
	return &hold
}

// given returns how much a settle gives back to a limit.
func (op *operation) given(b *Bucket, at int, y *store.Settle, d *store.Debit, c *store.Charge) int64 {
	s := b.slot(at)
	p := s.limit.Params()
	switch reading := p.Clock(op.now); {
	case !p.Takes(c.Limit.Params()):
		return 0
	case y.Forgive:
		return min(-c.Amount, p.Debt(s.level, reading))
	case !c.StrictReturns():
		return -c.Amount
	case y.Since.IsZero() || *s.limit != *c.Limit:
		return 0
	case !c.Limit.Override && (at >= int(b.own) || b.epoch > shortEpoch(d.Epoch)): // not those of the debit
		return 0
	default:
		return clock.Unissued(-c.Amount, p.Clock(clock.Nanos(y.Since)), reading)
	}
}

// owes returns how much of a forced charge a limit is debited.
func (op *operation) owes(b *Bucket, s *slot, c *store.Charge) int64 {
	if c.MaxDebt <= 0 {
		return c.Amount
	}
	p := s.limit.Params()
	return p.Owable(b.level(s, op.now), p.Clock(op.now), c.Amount, c.MaxDebt)
}

// creates reports whether a charge of a settle creates a limit that the bucket does not have. A return does where
// absent does not mean full, and a renewal does not.
func creates(c *store.Charge) bool {
	return c.Amount > 0 && c.Hold == nil || c.Amount < 0 && c.Limit.IsBalance()
}

// admitForced adds the slots of [creates], and rejects amounts that overflow.
func (op *operation) admitForced(b *Bucket, d *store.Debit) error {
	for j := range d.Charges {
		c := &d.Charges[j]
		if !creates(c) {
			continue
		}
		at := b.find(c.Limit)
		if at < 0 {
			l, err := op.table.limits.intern(c.Limit)
			if err != nil {
				return err
			}
			at = b.Len()
			b.setSlots(append(b.slots(), slot{limit: l, level: l.Params().Fresh(op.now)}))
		}
		s := b.slot(at)
		if c.Amount < 0 {
			continue
		}
		level, reading := b.level(s, op.now), s.limit.Params().Clock(op.now)
		if clock.Spend(level, reading, op.owes(b, s, c)) > clock.MaxLevel {
			return store.ErrOverflow
		}
	}
	return nil
}

// settledShards remembers which settles were applied, by the hash of their IDs, so that all settles together never wait
// for a sweep.
type settledShards [shards]settledIDs

// of returns where an ID is remembered.
func (s *settledShards) of(seed maphash.Seed, id string) *settledIDs {
	return &s[maphash.String(seed, id)%shards]
}

// settledIDs remembers which settles were applied, until they expire.
type settledIDs struct {
	mu      sync.Mutex
	expires map[string]time.Time
	sweepAt int
	swept   time.Time // the latest time as of which expired ones were removed
}

// check returns the error that add would.
func (s *settledIDs) check(id string, expires, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkLocked(id, expires, now)
}

func (s *settledIDs) checkLocked(id string, expires, now time.Time) error {
	switch _, settled := s.expires[id]; {
	case !now.Before(expires):
		return store.ErrExpired
	case settled:
		return store.ErrSettled
	case !s.swept.Before(expires): // it may have been removed since now was read
		return store.ErrExpired
	}
	return nil
}

// add records an ID.
func (s *settledIDs) add(id string, expires, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLocked(id, expires, now); err != nil {
		return err
	}
	if s.expires == nil {
		s.expires = make(map[string]time.Time)
	}
	if len(s.expires) >= s.sweepAt {
		for id, e := range s.expires {
			if !now.Before(e) {
				delete(s.expires, id)
			}
		}
		if now.After(s.swept) {
			s.swept = now
		}
		s.sweepAt = max(firstSweep, 2*len(s.expires))
	}
	s.expires[id] = expires
	return nil
}
