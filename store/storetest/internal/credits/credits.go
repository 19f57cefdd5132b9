// Package credits tests balances and what is credited to them.
package credits

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

// Suites returns the suite of this package: admitted + available = credited, always.
func Suites() []Suite {
	need, hand := Caps{Credits: true}, Caps{Credits: true, HandClock: true}
	return []Suite{{Name: "credits", Scenarios: []Scenario{
		{Name: "spent", Need: need, Run: OnStore(creditSpent)},
		{Name: "repeated", Need: need, Run: OnStore(creditRepeated)},
		{Name: "another amount", Need: need, Run: OnStore(creditOtherAmount)},
		{Name: "ids of others", Need: need, Run: OnStore(creditOthers)},
		{Name: "at once", Need: need, Run: OnStore(func(e *Env) { creditAtOnce(e, e.Store) })},
		{Name: "at once from two clients", Need: need, Peer: true, Run: OnStore(func(e *Env) {
			creditAtOnce(e, e.Store, e.Peer().Store)
		})},
		{Name: "lost answers", Need: need, Run: OnStore(creditLost)},
		{Name: "while others spend", Need: need, Run: OnStore(func(e *Env) { creditConserved(e, e.Store) })},
		{Name: "while others spend, from two clients", Need: need, Peer: true, Run: OnStore(func(e *Env) {
			creditConserved(e, e.Store, e.Peer().Store)
		})},
		{Name: "beside other limits", Need: need, Run: OnStore(creditBeside)},
		{Name: "settled", Need: need, Run: OnStore(creditSettled)},
		{Name: "too much", Need: need, Run: OnStore(creditTooMuch)},
		{Name: "returned too much", Need: need, Run: OnStore(creditReturned)},
		{Name: "mistakes", Need: need, Run: OnStore(creditMistakes)},
		{Name: "another kind", Need: need, Run: OnStore(creditKinds)},
		{Name: "reset", Need: need, Run: OnStore(creditReset)},
		{Name: "forgotten", Need: need, Run: OnStore(creditForgotten)},
		{Name: "removed and added again", Need: need, Run: OnStore(creditRemoved)},
		{Name: "never melts", Need: hand, Run: OnStore(creditKept)},
		{Name: "random", Need: need, Run: creditRandom},
	}}}
}

// wantBalance checks what can be debited of a balance.
func wantBalance(e *Env, b store.Bucket, l *store.Limit, tokens int64) {
	e.Helper()
	level := int64(0)
	if m := e.Meter(b, l); m != nil {
		level = m.Level
	}
	if level != -tokens*Token {
		e.Fatalf("%v: %d millitokens can be debited, want %d tokens", b, -level, tokens)
	}
}

func creditSpent(e *Env) {
	b, l := Bucket("alice", "api"), Balance("credits")
	out := e.Refuse(Debit(b, Charge(l, 1))) // nothing was credited
	if wait, ok := RetryAfter(out, 0, Token); ok {
		e.Fatalf("retry after %v, want never", wait)
	}
	e.WantLevels(out, Level(l, 0, true))
	if got := e.Credit(b, "credits", 500, "inv-1"); got.Level != -500*Token || got.Before || got.At.IsZero() {
		e.Fatalf("credited: %+v", got)
	}
	out = e.Allow(Debit(b, Charge(l, 200)))
	if out.Levels[0].Level != -300*Token {
		e.Fatalf("level %d after 200 of 500", out.Levels[0].Level)
	}
	e.Refuse(Debit(b, Charge(l, 301)))
	e.Allow(Debit(b, Charge(l, 300)))
	e.Refuse(Debit(b, Charge(l, 1)))
	e.Allow(Debit(b, Charge(l, 0)))
	if got := e.Credit(b, "credits", 7, "inv-2"); got.Level != -7*Token {
		e.Fatalf("credited: %+v", got)
	}
	e.Allow(Debit(b, Charge(l, 7)))
}

