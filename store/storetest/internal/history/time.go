package history

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

func timeScenarios() []Scenario {
	hand := Caps{HandClock: true}
	return []Scenario{
		{Name: "back an hour", Need: hand, Run: OnStore(timeBack)},
		{Name: "back to before a refill", Need: hand, Run: OnStore(timeBackFull)},
		{Name: "back to before an eviction", Need: hand, Run: OnStore(timeBackEvicted)},
		{Name: "idle debtors", Need: hand, Run: OnStore(timeDebtors)},
		{Name: "back to before a change of limits", Need: hand, Run: OnStore(timeBackChange)},
		{Name: "back to before an override was forgotten", Need: hand, Run: OnStore(timeBackOverride)},
		{Name: "back and on", Need: hand, Run: OnStore(timeOn)},
		{Name: "ten years on", Need: hand, Run: OnStore(timeLeap)},
		{Name: "before the epoch", Need: hand, Run: timeBefore},
		{Name: "never falls short of a decision", Run: OnStore(timeMonotone)},
	}
}

// ledgerTake takes and records it in the books.
func ledgerTake(e *Env, books ledger, debits ...store.Debit) store.Outcome {
	e.Helper()
	out := e.Take(debits...)
	books.take(debits, out)
	if err := books.check(); err != nil {
		e.Fatalf("%v", err)
	}
	return out
}

func timeBack(e *Env) {
	b, l, books := Bucket("alice", "api"), PerMinute("rpm", 60), ledger{}
	ledgerTake(e, books, Debit(b, Charge(l, 50)))
	e.Clock.Advance(-time.Hour)
	if ledgerTake(e, books, Debit(b, Charge(l, 11))).Allowed {
		e.Fatalf("the past admits more than the present")
	}
	e.Clock.Advance(time.Hour)
	e.WantTokens(b, l, 10)
	e.Allow(Debit(b, Charge(l, 10)))
}

// timeBackFull drains a bucket in the past that has since filled up.
func timeBackFull(e *Env) {
	b, l, books := Bucket("alice", "api"), PerMinute("rpm", 60), ledger{}
	begin := e.Clock.Now()
	ledgerTake(e, books, Debit(b, Charge(l, 60)))
	e.Clock.Advance(time.Hour)
	e.WantTokens(b, l, 60) // and seen to be full
	for range 5 {
		e.Clock.Set(begin.Add(time.Second))
		ledgerTake(e, books, Debit(b, Charge(l, 60)))
		ledgerTake(e, books, Debit(b, Charge(l, 1)))
	}
	e.Clock.Set(begin.Add(time.Hour))
	ledgerTake(e, books, Debit(b, Charge(l, 60)))
	if ledgerTake(e, books, Debit(b, Charge(l, 1))).Allowed {
		e.Fatalf("two bursts in one hour that was full")
	}
}

// timeBackEvicted does so while the store may have evicted the bucket to make room for others.
func timeBackEvicted(e *Env) {
	b, l, books := Bucket("alice", "api"), PerMinute("rpm", 60), ledger{}
	begin := e.Clock.Now()
	ledgerTake(e, books, Debit(b, Charge(l, 60)))
	for round := range 3 {
		e.Clock.Advance(time.Hour)
		for i := range e.Some(500) {
			e.Allow(Debit(Bucket(fmt.Sprint("other-", round, "-", i), "api"), Charge(l, 60)))
		}
		now := e.Clock.Now()
		e.Clock.Set(begin.Add(time.Duration(round) * time.Second))
		ledgerTake(e, books, Debit(b, Charge(l, 60)))
		ledgerTake(e, books, Debit(b, Charge(l, 1)))
		for i := range 20 { // nor are any of the others full in the past
			if e.Take(Debit(Bucket(fmt.Sprint("other-", round, "-", i), "api"), Charge(l, 1))).Allowed {
				e.Fatalf("a drained bucket admits in the past")
			}
		}
		e.Clock.Set(now)
		ledgerTake(e, books, Debit(b, Charge(l, 60)))
	}
}

// timeDebtors checks that what a bucket owes is not forgotten, however long it is idle and however many others are
// created.
func timeDebtors(e *Env) {
	slow := &store.Limit{Name: "rpd", Amount: 24_000, Period: 24 * time.Hour, Burst: 24_000}
	quick, b := PerMinute("rpm", 60), Bucket("alice", "api")
	e.Allow(Debit(b, Charge(slow, 24)))
	for hour := range 12 {
		e.Clock.Advance(time.Hour)
		for i := range e.Some(200) {
			e.Allow(Debit(Bucket(fmt.Sprint("other-", hour, "-", i), "api"), Charge(quick, 60)))
		}
	}
	e.Refuse(Debit(b, Charge(slow, 13)))
	e.Allow(Debit(b, Charge(slow, 12)))
}

