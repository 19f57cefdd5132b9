package weir_test

import (
	"context"
	"errors"
	"testing"

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
		must(t, b.Adjust(b.ctx, req))
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
	must(t, b.Adjust(b.ctx, counted("stranger", -3))) // an entity that never spent anything
	b.wantLeft("stranger", weir.Tokens{"rpm": 10, "tpm": 1000})

	ended, cancel := context.WithCancel(b.ctx)
	cancel()
	must(t, b.Adjust(ended, counted("alice", -2))) // known consumption must be counted
	b.wantLeft("alice", weir.Tokens{"rpm": 2, "tpm": 1000})

	own := weir.Request{Entity: "alice", Resource: "api", Requests: -1, Limits: []weir.Limit{weir.PerDay("rpd", 1)}}
	take := own
	take.Requests = 1
	b.takeFor(take)
	b.refusedFor(take)
	must(t, b.Adjust(b.ctx, own))
	b.takeFor(take)

	wantConfigError(t, b.Adjust(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"x": 1}}), "tokens.x")
	wantConfigError(t, b.Adjust(b.ctx, counted("alice", -weir.MaxTokens-1)), "tokens.rpm")
	b.set("tokens", "", weir.PerMinute("tpm", 10))
	wantConfigError(t, b.Adjust(b.ctx, counted("tokens", 1)), "requests")
	must(t, b.admin.Limits.Delete(b.ctx, admin.Scope{}))
	wantErr(t, b.Adjust(b.ctx, counted("nobody", 1)), weir.ErrNoLimits)
	b.set("", "", weir.PerMinute("rpm", 10))
	b.fake.does(func(f *fakeStore) {
		f.settle = func(context.Context, store.Settle) (store.Outcome, error) { return store.Outcome{}, errDown }
	})
	wantErr(t, b.Adjust(b.ctx, counted("alice", 1)), errDown)
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
