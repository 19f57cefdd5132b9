package buckets

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

func closedScenarios() []Scenario {
	return []Scenario{
		{Name: "every method", Run: OnStore(closedMethods)},
		{Name: "twice", Run: OnStore(closedTwice)},
		{Name: "while in use", Run: OnStore(closedInUse)},
		{Name: "cancelled context", Run: OnStore(closedContext)},
		{Name: "a peer lives on", Peer: true, Run: OnStore(closedPeer)},
	}
}

// methods calls every method but Close. Calls that change something change alice's bucket or record.
func methods(ctx context.Context, e *Env) map[string]error {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	errs := map[string]error{}
	_, errs["take"] = e.Store.Take(ctx, store.Take{Debits: []store.Debit{Debit(b, Charge(l, 1))}})
	_, errs["take of two"] = e.Store.Take(ctx, store.Take{
		Debits: []store.Debit{Debit(b, Charge(l, 1)), Debit(Bucket("bob", "api"), Charge(l, 1))},
	})
	_, errs["settle"] = e.Store.Settle(ctx, store.Settle{Debits: []store.Debit{Debit(b, Charge(l, 1))}})
	_, errs["settle once"] = e.Store.Settle(ctx, store.Settle{
		Debits: []store.Debit{Debit(b, Charge(l, 1))}, ID: "x", Expires: Noon.AddDate(100, 0, 0),
	})
	if e.Harness.Caps.Credits {
		_, errs["credit"] = e.Store.Credit(ctx, store.Credit{Bucket: b, Limit: "credits", Amount: Token, ID: "x"})
		errs["forget credits"] = e.Store.ForgetCredits(ctx, b, "credits")
	}
	_, errs["peek"] = e.Store.Peek(ctx, b)
	_, errs["buckets"] = e.Store.Buckets(ctx, store.BucketQuery{Namespace: "n"})
	errs["forget"] = e.Store.Forget(ctx, b)
	_, errs["get"] = e.Store.Get(ctx, Entity("alice"))
	errs["commit"] = e.Store.Commit(ctx, Put(Entity("alice"), 1, "x"))
	_, errs["list"] = e.Store.List(ctx, store.Query{Namespace: "n", Kind: store.KindEntity})
	return errs
}

func closedMethods(e *Env) {
	e.Allow(Debit(Bucket("alice", "api"), Charge(Still("rpm", 10), 1)))
	if err := e.Store.Close(); err != nil {
		e.Fatalf("close: %v", err)
	}
	for name, err := range methods(e.Context(), e) {
		if !errors.Is(err, store.ErrClosed) {
			e.Errorf("%s after close: error %v, want %v", name, err, store.ErrClosed)
		}
	}
}

func closedTwice(e *Env) {
	e.Each(4, func(int) {
		for range 2 {
			if err := e.Store.Close(); err != nil {
				e.Errorf("close: %v", err)
			}
		}
	})
}

// closedInUse checks that callers get an answer or ErrClosed, and that Close returns.
func closedInUse(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 1_000_000)
	e.Each(8, func(i int) {
		for n := range 200 {
			if i == 0 && n == 50 {
				if err := e.Store.Close(); err != nil {
					e.Errorf("close: %v", err)
				}
			}
			_, err := e.Store.Take(e.Context(), store.Take{Debits: []store.Debit{Debit(b, Charge(l, 1))}})
			if err != nil && !errors.Is(err, store.ErrClosed) {
				e.Errorf("take: %v", err)
			}
			if i == 0 && n >= 50 && err == nil {
				e.Errorf("a take after close was answered")
			}
		}
	})
}

// closedContext checks that a context that has ended stops a call before it has any effect.
func closedContext(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	e.Allow(Debit(b, Charge(l, 1)))
	e.Commit(Put(Entity("alice"), 0, "a"))
	cancelled, cancel := context.WithCancel(e.Context())
	cancel()
	late, cancelLate := context.WithDeadline(e.Context(), time.Unix(0, 0))
	defer cancelLate()
	for _, ctx := range []context.Context{cancelled, late} {
		for name, err := range methods(ctx, e) {
			if !errors.Is(err, ctx.Err()) {
				e.Errorf("%s: error %v, want %v", name, err, ctx.Err())
			}
		}
	}
	e.WantTokens(b, l, 9)
	e.WantTokens(Bucket("bob", "api"), l, 10)
	e.WantRecord(Entity("alice"), 1, "a")
	e.SettleOnce(e.Once("x", Debit(b, Charge(l, 1)))) // nor was its id used up
}

func closedPeer(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	p := e.Peer()
	p.Allow(Debit(b, Charge(l, 1)))
	if err := p.Store.Close(); err != nil {
		e.Fatalf("close: %v", err)
	}
	p.TakeFails(store.ErrClosed, Debit(b, Charge(l, 1)))
	e.Allow(Debit(b, Charge(l, 1)))
	e.WantTokens(b, l, 8)
}
