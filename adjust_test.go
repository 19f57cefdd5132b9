package weir_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
)

// counted is a request that names no limits.
func counted(entity string, n int64) weir.Request {
	return weir.Request{Entity: entity, Resource: "api", Requests: n}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.child("org", "")
	b.child("alice", "org")
	b.set("", "", weir.PerMinute("rpm", 10), weir.PerMinute("tpm", 1000))
	b.set("org", "", weir.PerDay("requests", 5), weir.PerDay("rpm", 100))
	b.takeFor(counted("alice", 2))
	b.wantLeft("alice", weir.Tokens{"rpm": 8, "tpm": 1000})
	b.wantLeft("org", weir.Tokens{"requests": 3, "rpm": 98})
	both := counted("alice", 1)
	both.Tokens = weir.Tokens{"rpm": 3, "tpm": 5}
	lease := b.takeFor(both)
	b.wantLeft("alice", weir.Tokens{"rpm": 5, "tpm": 995})
	b.wantLeft("org", weir.Tokens{"requests": 2, "rpm": 95}) // limits that the request names are debited as named
	must(t, lease.Rollback(b.ctx))
	b.wantLeft("org", weir.Tokens{"requests": 3, "rpm": 98})
	if over := b.refusedFor(counted("alice", 4)); len(over.Statuses) != 4 || over.Statuses[2].Entity != "org" || !over.Statuses[2].Refused || over.Statuses[3].Refused {
		t.Errorf("%+v", over.Statuses)
	}
	b.takeFor(weir.Request{Entity: "bob", Resource: "api", Requests: 1, Limits: []weir.Limit{weir.PerDay("rpd", 1)}})
	b.refusedFor(weir.Request{Entity: "bob", Resource: "api", Requests: 1, Limits: []weir.Limit{weir.PerDay("rpd", 1)}})

	for _, n := range []int64{-1, weir.MaxTokens + 1} {
		_, err := b.Acquire(b.ctx, counted("alice", n))
		wantConfigError(t, err, "tokens.rpm")
	}
	_, err := b.Acquire(b.ctx, counted("alice", 11))
	wantErr(t, err, weir.ErrExceedsBurst)
	b.set("tokens", "", weir.PerMinute("tpm", 10))
	_, err = b.Acquire(b.ctx, counted("tokens", 1))
	wantConfigError(t, err, "requests")
	only := counted("alice", 1)
	only.Tokens = weir.Tokens{"rpm": 1, "requests": 1}
	_, err = b.Acquire(b.ctx, only)
	wantConfigError(t, err, "requests")
}

// Waiters for requests queue like waiters for tokens.
func TestWaitForRequests(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 2))
		b.takeFor(counted("alice", 2))
		ctx, cancel := context.WithTimeout(b.ctx, 59e9)
		defer cancel()
		_, err := b.Wait(ctx, counted("alice", 2))
		wantErr(t, err, weir.ErrExceeded) // returns at once
		wantErr(t, err, context.DeadlineExceeded)
		wantErr(t, ctx.Err(), nil)
		lease, err := b.Wait(b.ctx, counted("alice", 2))
		must(t, err)
		if got := lease.Decision().Statuses[0].Requested; got != 2 {
			t.Errorf("got %d", got)
		}
	})
}

