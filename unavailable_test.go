package weir_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

var errDown = errors.New("connection refused")

func takeFails(err error) func(*fakeStore) {
	return func(f *fakeStore) {
		f.take = func(context.Context, store.Take) (store.Outcome, error) { return store.Outcome{}, err }
	}
}

func recovers(f *fakeStore) { f.take, f.settle, f.get, f.peek = nil, nil, nil, nil }

// witness records the events that an observer receives.
type witness struct {
	mu      sync.Mutex
	decided []weir.DecidedEvent
	called  []weir.CalledEvent
}

func (e *witness) observe(c *weir.Config) {
	c.Observer = &weir.Observer{
		Decided: func(_ context.Context, d weir.DecidedEvent) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.decided = append(e.decided, d)
		},
		Called: func(_ context.Context, call weir.CalledEvent) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.called = append(e.called, call)
		},
	}
}

func (e *witness) drain() ([]weir.DecidedEvent, []weir.CalledEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	d, c := e.decided, e.called
	e.decided, e.called = nil, nil
	return d, c
}

// The system's record comes first, then the limiter's configuration. A request can only make that stricter.
func TestOnUnavailable(t *testing.T) {
	t.Parallel()
	const unset = weir.OnUnavailableDefault
	for _, tt := range []struct {
		request, system, config weir.OnUnavailable
		allowed                 bool
	}{
		{unset, unset, unset, false},
		{unset, unset, weir.OnUnavailableAllow, true},
		{unset, weir.OnUnavailableDeny, weir.OnUnavailableAllow, false},
		{unset, weir.OnUnavailableAllow, weir.OnUnavailableDeny, true},
		{weir.OnUnavailableAllow, unset, unset, false},
		{weir.OnUnavailableAllow, unset, weir.OnUnavailableDeny, false},
		{weir.OnUnavailableAllow, weir.OnUnavailableDeny, weir.OnUnavailableAllow, false},
		{weir.OnUnavailableAllow, weir.OnUnavailableAllow, weir.OnUnavailableDeny, true},
		{weir.OnUnavailableLocal, weir.OnUnavailableDeny, weir.OnUnavailableAllow, false},
		{weir.OnUnavailableDeny, weir.OnUnavailableAllow, weir.OnUnavailableAllow, false},
		{weir.OnUnavailableDeny, unset, weir.OnUnavailableLocal, false},
	} {
		name := fmt.Sprintf("request %q, system %q, config %q", tt.request, tt.system, tt.config)
		b := setup(t, func(c *weir.Config) { c.OnUnavailable = tt.config })
		b.set("", "", weir.PerMinute("rpm", 10))
		if tt.system != unset {
			must(t, b.admin.Limits.SetOnUnavailable(b.ctx, admin.Scope{}, tt.system))
		}
		b.take("alice", nil)
		b.fake.does(takeFails(errDown))
		req := weir.Request{Entity: "alice", Resource: "api", Tokens: one, OnUnavailable: tt.request}
		check := func(how string, degraded bool, err error) {
			t.Helper()
			if tt.allowed && (err != nil || !degraded) {
				t.Errorf("%s: %s: degraded %v, %v", name, how, degraded, err)
			} else if !tt.allowed && (!errors.Is(err, weir.ErrUnavailable) || !errors.Is(err, errDown)) {
				t.Errorf("%s: %s: got %v", name, how, err)
			}
		}
		lease, err := b.Acquire(b.ctx, req)
		check("Acquire", lease != nil && lease.Decision().Degraded, err)
		lease, err = b.Wait(b.ctx, req)
		check("Wait", lease != nil && lease.Decision().Degraded, err)
		leases, err := b.AcquireAll(b.ctx, []weir.Request{req, req})
		check("AcquireAll", len(leases) == 2 && leases[1].Decision().Degraded, err)
		if tt.request == unset {
			ok, err := b.Allow(b.ctx, "alice", "api")
			check("Allow", ok, err)
		}
		if _, err := b.Available(b.ctx, "alice", "api"); err != nil { // the store answers this call
			t.Error(err)
		}
	}
}

// Several requests are admitted only if every one of them may be.
func TestAcquireAllUnavailable(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *weir.Config) { c.OnUnavailable = weir.OnUnavailableAllow })
	b.set("", "", weir.PerMinute("rpm", 10))
	b.fake.does(takeFails(errDown))
	allow := weir.Request{Entity: "alice", Resource: "api"}
	deny := weir.Request{Entity: "bob", Resource: "api", OnUnavailable: weir.OnUnavailableDeny}
	_, err := b.AcquireAll(b.ctx, []weir.Request{allow, deny})
	wantErr(t, err, weir.ErrUnavailable)
	leases, err := b.AcquireAll(b.ctx, []weir.Request{allow, allow})
	must(t, err)
	for _, l := range leases {
		if !l.Decision().Degraded {
			t.Error("not marked")
		}
	}
	b.fake.does(func(f *fakeStore) { // the catalog cannot be read either
		f.get = func(context.Context, ...store.Key) (store.Got, error) { return store.Got{}, errDown }
	})
	fresh := allow
	fresh.Entity = "fresh"
	_, err = b.AcquireAll(b.ctx, []weir.Request{fresh, deny})
	wantErr(t, err, weir.ErrUnavailable)
	_, err = b.AcquireAll(b.ctx, []weir.Request{allow, fresh})
	must(t, err)
}

