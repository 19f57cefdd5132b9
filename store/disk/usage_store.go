package disk

import (
	"context"

	bolt "go.etcd.io/bbolt"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/ledger"
)

// boltTx adapts a bbolt bucket to [ledger.Tx].
type boltTx struct{ *bolt.Bucket }

// Cursor implements [ledger.Tx].
func (b boltTx) Cursor() ledger.Cursor { return b.Bucket.Cursor() }

// Count implements [store.Usage].
func (s *Store) Count(ctx context.Context, readings ...store.Reading) error {
	if err := s.ready(ctx, nil); err != nil || s.usage == nil {
		return err
	}
	l := s.usage
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return store.ErrClosed
	}
	return l.Usage.Count(readings)
}

// Usage implements [store.Usage].
func (s *Store) Usage(ctx context.Context, query store.UsageQuery) (page store.UsagePage, err error) {
	if err := s.ready(ctx, nil); err != nil {
		return page, err
	}
	if err := ledger.Check(query.Window); err != nil {
		return page, err
	}
	if s.usage == nil {
		return page, store.ErrNotMetered
	}
	s.journal.settled(ctx)
	err = s.usage.view(query.Known || query.After != "", func(tx ledger.Tx) error {
		page, err = ledger.List(tx, &query)
		return err
	})
	return page, err
}

// ForgetUsage implements [store.Usage].
func (s *Store) ForgetUsage(ctx context.Context, namespace string) error {
	if err := s.ready(ctx, nil); err != nil || s.usage == nil {
		return err
	}
	l := s.usage
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.takeIn(); err != nil || l.db == nil {
		return err
	}
	return l.Forget(namespace)
}

var _ store.Usage = (*Store)(nil)
