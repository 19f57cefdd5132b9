package weir_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
)

// neighbors are the tenants of one store: namespaces that share a limiter's breaker. A decision without the store
// admits, so nothing but Degraded shows it.
type neighbors struct {
	*bundle

	opened atomic.Int64  // when the breaker opened last: nanoseconds since 1970
	names  sync.Map      // of namespaces, by their ids
	far    time.Duration // how long the store takes for any call
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { time.Sleep(d) } // real time: none, see above

// away waits for a while, or returns the context's error if that ends before.
func away(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const decideWithin = 60 * time.Millisecond

// between runs f in a bubble, with namespaces a, b, c and d, over a store whose takes fail as fails returns.
func between(
	t *testing.T, fails func(ctx context.Context, namespace, entity string) error, f func(n *neighbors),
	change ...func(*weir.Config),
) {
	t.Helper()
	n := &neighbors{}
	change = append(change, func(c *weir.Config) {
		c.OnUnavailable, c.DecideWithin = weir.OnUnavailableAllow, decideWithin
		c.Observer = &weir.Observer{Breaker: func(_ context.Context, e weir.BreakerEvent) {
			if e.State == "open" {
				n.opened.Store(time.Now().UnixNano())
			}
		}}
	})
	bubble(t, func(b *bundle) {
		n.bundle = b
		b.fake.does(func(fake *fakeStore) {
			fake.take = func(ctx context.Context, take store.Take) (store.Outcome, error) {
				pass(n.far)
				bucket := take.Debits[0].Bucket
				name, _ := n.names.Load(bucket.Namespace)
				if err := fails(ctx, name.(string), bucket.Entity); err != nil {
					return store.Outcome{}, err
				}
				return fake.Store.Take(ctx, take)
			}
			fake.get = func(ctx context.Context, keys ...store.Key) (store.Got, error) {
				if err := away(ctx, n.far); err != nil {
					return store.Got{}, err
				}
				return fake.Store.Get(ctx, keys...)
			}
		})
		for _, name := range []string{"a", "b", "c", "d"} {
			ns, err := b.admin.Namespaces.Create(b.ctx, name)
			must(t, err)
			n.names.Store(ns.ID, name)
			must(t, admin.New(b.In(name)).Limits.Set(b.ctx, admin.Scope{}, weir.PerSecond("rps", 1_000_000)))
			n.take(b.ctx, name, "known") // its limits are cached
		}
		f(n)
		pass(time.Minute) // all that hangs ends
	}, change...)
}

// take reports whether a request was decided by the store. It must be admitted.
func (n *neighbors) take(ctx context.Context, namespace, entity string) (decided bool) {
	n.t.Helper()
	lease, err := n.In(namespace).Acquire(ctx, weir.Request{Entity: entity, Resource: "api", Tokens: weir.Tokens{"rps": 1}})
	if err != nil {
		n.t.Errorf("%s in %s: %v", entity, namespace, err)
		return false
	}
	return !lease.Decision().Degraded
}

// each makes requests in a namespace, one every pause, for a while, and counts those that were not decided.
func (n *neighbors) each(pause, lasting time.Duration, namespace string, entity func(i int) string) (degraded, all int) {
	var wg sync.WaitGroup
	var late atomic.Int64
	for ; time.Duration(all)*pause < lasting; all++ {
		nth := all
		wg.Go(func() {
			if !n.take(n.ctx, namespace, entity(nth)) {
				late.Add(1)
			}
		})
		pass(pause)
	}
	wg.Wait()
	return int(late.Load()), all
}

func always(entity string) func(int) string { return func(int) string { return entity } }

// Whatever fails for one tenant, the requests of another are decided by the store, at any rate: the tenant whose key is
// throttled, who makes up keys, whose batches are never answered. The other's first request in a long while is a probe,
// if all that called meanwhile had failed.
func TestNeighbor(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fails func(context.Context) error // for namespace a
		pause time.Duration               // between the requests of a
		who   func(i int) string          // its entities
	}{
		"throttled": {func(context.Context) error { return errThrottled }, 5 * time.Millisecond, always("hot")},
		"throttled until its time is up": {
			func(ctx context.Context) error {
				return &store.Error{Op: "take", Err: hang(ctx), Extent: store.ExtentKey}
			}, 5 * time.Millisecond, always("hot"),
		},
		"silent":                    {hang, 5 * time.Millisecond, always("hot")},
		"silent, with 10,000 keys":  {hang, time.Millisecond, func(i int) string { return fmt.Sprint("made up ", i) }},
		"invalid, with 10,000 keys": {func(context.Context) error { return errDown }, time.Millisecond, func(i int) string { return fmt.Sprint("made up ", i) }},
	} {
		for _, rate := range []time.Duration{5 * time.Millisecond, time.Second, 3 * time.Second} {
			t.Run(fmt.Sprint(name, ", every ", rate), func(t *testing.T) {
				t.Parallel()
				between(t, func(ctx context.Context, namespace, _ string) error {
					if namespace == "a" {
						return tt.fails(ctx)
					}
					return nil
				}, func(n *neighbors) {
					pass(3 * time.Second) // nothing is remembered of the others
					if rate < time.Second {
						n.far = 20 * time.Millisecond // so that several requests are under way
						n.take(n.ctx, "b", "known")
					}
					var wg sync.WaitGroup
					wg.Go(func() { n.each(tt.pause, 10*time.Second, "a", tt.who) })
					pass(time.Second) // by now a's requests alone would have opened it
					if degraded, all := n.each(rate, 9*time.Second, "b", always("known")); degraded > 0 {
						t.Errorf("%d of %d requests of b were not decided by the store", degraded, all)
					}
					wg.Wait()
				})
			})
		}
	}
}

// A tenant that calls in bursts is decided by the store beside one that is never answered: at least 99 % of its requests,
// whether or not it is remembered from one burst to the next, and whoever probes; if it is, also if the store takes most
// of the time.
func TestBurstyNeighbor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		every, pause time.Duration // between the bursts of b, and between the requests of a
		root         bool          // a and b are entities of one namespace
		far          time.Duration
	}{
		{3 * time.Second, 5 * time.Millisecond, false, 2 * time.Millisecond},
		{3 * time.Second, 5 * time.Millisecond, true, 2 * time.Millisecond},
		{3 * time.Second, 5 * time.Millisecond, false, decideWithin * 2 / 3},
		{59 * time.Second, 20 * time.Millisecond, false, 2 * time.Millisecond},
		{70 * time.Second, 20 * time.Millisecond, false, 2 * time.Millisecond},
		{70 * time.Second, 20 * time.Millisecond, true, 2 * time.Millisecond},
		{3 * time.Second, 160 * time.Millisecond, false, 2 * time.Millisecond},
		{70 * time.Second, 160 * time.Millisecond, false, 2 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			t.Parallel()
			between(t, func(ctx context.Context, namespace, entity string) error {
				if namespace == "a" && entity != "bursty" {
					return hang(ctx)
				}
				return nil
			}, func(n *neighbors) {
				namespace := "b"
				if tt.root {
					namespace = "a"
				}
				n.take(n.ctx, namespace, "bursty") // its limits are cached
				n.far = tt.far
				pass(3 * time.Second)
				const bursts, size = 15, 50
				var wg sync.WaitGroup
				wg.Go(func() { n.each(tt.pause, bursts*tt.every+time.Second, "a", always("known")) })
				var degraded atomic.Int64
				for range bursts {
					pass(tt.every)
					for range size {
						wg.Go(func() {
							if !n.take(n.ctx, namespace, "bursty") {
								degraded.Add(1)
							}
						})
					}
				}
				wg.Wait()
				if got := degraded.Load(); 100*got > bursts*size {
					t.Errorf("%d of %d requests were decided without the store", got, bursts*size)
				}
				if st := n.outageStats(); st.Openings == 0 {
					t.Error("it has never opened")
				}
			})
		})
	}
}