func creditRepeated(e *Env) {
	b, l := Bucket("alice", "api"), Balance("credits")
	e.Credit(b, "credits", 5, "inv-1")
	e.Allow(Debit(b, Charge(l, 3)))
	for range 3 {
		if got := e.Credit(b, "credits", 5, "inv-1"); !got.Before || got.Level != -2*Token {
			e.Fatalf("again: %+v", got)
		}
	}
	e.Allow(Debit(b, Charge(l, 2)))
	if got := e.Credit(b, "credits", 5, "inv-1"); !got.Before || got.Level != 0 {
		e.Fatalf("again, once it is spent: %+v", got)
	}
	wantBalance(e, b, l, 0)
}

func creditOtherAmount(e *Env) {
	b, l := Bucket("alice", "api"), Balance("credits")
	e.Credit(b, "credits", 5, "inv-1")
	for _, tokens := range []int64{4, 6} {
		c := store.Credit{Bucket: b, Limit: "credits", Amount: tokens * Token, ID: "inv-1"}
		_, err := e.Store.Credit(e.Context(), c)
		var other *store.CreditError
		if !errors.As(err, &other) || other.ID != "inv-1" || other.Have != 5*Token || other.Want != tokens*Token {
			e.Fatalf("error %v, want a CreditError", err)
		}
	}
	wantBalance(e, b, l, 5)
}

// creditOthers checks that an ID is scoped to the namespace, the entity, the resource and the limit.
func creditOthers(e *Env) {
	a := Bucket("alice", "api")
	other := a
	other.Namespace = "m"
	for i, at := range []struct {
		b     store.Bucket
		limit string
	}{
		{a, "credits"},
		{other, "credits"},
		{Bucket("bob", "api"), "credits"},
		{Bucket("alice", "other"), "credits"},
		{a, "usd"},
		{Bucket("alice", "ap"), "icredits"}, // not told apart if parts run together
	} {
		if got := e.Credit(at.b, at.limit, int64(i+1), "inv-1"); got.Before || got.Level != -int64(i+1)*Token {
			e.Fatalf("%v %s: %+v", at.b, at.limit, got)
		}
	}
	wantBalance(e, a, Balance("credits"), 1)
}

func creditAtOnce(e *Env, clients ...store.Store) {
	e.Helper()
	b, l := Bucket("alice", "api"), Balance("credits")
	var applied atomic.Int64
	each := max(1, e.Some(1000)/32)
	e.Each(32, func(i int) {
		for range each {
			out, err := clients[i%len(clients)].Credit(e.Context(), store.Credit{
				Bucket: b, Limit: "credits", Amount: 5 * Token, ID: "inv-1",
			})
			if err != nil {
				e.Errorf("credit: %v", err)
			} else if !out.Before {
				applied.Add(1)
			}
		}
	})
	e.Quiesce()
	if n := applied.Load(); n != 1 {
		e.Errorf("applied %d times", n)
	}
	wantBalance(e, b, l, 5)
}

// creditLost repeats credits of which callers did not await the answer.
func creditLost(e *Env) {
	b, l := Bucket("alice", "api"), Balance("credits")
	n := e.Some(200)
	e.Each(8, func(i int) {
		for k := range n / 8 {
			c := store.Credit{Bucket: b, Limit: "credits", Amount: Token, ID: fmt.Sprint(i, "-", k)}
			ctx, cancel := context.WithTimeout(e.Context(), time.Duration(k)*10*time.Microsecond)
			_, err := e.Store.Credit(ctx, c)
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				e.Errorf("credit: %v", err)
			}
			if _, err := e.Store.Credit(e.Context(), c); err != nil {
				e.Errorf("repeated: %v", err)
			}
		}
	})
	e.Quiesce()
	wantBalance(e, b, l, int64(n/8*8))
}

