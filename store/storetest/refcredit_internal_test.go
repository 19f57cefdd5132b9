package storetest

import (
	"context"
	"maps"
	"runtime"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// creditOf is what a credit is known by.
type creditOf struct {
	bucket    store.Bucket
	limit, id string
}

func full(m *store.LimitState, now int64) bool {
	if m.Limit.IsBalance() {
		return m.Level == 0
	}
	return m.Level <= m.Limit.Params().Clock(now)
}

func (s *reference) Credit(ctx context.Context, c store.Credit) (out store.Credited, err error) {
	if err := s.ready(ctx); err != nil {
		return out, err
	}
	if err := c.Check(); err != nil {
		return out, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.sweep(now)
	of := creditOf{c.Bucket, c.Limit, c.ID}
	if s.has("credit ids of all tenants") {
		of = creditOf{id: c.ID}
	}
	was := s.credits[of]
	if was != 0 && was != c.Amount && !s.has("any amount") {
		return out, &store.CreditError{ID: c.ID, Have: was, Want: c.Amount}
	}
	out = store.Credited{At: clock.Time(now), Before: was != 0}
	if s.has("looks before it credits") {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	b := s.find(c.Bucket, true, now)
	m := s.meter(b, &store.Limit{Name: c.Limit})
	switch {
	case m == nil:
		m = &store.LimitState{Limit: store.Balance(c.Limit)}
		b.meters = append(b.meters, m)
	case !m.Limit.IsBalance() && out.Before:
		return out, nil
	case !m.Limit.IsBalance() && !s.has("credits a rate"):
		return out, &store.KindError{Bucket: c.Bucket, Limit: c.Limit}
	}
	if !out.Before || s.has("credits again") {
		level, err := c.Apply(m.Level)
		if err != nil && s.has("an overflow uses up the id") {
			s.credits[of] = c.Amount
		}
		if err != nil {
			return out, err
		}
		m.Level, s.credits[of] = level, c.Amount
	}
	out.Level = m.Level
	return out, nil
}

func (s *reference) ForgetCredits(ctx context.Context, b store.Bucket, limit string) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.credits, func(of creditOf, _ int64) bool { return of.bucket == b && of.limit == limit })
	return nil
}
