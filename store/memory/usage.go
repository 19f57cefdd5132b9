package memory

import (
	"context"
	"sync"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/inmem"
	"github.com/weirlimits/weir/store/internal/ledger"
)

// meter keeps usage. It takes in what buckets have counted when a query asks, and when many readings wait.
type meter struct {
	queue     inmem.Meter
	retention store.Retention
	max       int

	mu      sync.Mutex
	mem     ledger.Mem
	read    int64 // buckets that have not changed since this time were read
	expired int64 // the hour of the last search for expired windows
	busy    bool
}

// slack is how far a bucket's time may lie before the moment of its change. A bucket that exceeds it is read when it
// changes again or goes.
const slack = int64(2e9)

// Count implements [store.Usage].
func (s *Store) Count(ctx context.Context, readings ...store.Reading) error {
	if err := s.ready(ctx); err != nil || s.usage == nil {
		return err
	}
	obs, err := ledger.Observations(readings)
	if err != nil {
		return err
	}
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	return ledger.Apply(&s.usage.mem, obs, s.parent)
}

// Usage implements [store.Usage].
func (s *Store) Usage(ctx context.Context, query store.UsageQuery) (page store.UsagePage, err error) {
	err = s.look(ctx, query.Window, query.Known || query.After != "", func(tx ledger.Tx) error {
		page, err = ledger.List(tx, &query)
		return err
	})
	return page, err
}

// ForgetUsage implements [store.Usage].
func (s *Store) ForgetUsage(ctx context.Context, namespace string) error {
	return s.look(ctx, store.Hourly, false, func(tx ledger.Tx) error {
		for {
			if more, err := ledger.Forget(tx, namespace, 10_000); !more || err != nil {
				return err
			}
		}
	})
}

// look calls f with all usage until now or, if known is set, with what has been taken in so far.
func (s *Store) look(ctx context.Context, w store.Window, known bool, f func(ledger.Tx) error) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if err := ledger.Check(w); err != nil {
		return err
	}
	if s.usage == nil {
		return f(new(ledger.Mem))
	}
	u := s.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	if known {
		return f(&u.mem)
	}
	if err := s.drain(); err != nil {
		return err
	}
	since := u.read
	u.read = s.table.Now() - slack
	err := s.table.Read(since, func(obs []ledger.Observation) error { return ledger.Apply(&u.mem, obs, s.parent) })
	if err != nil {
		return err
	}
	return f(&u.mem)
}

// relieve takes in the waiting readings if there are many.
func (s *Store) relieve() {
	if s.usage == nil || !s.usage.queue.High() || !s.usage.mu.TryLock() {
		return
	}
	u := s.usage
	if u.busy {
		u.mu.Unlock()
		return
	}
	u.busy = true
	u.mu.Unlock()
	go func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		_ = s.drain() // in memory nothing fails
		u.busy = false
	}()
}

// drain takes in the waiting readings and removes windows beyond the bounds. The ledger is locked.
func (s *Store) drain() error {
	u := s.usage
	if err := ledger.Apply(&u.mem, u.queue.Drain(), s.parent); err != nil {
		return err
	}
	now := clock.Time(s.table.Now())
	if m := ledger.MinuteOf(now) / 60; m != u.expired {
		u.expired = m
		for {
			more, err := ledger.Expire(&u.mem, u.retention, now, true, 10_000)
			if err != nil {
				return err
			}
			if !more {
				break
			}
		}
	}
	for u.mem.Len() > u.max && ledger.Shrink(&u.mem, now) {
		continue
	}
	return nil
}

func (s *Store) parent(namespace, entity string) string {
	return s.catalog.Parent(store.Key{Namespace: namespace, Kind: store.KindEntity, ID: entity})
}