// A caller learns of a debt from the adjustment that made it, and how long it lasts.
func TestAdjustReturnsBalances(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.chain("alice", "org")
	b.set("", "", weir.PerMinute("rpm", 10), weir.PerMinute("tpm", 1000))
	lease := b.take("alice", weir.Tokens{"rpm": 1, "tpm": 100})
	got, err := lease.Adjust(b.ctx, weir.Tokens{"tpm": 1400})
	must(t, err)
	wait := 501 * time.Minute / 1000 // until one token is there
	want := []weir.Balance{
		{Entity: "alice", Resource: "api", Limit: "tpm", Available: -500, RetryAfter: wait},
		{Entity: "org", Resource: "api", Limit: "tpm", Available: -500, RetryAfter: wait},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	b.clock.advance(wait - 1)
	b.refused("alice", weir.Tokens{"tpm": 1})
	b.clock.advance(1)
	b.take("alice", weir.Tokens{"tpm": 1})
	got, err = lease.Adjust(b.ctx, weir.Tokens{"tpm": -700}) // 1,500 taken, 501 issued: more than half a burst comes back
	must(t, err)
	for _, l := range got {
		if l.Available != 700 || l.RetryAfter != 0 {
			t.Errorf("got %+v", l)
		}
	}
	got, err = b.Adjust(b.ctx, weir.Request{Entity: "org", Resource: "api", Requests: 1})
	must(t, err)
	if want := []weir.Balance{{Entity: "org", Resource: "api", Limit: "rpm", Available: 9}}; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAdjustWithoutLease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.child("org", "")
	b.child("alice", "org")
	b.set("", "", weir.PerMinute("rpm", 10), weir.PerMinute("tpm", 1000))
	b.takeFor(counted("alice", 4))
	adjust := func(requests, tpm int64) {
		t.Helper()
		req := counted("alice", requests)
		if tpm != 0 {
			req.Tokens = weir.Tokens{"tpm": tpm}
		}
		must(t, errOf(b.Adjust(b.ctx, req)))
	}
	adjust(-1, 0)
	b.wantLeft("alice", weir.Tokens{"rpm": 7, "tpm": 1000})
	b.wantLeft("org", weir.Tokens{"rpm": 7, "tpm": 1000})
	adjust(1, 3000) // into debt
	b.wantLeft("alice", weir.Tokens{"rpm": 6, "tpm": -2000})
	b.refusedFor(counted("alice", 0))
	adjust(0, -500)
	b.wantLeft("org", weir.Tokens{"rpm": 6, "tpm": -1500})
	adjust(-1000, -weir.MaxTokens) // not above the burst
	b.wantLeft("alice", weir.Tokens{"rpm": 10, "tpm": 1000})
	b.takeFor(counted("alice", 10))
	b.refusedFor(counted("alice", 1))
	b.wantLeft("org", weir.Tokens{"rpm": 0, "tpm": 1000})
	must(t, errOf(b.Adjust(b.ctx, counted("stranger", -3)))) // an entity that never spent anything
	b.wantLeft("stranger", weir.Tokens{"rpm": 10, "tpm": 1000})

	ended, cancel := context.WithCancel(b.ctx)
	cancel()
	must(t, errOf(b.Adjust(ended, counted("alice", -2)))) // known consumption must be counted
	b.wantLeft("alice", weir.Tokens{"rpm": 2, "tpm": 1000})

	own := weir.Request{Entity: "alice", Resource: "api", Requests: -1, Limits: []weir.Limit{weir.PerDay("rpd", 1)}}
	take := own
	take.Requests = 1
	b.takeFor(take)
	b.refusedFor(take)
	must(t, errOf(b.Adjust(b.ctx, own)))
	b.takeFor(take)

	wantConfigError(t, errOf(b.Adjust(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"x": 1}})), "tokens.x")
	wantConfigError(t, errOf(b.Adjust(b.ctx, counted("alice", -weir.MaxTokens-1))), "tokens.rpm")
	b.set("tokens", "", weir.PerMinute("tpm", 10))
	wantConfigError(t, errOf(b.Adjust(b.ctx, counted("tokens", 1))), "requests")
	must(t, b.admin.Limits.Delete(b.ctx, admin.Scope{}))
	wantErr(t, errOf(b.Adjust(b.ctx, counted("nobody", 1))), weir.ErrNoLimits)
	b.set("", "", weir.PerMinute("rpm", 10))
	b.fake.does(func(f *fakeStore) {
		f.settle = func(context.Context, store.Settle) (store.Outcome, error) { return store.Outcome{}, errDown }
	})
	wantErr(t, errOf(b.Adjust(b.ctx, counted("alice", 1))), errDown)
}

// If AcquireAll is refused, the error tells which of its requests was refused.
func TestAcquireAllEach(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.child("org", "")
	b.child("alice", "org")
	b.child("bob", "org")
	b.set("", "", weir.PerMinute("rpm", 10))
	b.set("org", "", weir.PerMinute("rpm", 3))
	_, err := b.AcquireAll(b.ctx, []weir.Request{counted("alice", 2), counted("carol", 1), counted("bob", 1)})
	must(t, err)
	_, err = b.AcquireAll(b.ctx, []weir.Request{counted("alice", 2), counted("carol", 1), counted("bob", 0), counted("carol", 9)})
	var over *weir.ExceededError
	if !errors.As(err, &over) || len(over.Each) != 4 {
		t.Fatalf("got %v", err)
	}
	type seen struct {
		allowed   bool
		entities  string
		requested int64
	}
	for i, want := range []seen{{false, "alice org ", 2}, {false, "carol ", 10}, {false, "bob org ", 0}, {false, "carol ", 10}} {
		d := over.Each[i]
		got := seen{allowed: d.Allowed, requested: d.Statuses[0].Requested}
		for _, s := range d.Statuses {
			got.entities += s.Entity + " "
		}
		if got != want {
			t.Errorf("request %d: got %+v, want %+v", i, got, want)
		}
	}
	_, err = b.AcquireAll(b.ctx, []weir.Request{counted("alice", 1), counted("dora", 1)})
	if !errors.As(err, &over) || over.Each[0].Allowed || over.Each[0].RetryAfter == 0 || !over.Each[1].Allowed || over.Each[1].RetryAfter != 0 {
		t.Errorf("got %v", err)
	}
}

