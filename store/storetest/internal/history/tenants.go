package history

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

func tenantScenarios() []Scenario {
	return []Scenario{
		{Name: "mistakes of another", Run: OnStore(tenantMistakes)},
		{Name: "damage to another's bucket", Harm: true, Run: OnStore(tenantDamage)},
		{Name: "a throttled key of another", Hot: true, Run: OnStore(tenantThrottled)},
	}
}

// noisy is the bucket of the tenant whose calls fail. It has a neighbor in its own namespace.
var noisy = store.Bucket{Namespace: "noisy", Entity: "alice", Resource: "api"}

// undisturbed checks that while some calls fail, all others are answered, and exactly: in another namespace, and in the
// same one. fail makes one round of failing calls; it returns what is wrong with their answers.
func undisturbed(e *Env, fail func(e *Env, round int) error) {
	const tokens, takers = 60, 4
	l := Still("rpm", tokens)
	others := []store.Bucket{Bucket("bob", "api"), {Namespace: noisy.Namespace, Entity: "bob", Resource: "api"}}
	clients := []*Env{e}
	if e.Harness.Peer != nil {
		clients = append(clients, e.Peer())
	}
	var done atomic.Int64
	var admitted [2]atomic.Int64
	callers := takers * len(others)
	e.Each(callers+2, func(i int) {
		of := clients[i%len(clients)]
		if i >= callers {
			for round := 0; round < 5 || done.Load() < int64(callers); round++ {
				if err := fail(of, round); err != nil {
					e.Errorf("a failing call: %v", err)
					return
				}
			}
			return
		}
		defer done.Add(1)
		which := i / takers
		for range tokens / 2 { // together twice what there is
			if of.TakeQuietly(Debit(others[which], Charge(l, 1))).Allowed {
				admitted[which].Add(1)
			}
		}
	})
	for i, b := range others {
		if n := admitted[i].Load(); n != tokens {
			e.Errorf("%v: %d admitted, want %d", b, n, tokens)
		}
	}
}

// fails returns an error if a call did not fail.
func fails(what string, err error) error {
	if err == nil {
		return fmt.Errorf("%s is accepted", what)
	}
	return nil
}

func tenantMistakes(e *Env) {
	l := Still("rpm", 10)
	var many []store.Charge
	for i := range store.MaxLimits + 1 {
		many = append(many, Charge(Still(fmt.Sprint("limit-", i), 10), 1))
	}
	take := func(e *Env, debits ...store.Debit) error {
		_, err := e.Store.Take(e.Context(), store.Take{Debits: debits})
		return err
	}
	e.Allow(At(2, Debit(noisy, Charge(l, 5))))
	huge := store.Bucket{Namespace: noisy.Namespace, Entity: "huge", Resource: "api"}
	most := store.Charge{Limit: l, Amount: 1 << 62, Force: true}
	for range 2 {
		_ = take(e, Debit(huge, most))
	}
	for i := range store.MaxOverrides {
		e.Allow(At(2, Debit(noisy, Charge(Override(Still("rpm", int64(100+i))), 1))))
	}
	late, cancel := context.WithDeadline(e.Context(), time.Unix(0, 0))
	e.Outer.Cleanup(cancel)
	undisturbed(e, func(e *Env, round int) error {
		switch round % 7 {
		case 0:
			return fails("a bucket twice", take(e, Debit(noisy, Charge(l, 1)), Debit(noisy, Charge(l, 1))))
		case 1:
			return fails("a negative amount", take(e, Debit(noisy, Charge(l, -1))))
		case 2:
			return fails("an old limit", take(e, Debit(noisy, Charge(Still("rpm", 20), 1))))
		case 3:
			return fails("one more override", take(e, At(2, Debit(noisy, Charge(Override(Still("rpm", 200)), 1)))))
		case 4:
			return fails("too many limits", take(e, At(2, Debit(noisy, many...))))
		case 5:
			return fails("a level out of range", take(e, Debit(huge, most)))
		default:
			_, err := e.Store.Take(late, store.Take{Debits: []store.Debit{At(2, Debit(noisy, Charge(l, 1)))}})
			return fails("a call that is late", err)
		}
	})
}

func tenantDamage(e *Env) {
	l, ample := Still("rpm", 10), Still("rpm", 1e9) // what a failed take leaves debited does not matter
	parent := store.Bucket{Namespace: noisy.Namespace, Entity: "team", Resource: "api"}
	e.Allow(Debit(noisy, Charge(l, 1)), Debit(parent, Charge(ample, 1)))
	e.Quiesce()
	e.Harness.Harm(e.Outer, e.Store, noisy)
	undisturbed(e, func(e *Env, round int) error {
		var err error
		what := []string{"a take", "a take of two", "a return", "a look"}[round%4]
		switch round % 4 {
		case 0:
			_, err = e.Store.Take(e.Context(), store.Take{Debits: []store.Debit{Debit(noisy, Charge(l, 1))}})
		case 1:
			_, err = e.Store.Take(e.Context(), store.Take{Debits: []store.Debit{
				Debit(noisy, Charge(l, 1)), Debit(parent, Charge(ample, 1)),
			}})
		case 2:
			_, err = e.Store.Settle(e.Context(), store.Settle{Debits: []store.Debit{Debit(noisy, Charge(l, -1))}})
		default:
			_, err = e.Store.Peek(e.Context(), noisy)
		}
		return fails(what+" of a damaged bucket", err)
	})
}

func tenantThrottled(e *Env) {
	l, ample := Still("rpm", 10), Still("rpm", 1e9)
	parent := store.Bucket{Namespace: noisy.Namespace, Entity: "team", Resource: "api"}
	e.Allow(Debit(noisy, Charge(l, 1)), Debit(parent, Charge(ample, 1)))
	e.Quiesce()
	var ofKey atomic.Int64
	end := e.Harness.Throttle(e.Outer, e.Store, noisy)
	undisturbed(e, func(e *Env, round int) error {
		debits := []store.Debit{Debit(noisy, Charge(l, 1)), Debit(parent, Charge(ample, 1))}[:1+round%2]
		brief, cancel := context.WithTimeout(e.Context(), 20*time.Millisecond) // a store may try again until then
		defer cancel()
		_, err := e.Store.Take(brief, store.Take{Debits: debits})
		switch {
		case store.ExtentOf(err) == store.ExtentKey:
			ofKey.Add(1)
		case err != nil && !errors.Is(err, context.DeadlineExceeded): // on a busy machine, before the first answer
			return fmt.Errorf("an extent other than that of a key: %w", err)
		}
		return fails("a take of a throttled key", err)
	})
	if ofKey.Load() == 0 {
		e.Errorf("no error has the extent of a key")
	}
	end()
	e.Quiesce()
	admitted := 0
	for range 10 {
		if e.TakeQuietly(Debit(noisy, Charge(l, 1))).Allowed {
			admitted++
		}
	}
	if admitted == 0 || admitted > 9 {
		e.Errorf("%d admitted after it was throttled, want 1 to 9", admitted)
	}
}
