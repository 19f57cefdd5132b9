package redis_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
)

// If two readers read the same buckets while these are debited and reset, each token is booked once.
func TestUsageTwoReaders(t *testing.T) {
	t.Parallel()
	b := bookkeeping(t, shared(t).Addr, store.Retention{})
	const takers, takes = 3, 120
	done := make(chan struct{})
	var readers, takersDone sync.WaitGroup
	for range 2 {
		l := b.s.Ledger(store.Retention{})
		readers.Go(func() {
			for over := false; !over; {
				select {
				case <-done:
					over = true
				default:
				}
				if p, err := l.Pass(context.Background()); err != nil || len(p.Bad) > 0 {
					t.Errorf("bad %v, error %v", p.Bad, err)
					return
				}
			}
		})
	}
	for n := range takers {
		takersDone.Go(func() {
			for i := range takes {
				d := one(fmt.Sprint("e", i%5), still(1_000_000), 1)
				if out, err := b.s.Take(context.Background(), store.Take{Debits: []store.Debit{d}}); err != nil || !out.Allowed {
					t.Errorf("allowed %t, error %v", out.Allowed, err)
				}
				if i%20 == n {
					if err := b.s.Forget(context.Background(), d.Bucket); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	takersDone.Wait()
	close(done)
	readers.Wait()
	pass(t, b.l)
	for _, of := range []store.UsageOf{store.OfBucket, store.OfNamespace} {
		if got := b.all(of); got["rpm"] != takers*takes {
			t.Errorf("%c: booked %v of %d", of, got, takers*takes)
		}
	}
}

// Of several readers only one reads. When it ends, another takes over.
func TestUsageReaderLease(t *testing.T) {
	t.Parallel()
	b := bookkeeping(t, shared(t).Addr, store.Retention{})
	owner := func() bool { return shared(t).do(t, "EXISTS", b.cfg.Prefix+":{_}:ur") == "1" }
	run := func(l *redis.Ledger) (stop func() error) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx, 10*time.Millisecond, slog.New(slog.DiscardHandler)) }()
		return func() error { cancel(); return <-ended }
	}
	one, two := run(b.l), run(b.s.Ledger(store.Retention{}))
	b.take("alice", still(100), 1)
	booked := func(n int64) func() bool { return func() bool { return b.all(store.OfNamespace)["rpm"] == n } }
	eventually(t, "the debit is booked", booked(1))
	if err := one(); err != nil {
		t.Error(err)
	}
	b.take("alice", still(100), 1)
	eventually(t, "the next debit is booked", booked(2))
	if err := two(); err != nil || owner() {
		t.Errorf("the last reader has left with %v, and holds its lease: %t", err, owner())
	}
}

// A reader that cannot start reports why.
func TestUsageReaderBegins(t *testing.T) {
	t.Parallel()
	b := bookkeeping(t, shared(t).Addr, store.Retention{})
	srv := shared(t)
	srv.do(t, "DEL", b.cfg.Prefix+":{_}:un")
	srv.do(t, "SET", b.cfg.Prefix+":{_}:un", "x")
	err := b.l.Run(t.Context(), 0, slog.New(slog.DiscardHandler))
	if _, ok := errors.AsType[*store.Error](err); !ok || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("error %v, want one of the store", err)
	}
}

// A pass begins at the turn of each hour. Passes are rarer if they take long, but never so rare that buckets go unread.
func TestUsagePause(t *testing.T) {
	t.Parallel()
	l := open(t, redis.Config{Address: "redis://" + shared(t).Addr, CallTimeout: time.Minute}).Ledger(store.Retention{})
	const s, m = time.Second, time.Minute
	for _, c := range []struct {
		took, toHour, want time.Duration
	}{{s / 100, 50 * m, 10 * s}, {2 * s, 50 * m, m}, {s / 100, 3 * s, 3 * s}, {5 * m, 50 * m, 15 * m}, {0, 60 * m, 10 * s}} {
		now := evening.Truncate(time.Hour).Add(time.Hour - c.toHour)
		if got := l.Pause(10*s, c.took, now); got != c.want {
			t.Errorf("after %v, %v before the turn of the hour: %v, want %v", c.took, c.toHour, got, c.want)
		}
	}
}