// Within one namespace, the tenants are the tops of the chains of entities.
func TestNeighborInNamespace(t *testing.T) {
	t.Parallel()
	between(t, func(ctx context.Context, _, entity string) error {
		if entity != "good" {
			return hang(ctx)
		}
		return nil
	}, func(n *neighbors) {
		a := admin.New(n.In("a"))
		must(t, a.Entities.Create(n.ctx, admin.Entity{ID: "team"}))
		for i := range 500 {
			must(t, a.Entities.Create(n.ctx, admin.Entity{ID: fmt.Sprint("child ", i), Parent: "team", Cascade: true}))
		}
		pass(3 * time.Second)
		var wg sync.WaitGroup
		wg.Go(func() {
			n.each(5*time.Millisecond, 10*time.Second, "a", func(i int) string { return fmt.Sprint("child ", i%500) })
		})
		pass(time.Second)
		if degraded, all := n.each(100*time.Millisecond, 9*time.Second, "a", always("good")); degraded > 0 {
			t.Errorf("%d of %d requests of another chain were not decided by the store", degraded, all)
		}
		wg.Wait()
	})
}

// A store that answers nobody is called no more after as long as before: once all calls have failed for four times
// DecideWithin, however few the tenants that call all the time; and sooner if half of the calls of 2 s have failed.
func TestOutageIsFound(t *testing.T) {
	t.Parallel()
	reset := &store.Error{Op: "take", Err: errDown, Extent: store.ExtentStore}
	for name, tt := range map[string]struct {
		spaces []string
		who    func(i int) string
		fails  func(context.Context) error
		cold   bool // nothing is cached
		within time.Duration
	}{
		"one key":               {[]string{"a"}, always("known"), hang, false, 5 * decideWithin},
		"one key, refused":      {[]string{"a"}, always("known"), func(context.Context) error { return errDown }, false, 4 * decideWithin},
		"many keys":             {[]string{"a"}, func(i int) string { return fmt.Sprint(i % 50) }, hang, false, 5 * decideWithin},
		"many namespaces":       {[]string{"a", "b", "c", "d"}, always("known"), hang, false, 5 * decideWithin},
		"connections":           {[]string{"a", "b"}, always("known"), func(context.Context) error { return reset }, false, 4 * decideWithin},
		"cold, one key":         {[]string{"a"}, always("known"), hang, true, 5 * decideWithin},
		"cold, many namespaces": {[]string{"a", "b", "c", "d"}, func(i int) string { return fmt.Sprint(i) }, hang, true, 5 * decideWithin},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var down atomic.Bool
			fails := func(ctx context.Context, _, _ string) error {
				if down.Load() {
					return tt.fails(ctx)
				}
				return nil
			}
			between(t, fails, func(n *neighbors) {
				const pause = 10 * time.Millisecond
				traffic := func(lasting time.Duration) {
					var wg sync.WaitGroup
					for _, space := range tt.spaces {
						wg.Go(func() { n.each(pause, lasting, space, tt.who) })
					}
					wg.Wait()
				}
				traffic(3 * time.Second)
				n.opened.Store(0)
				began := time.Now()
				down.Store(true)
				if tt.cold {
					n.fake.does(func(f *fakeStore) {
						f.get = func(ctx context.Context, _ ...store.Key) (store.Got, error) { return store.Got{}, hang(ctx) }
					})
				}
				traffic(time.Second)
				if took := time.Duration(n.opened.Load() - began.UnixNano()); took < 0 || took > tt.within+3*pause {
					t.Errorf("it was found after %v", took)
				}
			}, func(c *weir.Config) {
				if tt.cold {
					c.CacheTTL = -1
				}
			})
		})
	}
}