// timeBackChange goes back to before a change of limits by a refused take. Either earlier times no longer count, or
// what was outstanding then still is.
func timeBackChange(e *Env) {
	b, fast, slow := Bucket("alice", "api"), PerMinute("rpm", 6000), Per("rpm", 6000, 6000*time.Hour)
	first := e.Allow(At(1, Debit(b, Charge(fast, 6000))))
	e.Clock.Advance(time.Hour)
	e.Refuse(At(2, Debit(b, Charge(slow, 6001))))
	e.Clock.Advance(-time.Hour)
	st, now := e.State(b)
	m := reckon.Find(st, slow)
	if m == nil {
		return // full by then, and forgotten
	}
	issued := reckon.Reading(fast, now) - reckon.Reading(fast, first.At)
	if got := reckon.Outstanding(m.Limit, m.Level, now); got < 6000*Token-issued {
		e.Fatalf(
			"%d millitokens outstanding at %v, 6,000,000 were at %v and %d were issued since", got, now, first.At,
			issued,
		)
	}
}

// timeBackOverride covers an override that was full and made room for another, in a take that was refused.
func timeBackOverride(e *Env) {
	b, books := Bucket("alice", "api"), ledger{}
	over, other := Override(PerMinute("rpm", 60)), Override(PerMinute("rpm", 70))
	ledgerTake(e, books, Loose(b, Charge(over, 60)))
	e.Clock.Advance(time.Hour)
	ledgerTake(e, books, Loose(b, Charge(other, 71)))
	e.Clock.Advance(-time.Hour)
	ledgerTake(e, books, Loose(b, Charge(over, 60)))
	ledgerTake(e, books, Loose(b, Charge(over, 60)))
}

// timeOn checks that a clock that went back and returns costs nothing.
func timeOn(e *Env) {
	b, l, books := Bucket("alice", "api"), PerMinute("rpm", 60), ledger{}
	ledgerTake(e, books, Debit(b, Charge(l, 60)))
	wait, _ := RetryAfter(ledgerTake(e, books, Debit(b, Charge(l, 1))), 0, 1*Token)
	e.Clock.Advance(-time.Hour)
	ledgerTake(e, books, Debit(b, Charge(l, 1)))
	e.Clock.Advance(time.Hour + wait - time.Nanosecond)
	if ledgerTake(e, books, Debit(b, Charge(l, 1))).Allowed {
		e.Fatalf("admitted 1ns early")
	}
	e.Clock.Advance(time.Nanosecond)
	if !ledgerTake(e, books, Debit(b, Charge(l, 1))).Allowed {
		e.Fatalf("what the clock had issued was lost on the way back")
	}
}

func timeLeap(e *Env) {
	b, l, books := Bucket("alice", "api"), PerMinute("rpm", 60), ledger{}
	for range 3 {
		ledgerTake(e, books, Debit(b, Charge(l, 60)))
		ledgerTake(e, books, Debit(b, Charge(l, 1)))
		e.Clock.Advance(10 * 365 * 24 * time.Hour)
		e.WantTokens(b, l, 60)
	}
}

// timeBefore uses times before the epoch, which recorded logs may have.
func timeBefore(t testing.TB, h Harness) {
	e := Open(t, t, h, time.Date(1995, time.May, 3, 10, 0, 0, 1, time.UTC))
	b, l, books := Bucket("alice", "api"), PerMinute("rpm", 7), ledger{}
	e.WantTokens(b, l, 7)
	if !ledgerTake(e, books, Debit(b, Charge(l, 7))).Allowed {
		t.Fatalf("a fresh bucket refuses its burst")
	}
	out := e.Refuse(Debit(b, Charge(l, 1)))
	after, _ := RetryAfter(out, 0, 1*Token)
	if after < 60*time.Second/7-time.Minute/7000 || after > 60*time.Second/7+time.Minute/7000 {
		t.Fatalf("retry after %v, want a seventh of a minute", after)
	}
	e.Clock.Advance(after - 1)
	e.Refuse(Debit(b, Charge(l, 1)))
	e.Clock.Advance(1)
	e.Allow(Debit(b, Charge(l, 1)))
	e.Clock.Set(reckon.Epoch)
	e.WantTokens(b, l, 7)
}

// timeMonotone checks that the times of Peek and of lists are not before earlier decisions.
func timeMonotone(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 1000)
	for range 20 {
		out := e.Allow(Debit(b, Charge(l, 1)))
		page, err := e.Store.Buckets(e.Context(), store.BucketQuery{Namespace: "n"})
		if err != nil {
			e.Fatalf("buckets: %v", err)
		}
		if now := e.Now(); now.Before(out.At) || page.At.Before(out.At) {
			e.Fatalf("decided at %v; peek says %v, the list %v", out.At, now, page.At)
		}
		e.Clock.Advance(time.Millisecond)
	}
}