func TestDegradedLease(t *testing.T) {
	t.Parallel()
	var seen witness
	b := setup(t, seen.observe, func(c *weir.Config) { c.OnUnavailable = weir.OnUnavailableAllow })
	b.set("", "", weir.PerMinute("rpm", 10))
	b.fake.does(takeFails(errDown))
	seen.drain()
	req := weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpm": 4}}
	lease := b.takeFor(req)
	d := lease.Decision()
	if !d.Allowed || !d.Degraded || !strings.Contains(d.Reason, errDown.Error()) || d.At.IsZero() || len(d.Statuses) != 0 {
		t.Errorf("%+v", d)
	}
	decided, called := seen.drain()
	want := weir.DecidedEvent{Namespace: "default", Entity: "alice", Resource: "api", Allowed: true, Degraded: true, Cause: weir.CauseError}
	if len(decided) == 1 {
		want.Took = decided[0].Took
	}
	if len(decided) != 1 || decided[0] != want || want.Took <= 0 {
		t.Errorf("decided %+v", decided)
	}
	if i := slices.IndexFunc(called, func(c weir.CalledEvent) bool { return c.Op == "take" }); i < 0 || !errors.Is(called[i].Err, errDown) {
		t.Errorf("called %+v", called)
	}

	// Nothing was spent, so nothing is returned, now or later, here or by a process that holds the lease.
	b.fake.does(recovers)
	b.take("alice", weir.Tokens{"rpm": 10})
	h := lease.Token("x", noon.Add(time.Hour))
	must(t, b.resume(h).Rollback(b.ctx))
	must(t, errOf(lease.Adjust(b.ctx, weir.Tokens{"rpm": -4})))
	must(t, errOf(lease.Adjust(b.ctx, weir.Tokens{"rpm": 4, "whatever": 1})))
	must(t, lease.Rollback(b.ctx))
	wantErr(t, lease.Rollback(b.ctx), weir.ErrRolledBack)
	b.wantLeft("alice", weir.Tokens{"rpm": 0})

	// The store may fail before the limits are known.
	b.fake.does(func(f *fakeStore) {
		f.get = func(context.Context, ...store.Key) (store.Got, error) { return store.Got{}, errDown }
	})
	req.Entity = "stranger"
	for how, call := range map[string]func() error{
		"Acquire": func() error { _, err := b.Acquire(b.ctx, req); return err },
		"Wait":    func() error { _, err := b.Wait(b.ctx, req); return err },
	} {
		seen.drain()
		must(t, call())
		if decided, _ := seen.drain(); len(decided) != 1 || !decided[0].Degraded || !decided[0].Allowed || decided[0].Entity != "stranger" {
			t.Errorf("%s decided %+v", how, decided)
		}
	}
}

// Only store failures admit, not other errors.
func TestAllowIsNotForMistakes(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *weir.Config) { c.OnUnavailable = weir.OnUnavailableAllow })
	b.set("", "", weir.PerMinute("rpm", 10))
	for name, err := range map[string]error{
		"invalid":   fmt.Errorf("%w: limit twice", store.ErrInvalid),
		"duplicate": store.ErrDuplicateBucket,
		"closed":    store.ErrClosed,
		"overflow":  store.ErrOverflow,
		"overrides": store.ErrTooManyOverrides,
	} {
		b.fake.does(takeFails(err))
		if lease, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: one}); err == nil {
			t.Errorf("%s: admitted %+v", name, lease.Decision())
		}
		if ok, err := b.Allow(b.ctx, "alice", "api"); ok || err == nil {
			t.Errorf("%s: allowed", name)
		}
	}
}