// So it is beside tenants that were answered lately and call rarely: what they got before shows nothing about now.
func TestOutageIsFoundBesideQuietTenants(t *testing.T) {
	t.Parallel()
	for _, quiet := range []int{0, 1, 3, 10, 100} {
		t.Run(fmt.Sprint(quiet), func(t *testing.T) {
			t.Parallel()
			var down atomic.Bool
			between(t, func(ctx context.Context, _, _ string) error {
				if down.Load() {
					return hang(ctx)
				}
				return nil
			}, func(n *neighbors) {
				const pause, rarely = 10 * time.Millisecond, 1900 * time.Millisecond
				var wg sync.WaitGroup
				for i := range quiet {
					name := fmt.Sprint("quiet", i)
					ns, err := n.bundle.admin.Namespaces.Create(n.ctx, name)
					must(t, err)
					n.names.Store(ns.ID, name)
					must(t, admin.New(n.In(name)).Limits.Set(n.ctx, admin.Scope{}, weir.PerSecond("rps", 1_000_000)))
					wg.Go(func() {
						pass(time.Duration(i) * rarely / time.Duration(quiet))
						n.each(rarely, 3*rarely, name, always("known"))
					})
				}
				n.each(pause, 2*rarely-pause, "a", always("known"))
				began := time.Now()
				down.Store(true)
				n.each(pause, time.Second, "a", always("known"))
				if took := time.Duration(n.opened.Load() - began.UnixNano()); took < 0 || took > 5*decideWithin {
					t.Errorf("it was found after %v", took)
				}
				wg.Wait()
			})
		})
	}
}

// A store that is far away answers, only not all that a cold decision has to ask in the time that it has.
func TestColdIsNoOutage(t *testing.T) {
	t.Parallel()
	between(t, func(context.Context, string, string) error { return nil }, func(n *neighbors) {
		n.far = decideWithin / 2
		a := admin.New(n.In("a"))
		for i := range 30 {
			for _, e := range []admin.Entity{{ID: fmt.Sprint("top ", i)}, {ID: fmt.Sprint("child ", i), Parent: fmt.Sprint("top ", i), Cascade: true}} {
				must(t, a.Entities.Create(n.ctx, e))
			}
		}
		pass(3 * time.Second)
		cold, _ := n.each(5*time.Millisecond, 150*time.Millisecond, "a", func(i int) string { return fmt.Sprint("child ", i) })
		pass(time.Second)
		warm, _ := n.each(5*time.Millisecond, 150*time.Millisecond, "a", func(i int) string { return fmt.Sprint("child ", i) })
		if cold != 30 || warm != 0 {
			t.Errorf("%d of 30 cold and %d of 30 warm requests were not decided by the store", cold, warm)
		}
		if st := n.outageStats(); st.Openings > 0 {
			t.Errorf("%+v", st)
		}
	})
}
