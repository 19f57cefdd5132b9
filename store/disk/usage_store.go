package disk

import (
	"context"

	bolt "go.etcd.io/bbolt"

	"github.com/weirlimits/weir/internal/usage"
	"github.com/weirlimits/weir/store"
)

// boltTx adapts a bbolt bucket to [usage.Tx].
type boltTx struct{ *bolt.Bucket }

// Cursor implements [usage.Tx].
func (b boltTx) Cursor() usage.Cursor { return b.Bucket.Cursor() }

// Count implements [store.Usage].
func (s *Store) Count(ctx context.Context, readings ...store.Reading) error {
	if err := s.ready(ctx, nil); err != nil || s.usage == nil {
		return err
	}
	obs, err := usage.Observations(readings)
	if err != nil {
		return err
	}
	l := s.usage
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return store.ErrClosed
	}
	for len(obs) > 0 {
		n := min(len(obs), usageChunk)
		if err := l.update(func(tx usage.Tx) error { return usage.Apply(tx, obs[:n], l.parent) }); err != nil {
			return err
		}
		obs = obs[n:]
	}
	return nil
}

// Usage implements [store.Usage].
func (s *Store) Usage(ctx context.Context, query store.UsageQuery) (page store.UsagePage, err error) {
	err = s.look(ctx, query.Window, query.Known || query.After != "", func(tx usage.Tx) error {
		page, err = usage.List(tx, &query)
		return err
	})
	return page, err
}

func (s *Store) look(ctx context.Context, w store.Window, known bool, f func(usage.Tx) error) error {
	if err := s.ready(ctx, nil); err != nil {
		return err
	}
	if err := usage.Check(w); err != nil {
		return err
	}
	if s.usage == nil {
		return f(new(usage.Mem))
	}
	s.journal.settled(ctx)
	return s.usage.view(known, f)
}

// ForgetUsage implements [store.Usage].
func (s *Store) ForgetUsage(ctx context.Context, namespace string) error {
	if err := s.ready(ctx, nil); err != nil || s.usage == nil {
		return err
	}
	l := s.usage
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.takeIn(true); err != nil || l.db == nil {
		return err
	}
	for more := true; more; {
		err := l.update(func(tx usage.Tx) (err error) {
			more, err = usage.Forget(tx, namespace, 2*usageChunk)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

var _ store.Usage = (*Store)(nil)
