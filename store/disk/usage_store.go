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
	obs, err := ledger.Observations(readings)
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
		if err := l.update(func(tx ledger.Tx) error { return ledger.Apply(tx, obs[:n], l.parent) }); err != nil {
			return err
		}
		obs = obs[n:]
	}
	return nil
}

// Usage implements [store.Usage].
func (s *Store) Usage(ctx context.Context, query store.UsageQuery) (page store.UsagePage, err error) {
	err = s.look(ctx, query.Window, query.Known || query.After != "", func(tx ledger.Tx) error {
		page, err = ledger.List(tx, &query)
		return err
	})
	return page, err
}

func (s *Store) look(ctx context.Context, w store.Window, known bool, f func(ledger.Tx) error) error {
	if err := s.ready(ctx, nil); err != nil {
		return err
	}
	if err := ledger.Check(w); err != nil {
		return err
	}
	if s.usage == nil {
		return f(new(ledger.Mem))
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
		err := l.update(func(tx ledger.Tx) (err error) {
			more, err = ledger.Forget(tx, namespace, 2*usageChunk)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

var _ store.Usage = (*Store)(nil)
