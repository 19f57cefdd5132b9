package weir_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store"
)

// slow makes each call of the store take this long, unless its context ends first.
func slow(get, take time.Duration) func(*fakeStore) {
	nap := func(ctx context.Context, d time.Duration) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return func(f *fakeStore) {
		f.get = func(ctx context.Context, keys ...store.Key) (store.Got, error) {
			if err := nap(ctx, get); err != nil {
				return store.Got{}, err
			}
			return f.Store.Get(ctx, keys...)
		}
		f.take = func(ctx context.Context, t store.Take) (store.Outcome, error) {
			if err := nap(ctx, take); err != nil {
				return store.Outcome{}, err
			}
			return f.Store.Take(ctx, t)
		}
	}
}

// deciders are the calls with a time bound; each reports whether its answer was degraded.
func (b *bundle) deciders(entity string) map[string]func() (bool, error) {
	req := weir.Request{Entity: entity, Resource: "api", Tokens: one}
	lease := func(l *weir.Lease, err error) (bool, error) {
		return l != nil && l.Degraded() && l.Decision().Degraded, err
	}
	return map[string]func() (bool, error){
		"Acquire": func() (bool, error) { return lease(b.Acquire(b.ctx, req)) },
		"Wait":    func() (bool, error) { return lease(b.Wait(b.ctx, req)) },
		"AcquireAll": func() (bool, error) {
			ls, err := b.AcquireAll(b.ctx, []weir.Request{req, req})
			if len(ls) != 2 {
				return false, err
			}
			return lease(ls[1], err)
		},
		"Allow": func() (bool, error) { return b.Allow(b.ctx, entity, "api") },
	}
}

func tight(c *weir.Config) {
	c.StoreTimeout, c.DecideWithin, c.OnUnavailable = time.Second, 12*time.Millisecond, weir.OnUnavailableAllow
}

// The bound applies to the decision, not to each store call: a chain of four needs four reads and one take. AcquireAll
// admits nothing because it is late itself.
func TestDecideWithinBoundsTheWhole(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"Acquire", "Wait", "AcquireAll", "Allow"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(b *bundle) {
				b.chain("a", "b", "c", "d")
				b.set("", "", weir.PerHour("rpm", 100))
				policies(b.Limiter).Expire()
				b.fake.does(slow(5*time.Millisecond, 5*time.Millisecond))
				decide := b.deciders("a")[how]
				began := time.Now()
				degraded, err := decide()
				late := func(err error) bool { return how == "AcquireAll" && errors.Is(err, weir.ErrOverloaded) }
				if took := time.Since(began); took != 12*time.Millisecond || degraded == late(err) || err != nil && !late(err) {
					t.Fatalf("answered after %s: degraded %v, %v", took, degraded, err)
				}
				// What was read meanwhile is cached for later decisions, so a decision soon finishes in time.
				for range 3 {
					if _, err = decide(); err != nil && !late(err) {
						t.Fatal(err)
					}
				}
				_, before, _ := b.fake.counts()
				if _, err = decide(); err != nil {
					t.Fatal(err)
				}
				if _, after, _ := b.fake.counts(); after == before {
					t.Error("never decided")
				}
				b.fake.does(recovers)
				if left := b.left("d", "rpm"); left >= 100 {
					t.Errorf("%d left: nothing was spent", left)
				}
			}, tight)
		})
	}
}

// A store that is only slightly slow still decides.
func TestDecideWithinInTime(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerHour("rpm", 3))
		b.take("alice", nil)
		b.fake.does(slow(0, 11*time.Millisecond))
		for range 3 {
			if lease := b.take("alice", one); lease.Decision().Degraded {
				t.Error("degraded")
			}
		}
		b.refused("alice", one)
	}, tight)
}

// When in doubt, debit: what the store does after the answer stays spent, also if the answer was a denial.
func TestDecideWithinLateTake(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerHour("rpm", 100))
		b.take("alice", nil)
		b.fake.does(func(f *fakeStore) {
			f.take = func(ctx context.Context, take store.Take) (store.Outcome, error) {
				go func() {
					time.Sleep(50 * time.Millisecond) // network latency, in a bubble
					_, _ = f.Store.Take(context.WithoutCancel(ctx), take)
				}()
				return store.Outcome{}, hang(ctx)
			}
		})
		for how, decide := range b.deciders("alice") {
			began := time.Now()
			_, err := decide()
			if took := time.Since(began); took != 12*time.Millisecond || !errors.Is(err, weir.ErrUnavailable) {
				t.Errorf("%s answered after %s: %v", how, took, err)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		b.fake.does(recovers)
		b.wantLeft("alice", weir.Tokens{"rpm": 95}) // AcquireAll takes two
	}, tight, func(c *weir.Config) { c.OnUnavailable = weir.OnUnavailableDeny })
}

// Wait, lease changes and reads are not decisions: they get the store's full timeout.
func TestDecideWithinIsNotForTheRest(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 1))
		lease := b.take("alice", one)
		began := time.Now()
		waited, err := b.Wait(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: one})
		must(t, err)
		if took := time.Since(began); took != time.Minute || waited.Decision().Degraded {
			t.Errorf("waited %s: %+v", took, waited.Decision())
		}
		b.fake.does(func(f *fakeStore) {
			f.settle = func(ctx context.Context, s store.Settle) (store.Outcome, error) {
				time.Sleep(100 * time.Millisecond)
				return f.Store.Settle(ctx, s)
			}
		})
		must(t, lease.Rollback(b.ctx))
	}, tight)
}

func TestDecideWithinDefault(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerHour("rpm", 100))
		policies(b.Limiter).Expire()
		b.fake.does(slow(200*time.Millisecond, time.Hour))
		began := time.Now()
		_, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
		wantErr(t, err, weir.ErrUnavailable)
		if took := time.Since(began); took != 300*time.Millisecond {
			t.Errorf("took %s", took)
		}
	}, func(c *weir.Config) { c.StoreTimeout = 300 * time.Millisecond })
}
