package configflow

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/policy/lastgood"
	"github.com/weirlimits/weir/store"
)

// Late is a store that could not be opened, and is retried until it can. Until then each call fails, as for an
// unavailable store, and callers use the last known configuration. Whether the store keeps usage is unknown, so Late
// counts as one that does not.
type Late struct {
	open  func() (store.Store, error)
	log   *slog.Logger
	inner atomic.Pointer[store.Store]
	why   atomic.Pointer[error]
	stop  context.CancelFunc
	ended sync.WaitGroup
	came  chan struct{} // closed once there is an inner store
}

var (
	_ store.Store    = (*Late)(nil)
	_ store.Epochs   = (*Late)(nil)
	_ store.Watcher  = (*Late)(nil)
	_ store.Measured = (*Late)(nil)
)

// OpenLate returns a Late for a store that open failed to open with error why.
func OpenLate(open func() (store.Store, error), why error, log *slog.Logger) *Late {
	ctx, stop := context.WithCancel(context.Background())
	l := &Late{open: open, log: log, stop: stop, came: make(chan struct{})}
	l.why.Store(&why)
	l.ended.Go(func() { l.try(ctx) })
	return l
}

func (l *Late) try(ctx context.Context) {
	for pause := time.Second; sleep(ctx, pause/2+rand.N(pause/2)); pause = min(2*pause, 10*time.Second) {
		st, err := l.open()
		if err != nil {
			l.why.Store(&err)
			continue
		}
		l.inner.Store(&st)
		close(l.came)
		l.log.InfoContext(ctx, "the store answers")
		return
	}
}

// late calls f with the store, if there is one.
func late[R any](l *Late, op string, f func(store.Store) (R, error)) (none R, err error) {
	if st := l.inner.Load(); st != nil {
		return f(*st)
	}
	return none, &store.Error{Op: op, Err: *l.why.Load(), Hint: "the store has not answered since the start"}
}

// Take implements store.Store.
func (l *Late) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	return late(l, "take", func(st store.Store) (store.Outcome, error) { return st.Take(ctx, t) })
}

// Settle implements store.Store.
func (l *Late) Settle(ctx context.Context, s store.Settle) (store.Outcome, error) {
	return late(l, "settle", func(st store.Store) (store.Outcome, error) { return st.Settle(ctx, s) })
}

// Credit implements store.Store.
func (l *Late) Credit(ctx context.Context, c store.Credit) (store.Credited, error) {
	return late(l, "credit", func(st store.Store) (store.Credited, error) { return st.Credit(ctx, c) })
}

// ForgetCredits implements store.Store.
func (l *Late) ForgetCredits(ctx context.Context, b store.Bucket, limit string) error {
	_, err := late(l, "forget", func(st store.Store) (none struct{}, err error) {
		return none, st.ForgetCredits(ctx, b, limit)
	})
	return err
}

// Peek implements store.Store.
func (l *Late) Peek(ctx context.Context, buckets ...store.Bucket) (store.Snapshot, error) {
	return late(l, "peek", func(st store.Store) (store.Snapshot, error) { return st.Peek(ctx, buckets...) })
}

// Buckets implements store.Store.
func (l *Late) Buckets(ctx context.Context, q store.BucketQuery) (store.BucketPage, error) {
	return late(l, "buckets", func(st store.Store) (store.BucketPage, error) { return st.Buckets(ctx, q) })
}

// Get implements store.Store.
func (l *Late) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	return late(l, "get", func(st store.Store) (store.Got, error) { return st.Get(ctx, keys...) })
}

// List implements store.Store.
func (l *Late) List(ctx context.Context, q store.Query) (store.Page, error) {
	return late(l, "list", func(st store.Store) (store.Page, error) { return st.List(ctx, q) })
}

// Forget implements store.Store.
func (l *Late) Forget(ctx context.Context, buckets ...store.Bucket) error {
	_, err := late(l, "forget", func(st store.Store) (none struct{}, err error) {
		return none, st.Forget(ctx, buckets...)
	})
	return err
}

// Commit implements store.Store.
func (l *Late) Commit(ctx context.Context, writes ...store.Write) error {
	_, err := late(l, "commit", func(st store.Store) (none struct{}, err error) {
		return none, st.Commit(ctx, writes...)
	})
	return err
}

// Epochs implements store.Epochs.
func (l *Late) Epochs(ctx context.Context, namespaces ...string) ([]uint64, error) {
	return late(l, "get", func(st store.Store) ([]uint64, error) { return lastgood.Epochs(ctx, st, namespaces...) })
}

// Watch implements store.Watcher, once the store answers. If the store announces nothing, Watch calls ready and waits
// for ctx to end.
func (l *Late) Watch(ctx context.Context, ready func(), changed func(store.Changes)) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-l.came:
	}
	if w, ok := (*l.inner.Load()).(store.Watcher); ok {
		return w.Watch(ctx, ready, changed)
	}
	ready()
	<-ctx.Done()
	return ctx.Err()
}

// Measures implements store.Measured.
func (l *Late) Measures() []store.Measure {
	if st := l.inner.Load(); st != nil {
		if m, ok := (*st).(store.Measured); ok {
			return m.Measures()
		}
	}
	return nil
}

// Close implements store.Store.
func (l *Late) Close() error {
	l.stop()
	l.ended.Wait()
	if st := l.inner.Load(); st != nil {
		return (*st).Close()
	}
	return nil
}