// A record with malformed limits must neither admit nor panic, nor keep other limits from being asked for.
func TestBadRecord(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"no JSON":         `{"limits":[`,
		"amount 0":        `{"limits":[{"name":"rpm","amount":0,"period":"min"}]}`,
		"negative amount": `{"limits":[{"name":"rpm","amount":-18446744073709551,"period":"min"}]}`,
		"period 0":        `{"limits":[{"name":"rpm","amount":1,"period":"0s","burst":1}]}`,
		"huge burst":      `{"limits":[{"name":"rpm","amount":1,"period":"min","burst":9223372036854775807}]}`,
	} {
		b := setup(t, func(c *weir.Config) { c.OnUnavailable = weir.OnUnavailableAllow })
		key := store.Key{Namespace: "default", Kind: store.KindResourceLimits, ID: "api"}
		must(t, b.fake.Commit(b.ctx, store.Write{Record: store.Record{Key: key, Value: []byte(value)}}))
		calls := map[string]func() error{
			"Acquire":   func() error { _, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"}); return err },
			"Available": func() error { _, err := b.Available(b.ctx, "alice", "api"); return err },
		}
		for how, call := range calls {
			var bad *weir.StoreError
			for range 20 { // more than it takes to find that a store does not answer
				if err := call(); !errors.As(err, &bad) || bad.Key != key.String() {
					t.Errorf("%s: %s: got %v", name, how, err)
				}
			}
		}
		b.set("", "other", weir.PerMinute("rpm", 10))
		lease, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "other"})
		must(t, err)
		if lease.Decision().Degraded {
			t.Errorf("%s: the store counts as unavailable, although it answers", name)
		}
	}
}

// A store that does not answer blocks no caller longer than StoreTimeout.
func TestStoreTimeout(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]func(*fakeStore){
		"take": func(f *fakeStore) {
			f.take = func(ctx context.Context, _ store.Take) (store.Outcome, error) { return store.Outcome{}, hang(ctx) }
		},
		"get": func(f *fakeStore) {
			f.get = func(ctx context.Context, _ ...store.Key) (store.Got, error) { return store.Got{}, hang(ctx) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(b *bundle) {
				b.set("", "", weir.PerMinute("rpm", 10))
				if name == "take" {
					b.take("alice", nil)
				}
				b.fake.does(gone)
				req := weir.Request{Entity: "alice", Resource: "api", Tokens: one, OnUnavailable: weir.OnUnavailableDeny}
				within := func(want time.Duration, how string, call func() error) {
					t.Helper()
					synctest.Wait() // the load that the previous call started ends at the same time
					began := time.Now()
					err := call()
					if took := time.Since(began); took != want {
						t.Errorf("%s took %v, want %v (%v)", how, took, want, err)
					}
				}
				within(3*time.Second, "Acquire", func() error {
					_, err := b.Acquire(b.ctx, req)
					wantErr(t, err, weir.ErrUnavailable)
					if !strings.Contains(err.Error(), "StoreTimeout") {
						t.Errorf("%q does not say what to turn", err)
					}
					return err
				})
				within(3*time.Second, "AcquireAll", func() error {
					_, err := b.AcquireAll(b.ctx, []weir.Request{req})
					wantErr(t, err, weir.ErrUnavailable)
					return err
				})
				within(3*time.Second, "Wait", func() error {
					_, err := b.Wait(b.ctx, req)
					wantErr(t, err, weir.ErrUnavailable)
					return err
				})
				within(3*time.Second, "Allow", func() error {
					ok, err := b.Allow(b.ctx, "alice", "api")
					if !ok {
						t.Error("not allowed")
					}
					return err
				})
				// If the caller's own context ends, that is not a store failure, and nothing is admitted.
				req.OnUnavailable = weir.OnUnavailableDefault
				ctx, cancel := context.WithTimeout(b.ctx, time.Second)
				defer cancel()
				within(time.Second, "Acquire with a deadline", func() error {
					lease, err := b.Acquire(ctx, req)
					wantErr(t, err, context.DeadlineExceeded)
					if lease != nil || errors.Is(err, weir.ErrUnavailable) {
						t.Errorf("%v, %v", lease, err)
					}
					return err
				})
				within(0, "Allow with an ended context", func() error {
					ok, err := b.Allow(ctx, "alice", "api")
					wantErr(t, err, context.DeadlineExceeded)
					if ok {
						t.Error("allowed")
					}
					return err
				})
			}, func(c *weir.Config) { c.StoreTimeout, c.OnUnavailable = 3*time.Second, weir.OnUnavailableAllow })
		})
	}
}

func TestSettleAndPeekTimeout(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 10))
		lease := b.take("alice", one)
		b.fake.does(func(f *fakeStore) {
			f.settle = func(ctx context.Context, _ store.Settle) (store.Outcome, error) { return store.Outcome{}, hang(ctx) }
			f.peek = func(ctx context.Context, _ ...store.Bucket) (store.Snapshot, error) {
				return store.Snapshot{}, hang(ctx)
			}
		})
		ctx, cancel := context.WithCancel(b.ctx)
		cancel()
		began := time.Now()
		wantErr(t, lease.Rollback(ctx), context.DeadlineExceeded) // runs although the caller has gone, but no longer
		_, err := b.Available(b.ctx, "alice", "api")
		wantErr(t, err, context.DeadlineExceeded)
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestTooManyBuckets(t *testing.T) {
	t.Parallel()
	c := &clock{now: noon}
	b := setupOn(t, &fakeStore{Store: memory.New(&memory.Config{Now: c.Now, MaxBuckets: 3})}, c)
	b.set("", "", weir.PerMinute("rpm", 1))
	for i := range 3 {
		b.take(fmt.Sprint(i), one)
	}
	_, err := b.Acquire(b.ctx, weir.Request{Entity: "3", Resource: "api", Tokens: one})
	wantErr(t, err, weir.ErrUnavailable)
	wantErr(t, err, store.ErrTooManyBuckets)
	if !strings.Contains(err.Error(), "MaxBuckets") {
		t.Errorf("%q does not say what to turn", err)
	}
	b.refused("0", one) // entity 0 was not evicted for it
	c.advance(time.Minute)
	b.take("3", one)
}

