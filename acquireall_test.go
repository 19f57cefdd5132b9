package weir_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
)

func ask(entity, resource string, tokens weir.Tokens) weir.Request {
	return weir.Request{Entity: entity, Resource: resource, Tokens: tokens}
}

func (b *bundle) takeAll(reqs ...weir.Request) []*weir.Lease {
	b.t.Helper()
	leases, err := b.AcquireAll(b.ctx, reqs)
	if err != nil || len(leases) != len(reqs) {
		b.t.Fatalf("got %d leases, %v", len(leases), err)
	}
	return leases
}

func TestAcquireAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if leases, err := b.AcquireAll(b.ctx, nil); leases != nil || err != nil {
		t.Errorf("of none: %v, %v", leases, err)
	}
	b.child("parent", "")
	b.child("a", "parent")
	b.child("b", "parent")
	b.set("", "", weir.PerMinute("rpm", 10))
	b.set("parent", "", weir.PerMinute("rpm", 12))
	leases := b.takeAll(ask("a", "api", weir.Tokens{"rpm": 4}), ask("b", "api", weir.Tokens{"rpm": 3}), ask("a", "api", one))
	b.wantLeft("a", weir.Tokens{"rpm": 5})
	b.wantLeft("b", weir.Tokens{"rpm": 7})
	b.wantLeft("parent", weir.Tokens{"rpm": 4})
	if _, takes, _ := b.fake.counts(); takes != 1 {
		t.Errorf("%d decisions, want one", takes)
	}
	for i, want := range []struct {
		entity    string
		requested int64
		left      int64
	}{{"a", 4, 5}, {"b", 3, 7}, {"a", 1, 5}} {
		d := leases[i].Decision()
		if len(d.Statuses) != 2 || !d.Allowed {
			t.Fatalf("%+v", d)
		}
		own, parent := d.Statuses[0], d.Statuses[1]
		if own.Entity != want.entity || own.Requested != want.requested || own.Available != want.left || own.Source != weir.SourceSystem ||
			parent.Entity != "parent" || parent.Requested != want.requested || parent.Available != 4 || parent.Source != weir.SourceEntityDefault {
			t.Errorf("lease %d: %+v", i, d.Statuses)
		}
	}
	// Each lease can be ended on its own.
	must(t, leases[0].Rollback(b.ctx))
	must(t, errOf(leases[1].Adjust(b.ctx, two)))
	must(t, leases[2].Commit(b.ctx))
	b.wantLeft("a", weir.Tokens{"rpm": 9})
	b.wantLeft("b", weir.Tokens{"rpm": 5})
	b.wantLeft("parent", weir.Tokens{"rpm": 6})
}

func TestAcquireAllOrNone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.child("parent", "")
	b.child("a", "parent")
	b.child("b", "parent")
	b.set("", "", weir.PerMinute("rpm", 10))
	b.take("b", weir.Tokens{"rpm": 8})
	reqs := []weir.Request{ask("a", "api", one), ask("b", "api", weir.Tokens{"rpm": 3}), ask("other", "db", one)}
	_, err := b.AcquireAll(b.ctx, reqs)
	var over *weir.ExceededError
	if !errors.As(err, &over) {
		t.Fatal(err)
	}
	// a and b take 1 and 3 from the parent, which has 2 left.
	want := map[string]struct {
		requested int64
		wait      time.Duration
	}{"a": {1, 0}, "parent": {4, 12 * time.Second}, "b": {3, 6 * time.Second}, "other": {1, 0}}
	for _, s := range over.Statuses {
		if w := want[s.Entity]; s.Requested != w.requested || s.RetryAfter != w.wait || s.Refused != (w.wait > 0) || s.Source != weir.SourceSystem {
			t.Errorf("%+v", s)
		}
	}
	if len(over.Statuses) != 4 || over.RetryAfter != 12*time.Second || over.Allowed {
		t.Errorf("%+v", over.Decision)
	}
	b.wantLeft("a", weir.Tokens{"rpm": 10})
	b.wantLeft("b", two)
	b.wantLeft("parent", two)
	b.wantLeftOn("other", "db", weir.Tokens{"rpm": 10})
	b.clock.advance(12*time.Second - 1)
	_, err = b.AcquireAll(b.ctx, reqs)
	wantErr(t, err, weir.ErrExceeded)
	b.clock.advance(1)
	b.takeAll(reqs...)
}

// Requests that fit one by one may exceed the burst together.
func TestAcquireAllOverTheBurst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.child("parent", "")
	b.child("a", "parent")
	b.child("b", "parent")
	b.set("", "", weir.PerMinute("rpm", 10))
	for entity, reqs := range map[string][]weir.Request{
		"a":      {ask("a", "api", weir.Tokens{"rpm": 6}), ask("a", "api", weir.Tokens{"rpm": 5})},
		"parent": {ask("a", "api", weir.Tokens{"rpm": 6}), ask("b", "api", weir.Tokens{"rpm": 5})},
	} {
		_, err := b.AcquireAll(b.ctx, reqs)
		if burst, ok := errors.AsType[*weir.BurstError](err); !ok || *burst != (weir.BurstError{Entity: entity, Resource: "api", Limit: "rpm", Requested: 11, Burst: 10}) {
			t.Errorf("got %v", err)
		}
	}
	// A sum that overflows must not wrap around to an amount that fits.
	b.set("a", "", weir.PerDay("rpm", 1).WithBurst(weir.MaxTokens))
	b.set("parent", "", weir.PerDay("rpm", 1).WithBurst(weir.MaxTokens))
	for n := 2; n <= 40; n++ {
		var reqs []weir.Request
		for range n {
			reqs = append(reqs, ask("a", "api", weir.Tokens{"rpm": weir.MaxTokens}))
		}
		if _, err := b.AcquireAll(b.ctx, reqs); !errors.Is(err, weir.ErrExceedsBurst) {
			t.Fatalf("%d bursts at once: got %v", n, err)
		}
	}
	b.wantLeft("a", weir.Tokens{"rpm": weir.MaxTokens})
}

