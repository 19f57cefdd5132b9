package storetest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
)

func onceScenarios() []scenario {
	hand := Caps{HandClock: true}
	return []scenario{
		{name: "twice", run: each(onceTwice)},
		{name: "other ids", run: each(onceOthers)},
		{name: "another settle of the same id", run: each(onceReused)},
		{name: "without a bucket", run: each(onceAbsent)},
		{name: "without a debit", run: each(onceNothing)},
		{name: "at once", run: each(func(e *env) { e.onceAtOnce(e.store) })},
		{name: "at once from two clients", peer: true, run: each(func(e *env) {
			e.onceAtOnce(e.store, e.peer().store)
		})},
		{name: "after another client", peer: true, run: each(oncePeer)},
		{name: "expired", run: each(onceExpired)},
		{name: "expires", need: hand, run: each(onceExpires)},
		{name: "remembered until it expires", need: hand, run: each(onceRemembered)},
	}
}

// soon returns an expiry time for settles of this test.
func (e *env) soon() time.Time { return e.now().Add(time.Hour) }

func (e *env) once(id string, debits ...store.Debit) store.Settle {
	return store.Settle{Debits: debits, ID: id, Expires: e.soon()}
}

func (e *env) settleOnce(s store.Settle) store.Outcome {
	e.Helper()
	out, err := e.store.Settle(e.Context(), s)
	if err != nil {
		e.Fatalf("settle %q: %v", s.ID, err)
	}
	return out
}

func onceTwice(e *env) {
	a, b, l := bkt("alice", "api"), bkt("bob", "api"), still("rpm", 10)
	e.allow(debit(a, charge(l, 10)), debit(b, charge(l, 10)))
	s := e.once("lease-1", debit(a, charge(l, -4)), debit(b, charge(l, 1)))
	e.settleOnce(s)
	for range 3 {
		e.settleFails(store.ErrSettled, s)
	}
	e.wantTokens(a, l, 4)
	e.wantTokens(b, l, -1)
}

// onceNothing claims an ID without changing a bucket, as the return of a lease that holds nothing does.
func onceNothing(e *env) {
	s := e.once("lease-1")
	e.settleOnce(s)
	e.settleFails(store.ErrSettled, s)
}

func onceOthers(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 1000)
	for i := range 20 {
		e.settleOnce(e.once(fmt.Sprint("lease-", i), debit(b, charge(l, 1))))
	}
	e.settle(debit(b, charge(l, 1))) // without an id, it counts each time
	e.settle(debit(b, charge(l, 1)))
	e.wantTokens(b, l, 978)
}

func onceReused(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 10)
	e.settleOnce(e.once("lease", debit(b, charge(l, 1))))
	e.settleFails(store.ErrSettled, e.once("lease", debit(b, charge(l, 2))))
	e.settleFails(store.ErrSettled, e.once("lease", debit(b, charge(l, -1))))
	e.wantTokens(b, l, 9)
}

// onceAbsent checks that a settle counts as settled even if there was nothing to return to.
func onceAbsent(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 10)
	s := e.once("lease", debit(b, charge(l, -5)))
	e.settleOnce(s)
	e.allow(debit(b, charge(l, 10)))
	e.settleFails(store.ErrSettled, s)
	e.wantTokens(b, l, 0)
}

// onceAtOnce sends one settle from 32 goroutines: one is applied, and the others get ErrSettled.
func (e *env) onceAtOnce(clients ...store.Store) {
	e.Helper()
	b, l := bkt("alice", "api"), still("rpm", 1000)
	e.allow(debit(b, charge(l, 1000)))
	for round := range e.some(20) {
		s := e.once(fmt.Sprint("lease-", round), debit(b, charge(l, -1)))
		var applied atomic.Int64
		e.each(32, func(i int) {
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
		e.wantTokens(b, l, int64(round+1))
	}
}

func oncePeer(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 10)
	e.allow(debit(b, charge(l, 10)))
	s := e.once("lease", debit(b, charge(l, -5)))
	e.settleOnce(s)
	p := e.peer()
	p.settleFails(store.ErrSettled, s)
	s.ID = "lease-2"
	p.settleOnce(s)
	e.settleFails(store.ErrSettled, s)
	p.quiesce()
	e.wantTokens(b, l, 10)
}

func onceExpired(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 10)
	s := e.once("lease", debit(b, charge(l, 1)))
	s.Expires = e.now().Add(-time.Hour)
	e.settleFails(store.ErrExpired, s)
	s.Debits[0].Charges[0].Amount = -1
	e.settleFails(store.ErrExpired, s)
	e.wantTokens(b, l, 10)
	s = e.once("lease", debit(b, charge(l, 2))) // the expired settle was never applied
	e.settleOnce(s)
	e.wantTokens(b, l, 8)
}

func onceExpires(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 10)
	early, late := e.once("early", debit(b, charge(l, 1))), e.once("late", debit(b, charge(l, 1)))
	e.clock.Set(late.Expires.Add(-time.Nanosecond))
	e.settleOnce(early)
	e.clock.Set(late.Expires.Add(time.Nanosecond))
	e.settleFails(store.ErrExpired, late)
	e.settleTwiceFails(early)
	e.wantTokens(b, l, 9)
}

// settleTwiceFails allows both outcomes: after its expiry, an applied settle may be remembered or count as expired.
func (e *env) settleTwiceFails(s store.Settle) {
	e.Helper()
	if _, err := e.store.Settle(e.Context(), s); !errors.Is(err, store.ErrExpired) &&
		!errors.Is(err, store.ErrSettled) {
		e.Fatalf("settle: error %v, want %v", err, store.ErrExpired)
	}
}

// onceRemembered checks that no id is forgotten early, however many others come and expire meanwhile.
func onceRemembered(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 1_000_000)
	n := e.some(3000)
	long := e.once("long", debit(b, charge(l, 1)))
	e.settleOnce(long)
	for i := range n {
		s := e.once(fmt.Sprint("short-", i), debit(b, charge(l, 1)))
		s.Expires = e.now().Add(time.Second)
		e.settleOnce(s)
		if i%100 == 0 {
			e.settleFails(store.ErrSettled, s)
			e.settleFails(store.ErrSettled, long)
		}
		e.clock.Advance(time.Millisecond)
	}
	e.settleFails(store.ErrSettled, long)
	e.wantTokens(b, l, 1_000_000-int64(n)-1)
}
