package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimits/weir/store"
)

func closedScenarios() []scenario {
	return []scenario{
		{name: "every method", run: each(closedMethods)},
		{name: "twice", run: each(closedTwice)},
		{name: "while in use", run: each(closedInUse)},
		{name: "cancelled context", run: each(closedContext)},
		{name: "a peer lives on", peer: true, run: each(closedPeer)},
	}
}

// methods calls every method but Close. Calls that change something change alice's bucket or record.
func (e *env) methods(ctx context.Context) map[string]error {
	b, l := bkt("alice", "api"), still("rpm", 10)
	errs := map[string]error{}
	_, errs["take"] = e.store.Take(ctx, store.Take{Debits: []store.Debit{debit(b, charge(l, 1))}})
	_, errs["take of two"] = e.store.Take(ctx, store.Take{
		Debits: []store.Debit{debit(b, charge(l, 1)), debit(bkt("bob", "api"), charge(l, 1))},
	})
	_, errs["settle"] = e.store.Settle(ctx, store.Settle{Debits: []store.Debit{debit(b, charge(l, 1))}})
	_, errs["settle once"] = e.store.Settle(ctx, store.Settle{
		Debits: []store.Debit{debit(b, charge(l, 1))}, ID: "x", Expires: noon.AddDate(100, 0, 0),
	})
	_, errs["peek"] = e.store.Peek(ctx, b)
	_, errs["buckets"] = e.store.Buckets(ctx, store.BucketQuery{Namespace: "n"})
	errs["forget"] = e.store.Forget(ctx, b)
	_, errs["get"] = e.store.Get(ctx, entity("alice"))
	errs["commit"] = e.store.Commit(ctx, put(entity("alice"), 1, "x"))
	_, errs["list"] = e.store.List(ctx, store.Query{Namespace: "n", Kind: store.KindEntity})
	return errs
}

func closedMethods(e *env) {
	e.allow(debit(bkt("alice", "api"), charge(still("rpm", 10), 1)))
	if err := e.store.Close(); err != nil {
		e.Fatalf("close: %v", err)
	}
	for name, err := range e.methods(e.Context()) {
		if !errors.Is(err, store.ErrClosed) {
			e.Errorf("%s after close: error %v, want %v", name, err, store.ErrClosed)
		}
	}
}

func closedTwice(e *env) {
	e.each(4, func(int) {
		for range 2 {
			if err := e.store.Close(); err != nil {
				e.Errorf("close: %v", err)
			}
		}
	})
}

// closedInUse checks that callers get an answer or ErrClosed, and that Close returns.
func closedInUse(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 1_000_000)
	e.each(8, func(i int) {
		for n := range 200 {
			if i == 0 && n == 50 {
				if err := e.store.Close(); err != nil {
					e.Errorf("close: %v", err)
				}
			}
			_, err := e.store.Take(e.Context(), store.Take{Debits: []store.Debit{debit(b, charge(l, 1))}})
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
func closedContext(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 10)
	e.allow(debit(b, charge(l, 1)))
	e.commit(put(entity("alice"), 0, "a"))
	cancelled, cancel := context.WithCancel(e.Context())
	cancel()
	late, cancelLate := context.WithDeadline(e.Context(), time.Unix(0, 0))
	defer cancelLate()
	for _, ctx := range []context.Context{cancelled, late} {
		for name, err := range e.methods(ctx) {
			if !errors.Is(err, ctx.Err()) {
				e.Errorf("%s: error %v, want %v", name, err, ctx.Err())
			}
		}
	}
	e.wantTokens(b, l, 9)
	e.wantTokens(bkt("bob", "api"), l, 10)
	e.wantRecord(entity("alice"), 1, "a")
	e.settleOnce(e.once("x", debit(b, charge(l, 1)))) // nor was its id used up
}

func closedPeer(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 10)
	p := e.peer()
	p.allow(debit(b, charge(l, 1)))
	if err := p.store.Close(); err != nil {
		e.Fatalf("close: %v", err)
	}
	p.takeFails(store.ErrClosed, debit(b, charge(l, 1)))
	e.allow(debit(b, charge(l, 1)))
	e.wantTokens(b, l, 8)
}