func TestAcquireAllWithOverrides(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.chain("alice", "team")
	b.set("", "", weir.PerMinute("rpm", 10))
	with := func(tokens weir.Tokens, limits ...weir.Limit) weir.Request {
		return weir.Request{Entity: "alice", Resource: "api", Tokens: tokens, Limits: limits}
	}
	small := weir.PerMinute("rpm", 2)
	leases := b.takeAll(with(one, small), ask("alice", "api", weir.Tokens{"rpm": 3}), with(one, small), with(two, weir.PerDay("rpm", 2)))
	sources := []weir.Source{weir.SourceRequest, weir.SourceSystem, weir.SourceRequest, weir.SourceRequest}
	for i, l := range leases {
		if d := l.Decision(); d.Statuses[0].Source != sources[i] || d.Statuses[1].Entity != "team" || d.Statuses[1].Source != weir.SourceSystem {
			t.Errorf("lease %d: %+v", i, d.Statuses)
		}
	}
	b.wantLeft("alice", weir.Tokens{"rpm": 7})
	b.wantLeft("team", weir.Tokens{"rpm": 3}) // 1 + 3 + 1 + 2
	b.refusedFor(with(one, small))
	must(t, leases[2].Rollback(b.ctx))
	b.takeFor(with(one, small))
	b.refusedFor(with(one, small))
	_, err := b.AcquireAll(b.ctx, []weir.Request{with(one, weir.PerHour("rpm", 2)), with(two, weir.PerHour("rpm", 2))})
	wantErr(t, err, weir.ErrExceedsBurst)
}

// The requests of one call may be resolved at different times, with different limits for the same bucket. They are
// resolved again, so that the store never receives a take that contradicts itself.
func TestAcquireAllDuringAChange(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *weir.Config) { c.CacheTTL, c.OnUnavailable = -1, weir.OnUnavailableAllow })
	b.set("", "", weir.PerHour("rpm", 100))
	b.set("parent", "", weir.PerHour("rpm", 10), weir.PerHour("tpm", 10))
	b.child("parent", "")
	b.child("a", "parent")
	b.child("b", "parent")
	reads := 0
	b.fake.does(func(f *fakeStore) {
		f.get = func(ctx context.Context, keys ...store.Key) (store.Got, error) {
			got, err := f.Store.Get(ctx, keys...)
			if reads++; reads == 2 { // a and its parent have been resolved
				f.does(func(f *fakeStore) { f.get = nil })
				must(t, b.admin.Limits.Set(b.ctx, admin.Scope{Entity: "parent"}, weir.PerHour("rpm", 5)))
			}
			return got, err
		}
	})
	leases := b.takeAll(ask("a", "api", two), ask("b", "api", two))
	for _, l := range leases {
		if d := l.Decision(); d.Degraded || len(d.Statuses) != 2 || d.Statuses[1].Burst != 5 {
			t.Errorf("%+v", d)
		}
	}
	b.wantLeft("parent", one)
}

// TestBounds: a request beyond a bound is the caller's mistake, with and without the store, and means nothing for it.
func TestBounds(t *testing.T) {
	t.Parallel()
	for _, up := range []bool{true, false} {
		b := setup(t)
		b.set("", "", weir.PerMinute("rpm", 1000), weir.PerMinute("tpm", 1000))
		large := make([]weir.Request, store.MaxCharges/2+1)
		for i := range large {
			large[i] = ask(fmt.Sprint("e", i), "api", one)
			large[i].OnUnavailable = weir.OnUnavailableLocal
		}
		b.takeAll(large[:len(large)-1]...)
		wide := ask("e0", "api", nil)
		for i := range store.MaxOverrides + 1 {
			wide.Limits = append(wide.Limits, weir.PerMinute(fmt.Sprint("o", i), 10))
		}
		if !up {
			b.fake.does(func(f *fakeStore) {
				f.take = func(context.Context, store.Take) (store.Outcome, error) { return store.Outcome{}, errors.New("down") }
			})
		}
		var mistake *weir.ConfigError
		if _, err := b.AcquireAll(b.ctx, large); !errors.As(err, &mistake) || mistake.Field != "request" {
			t.Errorf("up %t, 4,098 limits: %v", up, err)
		}
		if _, err := b.Acquire(b.ctx, wide); !errors.As(err, &mistake) || mistake.Field != "limits" {
			t.Errorf("up %t, 17 overriding limits: %v", up, err)
		}
	}
}
