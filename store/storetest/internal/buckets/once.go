package buckets

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

func onceScenarios() []Scenario {
	hand := Caps{HandClock: true}
	return []Scenario{
		{Name: "twice", Run: OnStore(onceTwice)},
		{Name: "other ids", Run: OnStore(onceOthers)},
		{Name: "another settle of the same id", Run: OnStore(onceReused)},
		{Name: "without a bucket", Run: OnStore(onceAbsent)},
		{Name: "without a debit", Run: OnStore(onceNothing)},
		{Name: "at once", Run: OnStore(func(e *Env) { onceAtOnce(e, e.Store) })},
		{Name: "at once from two clients", Peer: true, Run: OnStore(func(e *Env) {
			onceAtOnce(e, e.Store, e.Peer().Store)
		})},
		{Name: "after another client", Peer: true, Run: OnStore(oncePeer)},
		{Name: "expired", Run: OnStore(onceExpired)},
		{Name: "expires", Need: hand, Run: OnStore(onceExpires)},
		{Name: "remembered until it expires", Need: hand, Run: OnStore(onceRemembered)},
	}
}

func onceTwice(e *Env) {
	a, b, l := Bucket("alice", "api"), Bucket("bob", "api"), Still("rpm", 10)
	e.Allow(Debit(a, Charge(l, 10)), Debit(b, Charge(l, 10)))
	s := e.Once("lease-1", Debit(a, Charge(l, -4)), Debit(b, Charge(l, 1)))
	e.SettleOnce(s)
	for range 3 {
		e.SettleFails(store.ErrSettled, s)
	}
	e.WantTokens(a, l, 4)
	e.WantTokens(b, l, -1)
}

// onceNothing claims an ID without changing a bucket, as the return of a lease that holds nothing does.
func onceNothing(e *Env) {
	s := e.Once("lease-1")
	e.SettleOnce(s)
	e.SettleFails(store.ErrSettled, s)
}

func onceOthers(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 1000)
	for i := range 20 {
		e.SettleOnce(e.Once(fmt.Sprint("lease-", i), Debit(b, Charge(l, 1))))
	}
	e.Settle(Debit(b, Charge(l, 1))) // without an id, it counts each time
	e.Settle(Debit(b, Charge(l, 1)))
	e.WantTokens(b, l, 978)
}

func onceReused(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	e.SettleOnce(e.Once("lease", Debit(b, Charge(l, 1))))
	e.SettleFails(store.ErrSettled, e.Once("lease", Debit(b, Charge(l, 2))))
	e.SettleFails(store.ErrSettled, e.Once("lease", Debit(b, Charge(l, -1))))
	e.WantTokens(b, l, 9)
}

// onceAbsent checks that a settle counts as settled even if there was nothing to return to.
func onceAbsent(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	s := e.Once("lease", Debit(b, Charge(l, -5)))
	e.SettleOnce(s)
	e.Allow(Debit(b, Charge(l, 10)))
	e.SettleFails(store.ErrSettled, s)
	e.WantTokens(b, l, 0)
}

// onceAtOnce sends one settle from 32 goroutines: one is applied, and the others get ErrSettled.
func onceAtOnce(e *Env, clients ...store.Store) {
	e.Helper()
	b, l := Bucket("alice", "api"), Still("rpm", 1000)
	e.Allow(Debit(b, Charge(l, 1000)))
	for round := range e.Some(20) {
		s := e.Once(fmt.Sprint("lease-", round), Debit(b, Charge(l, -1)))
		var applied atomic.Int64
		e.Each(32, func(i int) {
			switch _, err := clients[i%len(clients)].Settle(e.Context(), s); {
			case err == nil:
				applied.Add(1)
			case !errors.Is(err, store.ErrSettled):
				e.Errorf("settle: error %v, want %v", err, store.ErrSettled)
			}
		})
		if n := applied.Load(); n != 1 {
			e.Fatalf("%d of 32 settles of one id say that they were applied", n)
		}
		e.WantTokens(b, l, int64(round+1))
	}
}

func oncePeer(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	e.Allow(Debit(b, Charge(l, 10)))
	s := e.Once("lease", Debit(b, Charge(l, -5)))
	e.SettleOnce(s)
	p := e.Peer()
	p.SettleFails(store.ErrSettled, s)
	s.ID = "lease-2"
	p.SettleOnce(s)
	e.SettleFails(store.ErrSettled, s)
	p.Quiesce()
	e.WantTokens(b, l, 10)
}

func onceExpired(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	s := e.Once("lease", Debit(b, Charge(l, 1)))
	s.Expires = e.Now().Add(-time.Hour)
	e.SettleFails(store.ErrExpired, s)
	s.Debits[0].Charges[0].Amount = -1
	e.SettleFails(store.ErrExpired, s)
	e.WantTokens(b, l, 10)
	s = e.Once("lease", Debit(b, Charge(l, 2))) // the expired settle was never applied
	e.SettleOnce(s)
	e.WantTokens(b, l, 8)
}

func onceExpires(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	early, late := e.Once("early", Debit(b, Charge(l, 1))), e.Once("late", Debit(b, Charge(l, 1)))
	e.Clock.Set(late.Expires.Add(-time.Nanosecond))
	e.SettleOnce(early)
	e.Clock.Set(late.Expires.Add(time.Nanosecond))
	e.SettleFails(store.ErrExpired, late)
	settleTwiceFails(e, early)
	e.WantTokens(b, l, 9)
}

// settleTwiceFails allows both outcomes: after its expiry, an applied settle may be remembered or count as expired.
func settleTwiceFails(e *Env, s store.Settle) {
	e.Helper()
	if _, err := e.Store.Settle(e.Context(), s); !errors.Is(err, store.ErrExpired) &&
		!errors.Is(err, store.ErrSettled) {
		e.Fatalf("settle: error %v, want %v", err, store.ErrExpired)
	}
}

// onceRemembered checks that no id is forgotten early, however many others come and expire meanwhile.
func onceRemembered(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 1_000_000)
	n := e.Some(3000)
	long := e.Once("long", Debit(b, Charge(l, 1)))
	e.SettleOnce(long)
	for i := range n {
		s := e.Once(fmt.Sprint("short-", i), Debit(b, Charge(l, 1)))
		s.Expires = e.Now().Add(time.Second)
		e.SettleOnce(s)
		if i%100 == 0 {
			e.SettleFails(store.ErrSettled, s)
			e.SettleFails(store.ErrSettled, long)
		}
		e.Clock.Advance(time.Millisecond)
	}
	e.SettleFails(store.ErrSettled, long)
	e.WantTokens(b, l, 1_000_000-int64(n)-1)
}
