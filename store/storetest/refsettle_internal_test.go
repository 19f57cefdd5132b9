package storetest

import (
	"cmp"
	"context"
	"runtime"
	"slices"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

func (s *reference) Settle(ctx context.Context, st store.Settle) (out store.Outcome, err error) {
	if err := s.ready(ctx); err != nil {
		return out, err
	}
	if err := st.CheckSize(); err != nil {
		return out, err
	}
	if err := store.RefuseSlots(st.Debits); err != nil && !s.has("any limit") {
		return out, err
	}
	before, after := s.cutting()
	if before != nil {
		return out, before
	}
	defer func() { err = cmp.Or(err, after) }()
	if duplicate(st.Debits) {
		return out, store.ErrDuplicateBucket
	}
	for _, d := range st.Debits {
		if st.Forgive && slices.ContainsFunc(d.Charges, func(c store.Charge) bool { return c.Amount >= 0 }) {
			return out, store.ErrInvalid
		}
		if slices.ContainsFunc(d.Charges, func(c store.Charge) bool { return c.Shadow }) && !s.has("any shadow") {
			return out, store.ErrInvalid
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.sweep(now)
	out = store.Outcome{Allowed: true, At: clock.Time(now)}
	if st.ID != "" && out.At.After(st.Expires) && !s.has("never expires") {
		return store.Outcome{}, store.ErrExpired
	}
	if _, ok := s.settled[st.ID]; ok && !s.has("settles again") {
		return store.Outcome{}, store.ErrSettled
	}
	if s.has("looks before it settles") {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	for _, d := range st.Debits {
		for _, c := range d.Charges {
			level := int64(0)
			if b := s.find(d.Bucket, false, now); b != nil && s.meter(b, c.Limit) != nil {
				level = s.meter(b, c.Limit).Level
			}
			if c.Amount > 0 && c.MaxDebt == 0 && clock.Spend(level, c.Limit.Params().Clock(now), c.Amount) > clock.MaxLevel {
				return store.Outcome{}, store.ErrOverflow
			}
		}
	}
	if st.ID != "" {
		s.settled[st.ID] = st.Expires
	}
	for _, d := range st.Debits {
		for _, c := range d.Charges {
			level := store.Level{Limit: c.Limit, Level: c.Limit.Params().Fresh(now)}
			if m, left := s.settle(st, d, c, now); m != nil {
				level = store.Level{Limit: m.Limit, Level: m.Level, Left: left}
			}
			out.Levels = append(out.Levels, level)
		}
	}
	return out, nil
}

func (s *reference) strict(c store.Charge) bool {
	return c.Strict || reckon.Quota(c.Limit) && !s.has("gives back after the window")
}

func (s *reference) settle(y store.Settle, d store.Debit, c store.Charge, now int64) (_ *store.LimitState, left int64) {
	creates := c.Amount > 0 || c.Limit.IsBalance() && !s.has("a return to nothing")
	b := s.find(d.Bucket, creates || s.has("a return makes a bucket"), now)
	if b == nil {
		return nil, 0
	}
	b.at = now
	m := s.meter(b, c.Limit)
	if m == nil {
		if !creates {
			return nil, 0
		}
		m = &store.LimitState{Limit: c.Limit, Level: c.Limit.Params().Fresh(now)}
		b.meters = append(b.meters, m)
	}
	if s.has("a settle changes limits") {
		m.Limit = c.Limit
	}
	reading := m.Limit.Params().Clock(now)
	debt := clock.Outstanding(m.Level, reading) - m.Limit.Burst
	switch {
	case c.Amount < 0 && !m.Limit.Params().Takes(c.Limit.Params()) && !s.has("gives back after the window"):
		c.Amount = 0
	case y.Forgive && !s.has("forgives what is spent"):
		c.Amount = -max(0, debt)
	case s.strict(c) && c.Amount < 0 && !s.has("gives back what was issued"):
		issued := reading - m.Limit.Params().Clock(clock.Nanos(y.Since))
		if c.Amount = min(0, c.Amount+issued); y.Since.IsZero() || *c.Limit != *m.Limit || (d.Epoch < b.epoch || len(b.inUse) == 0) && !s.has("any epoch") {
			c.Amount = 0
		}
	case c.Amount > 0 && c.MaxDebt > 0 && !s.has("any debt"):
		left = c.Amount - max(0, min(c.Amount, c.MaxDebt-debt))
		c.Amount -= left
	}
	switch {
	case c.Amount > 0:
		m.Level = clock.Spend(m.Level, reading, c.Amount)
		m.Debited += c.Amount
	case s.has("loses a return") && c.Amount < 0 && s.returns%2 == 0:
		s.returns++
	default:
		s.returns++
		m.Level = clock.Credit(m.Level, -c.Amount)
		if s.has("gives back more than there was") && m.Level < reading {
			m.Limit = &store.Limit{Name: m.Limit.Name, Amount: m.Limit.Amount, Period: m.Limit.Period, Burst: m.Limit.Burst + reading - m.Level, Override: m.Limit.Override}
		}
		if m.Returned -= c.Amount; s.has("counts net") {
			m.Returned += c.Amount
			m.Debited += c.Amount
		}
	}
	return m, left
}