// creditConserved lets callers credit, spend and return at once. Each credit is made by two of them.
func creditConserved(e *Env, clients ...store.Store) {
	b, l := Bucket("alice", "api"), Balance("credits")
	var credited, kept atomic.Int64
	steps := e.Some(200)
	e.Each(8, func(i int) {
		s := clients[i%len(clients)]
		for k := range steps {
			if k%4 == 0 {
				c := store.Credit{Bucket: b, Limit: "credits", Amount: int64(1+k) * Token, ID: fmt.Sprint(i/2, "-", k)}
				if out, err := s.Credit(e.Context(), c); err != nil {
					e.Errorf("credit: %v", err)
				} else if !out.Before {
					credited.Add(c.Amount)
				}
				continue
			}
			n := int64(1 + (i*k)%97)
			out, err := s.Take(e.Context(), store.Take{Debits: []store.Debit{Debit(b, Charge(l, n))}})
			switch {
			case err != nil:
				e.Errorf("take: %v", err)
			case out.Allowed && k%3 == 0:
				if _, err := s.Settle(e.Context(), giveBack(b, l, n)); err != nil {
					e.Errorf("settle: %v", err)
				}
			case out.Allowed:
				kept.Add(n * Token)
			}
		}
	})
	e.Quiesce()
	wantBalance(e, b, l, (credited.Load()-kept.Load())/Token)
	if kept.Load() > credited.Load() || kept.Load() == 0 {
		e.Errorf("%d were spent of %d", kept.Load(), credited.Load())
	}
}

func creditBeside(e *Env) {
	b, l, rpm := Bucket("alice", "api"), Balance("credits"), Still("rpm", 10)
	e.Credit(b, "credits", 5, "inv-1")
	out := e.Refuse(Debit(b, Charge(rpm, 1), Charge(l, 6)))
	e.WantLevels(out, Level(rpm, 10*Token, false), Level(l, 5*Token, true))
	e.Refuse(Debit(b, Charge(rpm, 11), Charge(l, 1)))
	e.WantTokens(b, rpm, 10)
	e.Allow(Debit(b, Charge(rpm, 1), Charge(l, 5)))
	e.Refuse(Debit(b, Charge(rpm, 1), Charge(l, 1)))
	e.WantTokens(b, rpm, 9)
	wantBalance(e, b, l, 0)
}

func creditSettled(e *Env) {
	b, l := Bucket("alice", "api"), Balance("credits")
	e.Credit(b, "credits", 10, "inv-1")
	e.Allow(Debit(b, Charge(l, 8)))
	e.WantCounts(b, l, 8*Token, 0)
	e.Allow(Debit(b, Charge(l, 2)))
	e.SettleOnce(giveBack(b, l, 5)) // also if the store has forgotten a balance of 0
	wantBalance(e, b, l, 5)
	c := Charge(l, 30)
	c.MaxDebt = 20 * Token
	out := e.Settle(Debit(b, c))
	if out.Levels[0].Left != 5*Token {
		e.Errorf("left out %d, want 5 tokens", out.Levels[0].Left)
	}
	wantBalance(e, b, l, -20)
	e.Refuse(Debit(b, Charge(l, 0)))
	e.Credit(b, "credits", 25, "inv-2")
	wantBalance(e, b, l, 5)
	e.Settle(Debit(b, Charge(l, 15)))
	s := giveBack(b, l, 100)
	s.Forgive = true
	e.SettleOnce(s)
	wantBalance(e, b, l, 0)
}

func giveBack(b store.Bucket, l *store.Limit, tokens int64) store.Settle {
	return store.Settle{Debits: []store.Debit{Debit(b, Charge(l, -tokens))}}
}

func creditTooMuch(e *Env) {
	b, l := Bucket("alice", "api"), Balance("credits")
	const most = 1_000_000_000_000_000
	e.Credit(b, "credits", most, "inv-1")
	e.CreditFails(store.ErrOverflow, b, "credits", 1, "inv-2")
	wantBalance(e, b, l, most)
	e.Allow(Debit(b, Charge(l, 1)))
	e.Credit(b, "credits", 1, "inv-2")
	wantBalance(e, b, l, most)
}

// creditReturned returns more than a level holds: the balance can be spent all the same, and takes no more credits.
func creditReturned(e *Env) {
	b, l := Bucket("alice", "api"), Balance("credits")
	const most = 1_000_000_000_000_000
	e.Credit(b, "credits", most, "inv-1")
	for range 12 {
		e.SettleOnce(giveBack(b, l, most))
	}
	e.CreditFails(store.ErrOverflow, b, "credits", 1, "inv-2")
	e.Allow(Debit(b, Charge(l, 1)))
	e.Allow(Debit(b, Force(l, 1)))
	e.Settle(Debit(b, Charge(l, 1)))
	e.Allow(Debit(b, Charge(l, 1)))
}