// Lost answers leave tokens spent. Whatever happens next, no token is handed out twice.
func TestLostTakes(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *weir.Config) { c.OnUnavailable, c.Cooldown = weir.OnUnavailableAllow, -1 }) // no cooldown: the store is asked each time
	b.chain("child", "parent")
	b.set("", "", weir.PerHour("rpm", 100))
	admitted := int64(0)
	for i := range 100 {
		b.fake.does(func(f *fakeStore) {
			f.take = func(ctx context.Context, take store.Take) (store.Outcome, error) {
				switch i % 4 {
				case 0: // the answer is lost
					if _, err := f.Store.Take(ctx, take); err != nil {
						return store.Outcome{}, err
					}
					return store.Outcome{}, context.DeadlineExceeded
				case 1: // the question is lost
					return store.Outcome{}, errDown
				}
				return f.Store.Take(ctx, take)
			}
		})
		req := weir.Request{Entity: "child", Resource: "api", Tokens: two}
		lease, err := b.Acquire(b.ctx, req)
		switch {
		case errors.Is(err, weir.ErrExceeded):
			continue
		case err != nil:
			t.Fatal(err)
		case lease.Decision().Degraded != (i%4 < 2):
			t.Fatalf("call %d: %+v", i, lease.Decision())
		case i%8 < 4:
			must(t, lease.Rollback(b.ctx))
		case i%4 >= 2:
			admitted += 2
		}
	}
	if left := b.left("child", "rpm"); admitted+left > 100 || left != b.left("parent", "rpm") {
		t.Errorf("admitted %d, %d left", admitted, left)
	}
}

func TestStaleForEver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerMinute("rpm", 10))
	b.fake.does(takeFails(store.ErrStaleLimits))
	_, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
	wantErr(t, err, weir.ErrUnavailable)
	_, takes, _ := b.fake.counts()
	if takes < 2 || takes > 10 {
		t.Errorf("asked %d times", takes)
	}
}

// The observer is told of every event once, with the namespace.
func TestObserver(t *testing.T) {
	t.Parallel()
	var seen witness
	b := setup(t, seen.observe)
	_, err := b.admin.Namespaces.Create(b.ctx, "alpha")
	must(t, err)
	view := b.In("alpha")
	must(t, admin.New(view).Limits.Set(b.ctx, admin.Scope{}, weir.PerMinute("rpm", 1)))
	req := weir.Request{Entity: "alice", Resource: "api", Tokens: one}
	seen.drain()
	lease, err := view.Acquire(b.ctx, req)
	must(t, err)
	_, err = view.Acquire(b.ctx, req)
	wantErr(t, err, weir.ErrExceeded)
	_, err = view.Allow(b.ctx, "bob", "api")
	must(t, err)
	must(t, lease.Rollback(b.ctx))
	_, err = view.AcquireAll(b.ctx, []weir.Request{req, {Entity: "carol", Resource: "api", Tokens: one}})
	must(t, err)
	_, err = view.Available(b.ctx, "alice", "api")
	must(t, err)
	decided, called := seen.drain()
	type decision struct {
		namespace, entity string
		allowed, refused  bool
	}
	var got []decision
	for _, d := range decided {
		got = append(got, decision{d.Namespace, d.Entity, d.Allowed, errors.Is(d.Err, weir.ErrExceeded)})
	}
	want := []decision{
		{"alpha", "alice", true, false},
		{"alpha", "alice", false, true},
		{"alpha", "bob", true, false},
		{"alpha", "alice", true, false},
		{"alpha", "carol", true, false},
	}
	if !slices.Equal(got, want) {
		t.Errorf("decided %+v, want %+v", got, want)
	}
	var ops []string
	for _, c := range called {
		ops = append(ops, c.Op)
		if c.Err != nil || c.Took < 0 {
			t.Errorf("%+v", c)
		}
	}
	if n := len(slices.DeleteFunc(ops, func(op string) bool { return op == "get" })); n != 6 { // 4 takes, settle, peek
		t.Errorf("called %q", ops)
	}
}