func TestRequestError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("alice", "", weir.PerMinute("rpm", 10))
	for name, bad := range map[string]weir.Request{
		"no limits": counted("bob", 1),
		"burst":     counted("alice", 11),
		"tokens":    ask("alice", "api", weir.Tokens{"x": 1}),
		"policy":    {Entity: "alice", Resource: "api", OnUnavailable: "perhaps"},
	} {
		_, err := b.AcquireAll(b.ctx, []weir.Request{counted("alice", 1), bad})
		var one *weir.RequestError
		if !errors.As(err, &one) || one.Index != 1 || one.Err == nil || err.Error() != "request 1: "+one.Err.Error() {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// What an adjustment could not debit because of a limit's MaxDebt is the first to be given back.
func TestAdjustBackAfterMaxDebt(t *testing.T) {
	t.Parallel()
	for _, resumed := range []bool{false, true} {
		b := setup(t)
		b.chain("alice", "org")
		b.set("", "", weir.PerMinute("tpm", 1000))
		b.set("org", "", weir.PerMinute("tpm", 10)) // at most 100 in debt
		lease := b.take("alice", weir.Tokens{"tpm": 2})
		adjust := func(n int64, want error, alice, org int64) {
			t.Helper()
			if resumed {
				lease = b.resume(lease.Token("lease-1", noon.Add(time.Minute)))
			}
			_, err := lease.Adjust(b.ctx, weir.Tokens{"tpm": n})
			wantErr(t, err, want)
			b.wantLeft("alice", weir.Tokens{"tpm": alice})
			b.wantLeft("org", weir.Tokens{"tpm": org})
		}
		adjust(500, weir.ErrMaxDebt, 498, -100)
		adjust(-300, nil, 798, -100) // of the 392 that org was not debited
		adjust(-100, nil, 898, -92)  // the rest of them, and 8 that it was
		adjust(-102, nil, 1000, 10)
		_, err := lease.Adjust(b.ctx, weir.Tokens{"tpm": -1})
		if bad := new(weir.ConfigError); !errors.As(err, &bad) || bad.Reason != "cannot give back 1, the lease holds 0" {
			t.Errorf("got %v", err)
		}
	}
}

// TestAdjustOnce checks that an adjustment with an ID is applied once, however often and by whomever it is repeated,
// and that an ID is one of an entity on a resource, in a namespace.
func TestAdjustOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	must(t, errOf(b.admin.Namespaces.Create(b.ctx, "blue")))
	blue := b.In("blue")
	must(t, admin.New(blue).Limits.Set(b.ctx, admin.Scope{}, weir.PerDay("tpm", 1000)))
	b.set("", "", weir.PerDay("tpm", 1000))
	report := func(entity, resource, id string, tpm int64) weir.Request {
		return weir.Request{Entity: entity, Resource: resource, Tokens: weir.Tokens{"tpm": tpm}, ID: id}
	}
	var applied atomic.Int64
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			switch _, err := b.Adjust(b.ctx, report("alice", "api", "inv-1", 100)); {
			case err == nil:
				applied.Add(1)
			case !errors.Is(err, weir.ErrSettled):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := applied.Load(); n != 1 {
		t.Errorf("applied %d times", n)
	}
	b.wantLeft("alice", weir.Tokens{"tpm": 900})
	wantErr(t, errOf(b.Adjust(b.ctx, report("alice", "api", "inv-1", 7))), weir.ErrSettled)
	for _, other := range []weir.Request{
		report("alice", "api", "inv-2", 1), report("alice", "other", "inv-1", 1), report("bob", "api", "inv-1", 1),
	} {
		must(t, errOf(b.Adjust(b.ctx, other)))
	}
	must(t, errOf(blue.Adjust(b.ctx, report("alice", "api", "inv-1", 1))))
	b.wantLeft("alice", weir.Tokens{"tpm": 899})

	wantConfigError(t, errOf(b.Adjust(b.ctx, report("alice", "api", "a\x00b", 1))), "id")
	wantConfigError(t, errOf(b.Acquire(b.ctx, report("alice", "api", "inv-3", 1))), "id")
	wantConfigError(t, errOf(b.Wait(b.ctx, report("alice", "api", "inv-3", 1))), "id")
	b.wantLeft("alice", weir.Tokens{"tpm": 899})
}