func creditMistakes(e *Env) {
	b := Bucket("alice", "api")
	long := string(make([]byte, store.MaxID+1))
	for name, c := range map[string]store.Credit{
		"nothing":     {Bucket: b, Limit: "credits", ID: "x"},
		"less":        {Bucket: b, Limit: "credits", ID: "x", Amount: -1},
		"too much":    {Bucket: b, Limit: "credits", ID: "x", Amount: 1_000_000_000_000_000_001},
		"largest":     {Bucket: b, Limit: "credits", ID: "x", Amount: math.MaxInt64},
		"no id":       {Bucket: b, Limit: "credits", Amount: 1},
		"a long id":   {Bucket: b, Limit: "credits", ID: long, Amount: 1},
		"no limit":    {Bucket: b, ID: "x", Amount: 1},
		"a long name": {Bucket: b, Limit: long, ID: "x", Amount: 1},
		"no bucket":   {Limit: "credits", ID: "x", Amount: 1},
	} {
		if _, err := e.Store.Credit(e.Context(), c); !errors.Is(err, store.ErrInvalid) {
			e.Errorf("%s: error %v, want %v", name, err, store.ErrInvalid)
		}
	}
	e.TakeFails(store.ErrInvalid, Loose(b, Charge(Override(Balance("credits")), 1)))
	if st, _ := e.State(b); len(st.Limits) > 0 {
		e.Errorf("left %+v", st)
	}
}

func creditKinds(e *Env) {
	b, l, rate := Bucket("alice", "api"), Balance("credits"), Still("credits", 10)
	e.Allow(Debit(b, Charge(rate, 3)))
	e.CreditFails(store.ErrNotBalance, b, "credits", 5, "inv-1")
	e.WantTokens(b, rate, 7)
	e.Refuse(At(2, Debit(b, Charge(l, 1)))) // it becomes a balance, without credits
	e.Settle(Debit(b, Charge(rate, -3)))    // nor does a return of what was spent before give any
	wantBalance(e, b, l, 0)
	e.Credit(b, "credits", 5, "inv-1")
	e.TakeFails(store.ErrNotBalance, At(3, Debit(b, Charge(rate, 0))))
	rpm := Still("rpm", 1)
	e.TakeFails(store.ErrNotBalance, At(3, Debit(b, Charge(rpm, 1), Charge(rate, 0))))
	wantBalance(e, b, l, 5)
	e.Allow(At(3, Debit(b, Charge(rpm, 1), Charge(l, 5)))) // rpm keeps the bucket from being forgotten
	e.Take(At(4, Debit(b, Charge(rpm, 0), Charge(rate, 0))))
	e.Settle(Debit(b, Charge(l, -3))) // credits that were spent are no tokens of a rate
	e.WantTokens(b, rate, 0)
	if got := e.Credit(b, "credits", 5, "inv-1"); !got.Before {
		e.Errorf("again: %+v", got)
	}
}

func creditReset(e *Env) {
	b, l, rpm := Bucket("alice", "api"), Balance("credits"), Still("rpm", 10)
	e.Credit(b, "credits", 5, "inv-1")
	e.Allow(Debit(b, Charge(rpm, 10), Charge(l, 2)))
	e.Forget(b)
	wantBalance(e, b, l, 3)
	e.WantTokens(b, rpm, 10)
	e.Allow(Debit(b, Charge(rpm, 10), Charge(l, 2)))
	if got := e.Credit(b, "credits", 5, "inv-1"); !got.Before || got.Level != -Token {
		e.Errorf("again: %+v", got)
	}
	e.Allow(Debit(b, Charge(rpm, 0), Charge(l, 1)))
	e.Forget(b)
	if got := e.Credit(b, "credits", 5, "inv-1"); !got.Before || got.Level != 0 {
		e.Errorf("again, once it is spent: %+v", got)
	}
}

