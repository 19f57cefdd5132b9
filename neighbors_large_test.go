package weir_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	fallback "github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/store"
)

// Many requests at once have time in proportion to their number. If that is not enough, they may themselves be the
// reason, and are not admitted.
func TestLargeRequest(t *testing.T) {
	t.Parallel()
	each := time.Millisecond // for each bucket
	between(t, func(context.Context, string, string) error { return nil }, func(n *neighbors) {
		take := n.fake.take
		n.fake.does(func(f *fakeStore) {
			f.take = func(ctx context.Context, all store.Take) (store.Outcome, error) {
				if err := away(ctx, time.Duration(len(all.Debits))*each); err != nil {
					return store.Outcome{}, err
				}
				return take(ctx, all)
			}
		})
		for _, tt := range []struct {
			n        int
			each     time.Duration
			degraded bool
			err      error
		}{
			{50, time.Millisecond, false, nil},
			{500, 500 * time.Microsecond, false, nil},
			{8, 15 * time.Millisecond, true, nil},
			{9, 15 * time.Millisecond, true, weir.ErrOverloaded},
			{100, 2 * time.Millisecond, true, weir.ErrOverloaded},
			{101, 2 * time.Millisecond, true, weir.ErrOverloaded},
			{500, 2 * time.Millisecond, true, weir.ErrOverloaded},
		} {
			each = tt.each
			reqs := make([]weir.Request, tt.n)
			for i := range reqs {
				reqs[i] = weir.Request{Entity: fmt.Sprint(i), Resource: "api", Tokens: weir.Tokens{"rps": 1}}
			}
			leases, err := n.In("a").AcquireAll(n.ctx, reqs)
			if !errors.Is(err, tt.err) || err == nil && leases[0].Decision().Degraded != tt.degraded {
				t.Errorf("%d requests of %v: %v", tt.n, tt.each, err)
			}
		}
	})
}

// large makes 50 requests at once.
func (n *neighbors) large() error {
	reqs := make([]weir.Request, 50)
	for i := range reqs {
		reqs[i] = weir.Request{Entity: fmt.Sprint(i), Resource: "api", Tokens: weir.Tokens{"rps": 1}}
	}
	leases, err := n.In("a").AcquireAll(n.ctx, reqs)
	if err == nil && !leases[0].Decision().Degraded {
		n.t.Error("decided by the store")
	}
	return err
}

// batch makes a number of requests, so many at once, and returns the last error.
func (n *neighbors) batch(size, atOnce int) (last error) {
	ctx := fallback.Batch(n.ctx, size)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for worker := range atOnce {
		wg.Go(func() {
			for i := worker; i < size; i += atOnce {
				_, err := n.In("a").Acquire(ctx, weir.Request{Entity: fmt.Sprint(i), Resource: "api", Tokens: weir.Tokens{"rps": 1}})
				if mu.Lock(); err != nil {
					last = err
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return last
}

// More than 8 decisions that are made together, and are late although nobody else was answered, may themselves be the
// reason, and are not admitted.
func TestLateBatch(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]error{1: nil, 8: nil, 9: weir.ErrOverloaded, 100: weir.ErrOverloaded} {
		between(t, func(ctx context.Context, _, _ string) error { return hang(ctx) }, func(n *neighbors) {
			pass(3 * time.Second)
			if err := n.batch(size, size); !errors.Is(err, want) {
				t.Errorf("%d: %v", size, err)
			}
		}, func(c *weir.Config) { c.Cooldown = -1 })
	}
}

// While a store does not answer, more than 8 requests at once get an error until that is found: for about four waits, or,
// if nobody else calls, ten. From then on, on_unavailable decides.
func TestLargeRequestsInOutage(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		beside bool // a caller of single requests
		call   func(n *neighbors) error
		within time.Duration
	}{
		"AcquireAll":         {false, (*neighbors).large, 10 * decideWithin},
		"batches":            {false, func(n *neighbors) error { return n.batch(50, 10) }, 10 * decideWithin},
		"AcquireAll, beside": {true, (*neighbors).large, 5 * decideWithin},
		"batches, beside":    {true, func(n *neighbors) error { return n.batch(50, 10) }, 5 * decideWithin},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			between(t, func(ctx context.Context, _, _ string) error { return hang(ctx) }, func(n *neighbors) {
				pass(3 * time.Second)
				var wg sync.WaitGroup
				if tt.beside {
					wg.Go(func() { n.each(10*time.Millisecond, 3*time.Second, "b", always("known")) })
				}
				began, last := time.Now(), time.Duration(0)
				for time.Since(began) < 3*time.Second {
					if err := tt.call(n); errors.Is(err, weir.ErrOverloaded) {
						last = time.Since(began)
						continue
					} else if err != nil {
						t.Error(err)
					}
					pass(time.Millisecond)
				}
				wg.Wait()
				if last == 0 || last > tt.within {
					t.Errorf("the last error came after %v", last)
				}
			})
		})
	}
}

// A batch counts as one call, whatever its size: one that is not answered in time is no outage.
func TestBatchIsOneCall(t *testing.T) {
	t.Parallel()
	for name, batch := range map[string]func(n *neighbors){
		"AcquireAll": func(n *neighbors) {
			if err := n.large(); !errors.Is(err, weir.ErrOverloaded) {
				n.t.Errorf("late, and the store does not count as silent: %v", err)
			}
		},
		"decisions of a batch": func(n *neighbors) {
			if err := n.batch(1000, 1000); !errors.Is(err, weir.ErrOverloaded) {
				n.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			between(t, func(ctx context.Context, namespace, _ string) error {
				if namespace == "a" {
					return hang(ctx)
				}
				return nil
			}, func(n *neighbors) {
				pass(3 * time.Second)
				for range 9 {
					batch(n)
				}
				if st := n.outageStats(); st.Openings > 0 {
					t.Fatalf("nine batches opened it: %+v", st)
				}
				batch(n)
				if st := n.outageStats(); st.Openings != 1 {
					t.Errorf("ten batches did not open it: %+v", st)
				}
			})
		})
	}
}
