package memory

import (
	"context"
	"slices"
	"sync"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/inmem"
	"github.com/weirlimits/weir/store/internal/ledger"
)

// meter keeps usage. It takes in what buckets have counted at a query, and when many readings wait.
type meter struct {
	inmem.Usage

	max int
	mu  sync.Mutex
	mem ledger.Mem
}

// Count implements [store.Usage].
func (s *Store) Count(ctx context.Context, readings ...store.Reading) error {
	if err := s.ready(ctx); err != nil || s.usage == nil {
		return err
	}
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	return s.usage.Usage.Count(readings)
}

// Usage implements [store.Usage].
func (s *Store) Usage(ctx context.Context, query store.UsageQuery) (store.UsagePage, error) {
	if err := s.ready(ctx); err != nil {
		return store.UsagePage{}, err
	}
	if s.usage == nil {
		return store.UsagePage{}, store.ErrNotMetered
	}
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	if !query.Known && query.After == "" {
		if err := s.usage.takeIn(true); err != nil {
			return store.UsagePage{}, err
		}
	}
	return ledger.List(&s.usage.mem, &query)
}

// ForgetUsage implements [store.Usage].
func (s *Store) ForgetUsage(ctx context.Context, namespace string) error {
	if err := s.ready(ctx); err != nil || s.usage == nil {
		return err
	}
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	if err := s.usage.takeIn(true); err != nil {
		return err
	}
	return s.usage.Forget(namespace)
}

// relieve takes in the waiting readings if there are many.
func (s *Store) relieve() {
	if u := s.usage; u != nil && u.High() && u.mu.TryLock() {
		go func() {
			defer u.mu.Unlock()
			_ = u.takeIn(false) // in memory nothing fails
		}()
	}
}

// takeIn is [inmem.Usage.TakeIn], and removes windows and accounts past their retention. The meter is locked.
func (u *meter) takeIn(buckets bool) error {
	if err := u.TakeIn(buckets); err != nil {
		return err
	}
	return u.Expire(true)
}

// perBucket is the most windows and accounts that a bucket adds, with those of its entity, its resource and parents.
const perBucket = 16

// fit makes room for readings by removing the oldest windows, and leaves out those of new buckets for which there is
// none: windows that are not over stay, so otherwise invented names would take all memory.
func (u *meter) fit(readings []ledger.Observation) []ledger.Observation {
	for u.mem.Len() > u.max-min(u.max/8, perBucket*len(readings)) && ledger.Shrink(&u.mem, clock.Time(u.Table.Now())) {
		continue
	}
	room := u.max - u.mem.Len()
	return slices.DeleteFunc(slices.Clone(readings), func(o ledger.Observation) bool {
		if ledger.Known(&u.mem, &o) {
			return false
		}
		room -= perBucket
		return room < 0
	})
}