// creditForgotten checks that the IDs of one balance are forgotten, and nothing else.
func creditForgotten(e *Env) {
	b, other := Bucket("alice", "api"), Bucket("alice", "ap")
	for i := range 150 {
		e.Credit(b, "credits", 1, fmt.Sprint("inv-", i))
	}
	e.Credit(b, "credits2", 3, "inv-1")
	e.Credit(b, "credit", 3, "inv-1")
	e.Credit(other, "credits", 3, "inv-1")
	for range 2 { // also if there are none any more
		if err := e.Store.ForgetCredits(e.Context(), b, "credits"); err != nil {
			e.Fatalf("forget: %v", err)
		}
	}
	wantBalance(e, b, Balance("credits"), 150)
	for i := range 150 {
		if got := e.Credit(b, "credits", 2, fmt.Sprint("inv-", i)); got.Before {
			e.Fatalf("credit %d is remembered: %+v", i, got)
		}
	}
	for _, at := range []struct {
		b     store.Bucket
		limit string
	}{{b, "credits2"}, {b, "credit"}, {other, "credits"}} {
		if got := e.Credit(at.b, at.limit, 3, "inv-1"); !got.Before || got.Level != -3*Token {
			e.Errorf("%s of %s: %+v", at.limit, at.b, got)
		}
	}
}

func creditRemoved(e *Env) {
	b, l, rpm := Bucket("alice", "api"), Balance("credits"), Still("rpm", 10)
	e.Credit(b, "credits", 5, "inv-1")
	e.Allow(Debit(b, Charge(rpm, 1), Charge(l, 1)))
	e.Allow(At(2, Debit(b, Charge(rpm, 1))))
	e.Credit(b, "credits", 2, "inv-2")
	e.Refuse(At(3, Debit(b, Charge(rpm, 1), Charge(l, 7))))
	e.Allow(At(3, Debit(b, Charge(rpm, 1), Charge(l, 6))))
}

// creditKept checks that nothing is lost or gained by time, and that the store does not forget.
func creditKept(e *Env) {
	b, l := Bucket("alice", "api"), Balance("credits")
	e.Credit(b, "credits", 5, "inv-1")
	e.Quiesce()
	if e.Harness.Kept != nil {
		if kept := e.Harness.Kept(e.Outer, e.Store, b); kept != math.MaxInt64 {
			e.Errorf("kept for %v", kept)
		}
	}
	for range 5 {
		e.Clock.Advance(366 * 24 * time.Hour)
		for i := range e.Some(400) { // births, with which full buckets go
			e.Allow(Debit(Bucket(fmt.Sprint("entity-", i), "api"), Charge(PerMinute("rpm", 10), 1)))
		}
		wantBalance(e, b, l, 5)
	}
	e.Allow(Debit(b, Charge(l, 5)))
	e.Refuse(Debit(b, Charge(l, 1)))
	if got := e.Credit(b, "credits", 5, "inv-1"); !got.Before {
		e.Errorf("again: %+v", got)
	}
}

// creditRandom compares sequences of calls with a sum.
func creditRandom(t testing.TB, h Harness) {
	n := 0
	e := Open(t, t, h, Noon)
	Property(t, h, func(rt *rapid.T) {
		n++
		b, l := Bucket(fmt.Sprint("entity-", n), "api"), Balance("credits")
		has, credited := int64(0), map[string]int64{}
		for range rapid.IntRange(1, 25).Draw(rt, "calls") {
			a := rapid.Int64Range(0, 1000).Draw(rt, "tokens")
			switch rapid.SampledFrom([]string{"credit", "take", "take", "force", "return"}).Draw(rt, "call") {
			case "credit":
				id := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(rt, "id")
				if was, ok := credited[id]; ok {
					a = was
				} else {
					a++
					has += a
				}
				if got := e.Credit(b, "credits", a, id); got.Before != (credited[id] != 0) || got.Level != -has*Token {
					rt.Fatalf("credited %d with %s: %+v, want %d", a, id, got, has)
				}
				credited[id] = a
			case "take":
				fits := a <= has
				if out := e.Take(Debit(b, Charge(l, a))); out.Allowed != fits {
					rt.Fatalf("a take of %d of %d: %s", a, has, Show(out))
				}
				if fits {
					has -= a
				}
			case "force":
				e.Settle(Debit(b, Charge(l, a)))
				has -= a
			case "return":
				if e.Meter(b, l) != nil {
					e.SettleOnce(giveBack(b, l, a))
					has += a
				}
			}
			e.Quiesce()
			wantBalance(e, b, l, has)
		}
	})
}
