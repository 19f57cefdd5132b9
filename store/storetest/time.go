package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

func timeScenarios() []scenario {
	hand := Caps{HandClock: true}
	return []scenario{
		{name: "back an hour", need: hand, run: each(timeBack)},
		{name: "back to before a refill", need: hand, run: each(timeBackFull)},
		{name: "back to before an eviction", need: hand, run: each(timeBackEvicted)},
		{name: "idle debtors", need: hand, run: each(timeDebtors)},
		{name: "back to before a change of limits", need: hand, run: each(timeBackChange)},
		{name: "back to before an override was forgotten", need: hand, run: each(timeBackOverride)},
		{name: "back and on", need: hand, run: each(timeOn)},
		{name: "ten years on", need: hand, run: each(timeLeap)},
		{name: "before the epoch", need: hand, run: timeBefore},
		{name: "never falls short of a decision", run: each(timeMonotone)},
	}
}

// ledgerTake takes and records it in the books.
func (e *env) ledgerTake(books ledger, debits ...store.Debit) store.Outcome {
	e.Helper()
	out := e.take(debits...)
	books.take(debits, out)
	if err := books.check(); err != nil {
		e.Fatalf("%v", err)
	}
	return out
}

func timeBack(e *env) {
	b, l, books := bkt("alice", "api"), perMinute("rpm", 60), ledger{}
	e.ledgerTake(books, debit(b, charge(l, 50)))
	e.clock.Advance(-time.Hour)
	if e.ledgerTake(books, debit(b, charge(l, 11))).Allowed {
		e.Fatalf("the past admits more than the present")
	}
	e.clock.Advance(time.Hour)
	e.wantTokens(b, l, 10)
	e.allow(debit(b, charge(l, 10)))
}

// timeBackFull drains a bucket in the past that has since filled up.
func timeBackFull(e *env) {
	b, l, books := bkt("alice", "api"), perMinute("rpm", 60), ledger{}
	begin := e.clock.Now()
	e.ledgerTake(books, debit(b, charge(l, 60)))
	e.clock.Advance(time.Hour)
	e.wantTokens(b, l, 60) // and seen to be full
	for range 5 {
		e.clock.Set(begin.Add(time.Second))
		e.ledgerTake(books, debit(b, charge(l, 60)))
		e.ledgerTake(books, debit(b, charge(l, 1)))
	}
	e.clock.Set(begin.Add(time.Hour))
	e.ledgerTake(books, debit(b, charge(l, 60)))
	if e.ledgerTake(books, debit(b, charge(l, 1))).Allowed {
		e.Fatalf("two bursts in one hour that was full")
	}
}

// timeBackEvicted does so while the store may have evicted the bucket to make room for others.
func timeBackEvicted(e *env) {
	b, l, books := bkt("alice", "api"), perMinute("rpm", 60), ledger{}
	begin := e.clock.Now()
	e.ledgerTake(books, debit(b, charge(l, 60)))
	for round := range 3 {
		e.clock.Advance(time.Hour)
		for i := range e.some(500) {
			e.allow(debit(bkt(fmt.Sprint("other-", round, "-", i), "api"), charge(l, 60)))
		}
		now := e.clock.Now()
		e.clock.Set(begin.Add(time.Duration(round) * time.Second))
		e.ledgerTake(books, debit(b, charge(l, 60)))
		e.ledgerTake(books, debit(b, charge(l, 1)))
		for i := range 20 { // nor are any of the others full in the past
			if e.take(debit(bkt(fmt.Sprint("other-", round, "-", i), "api"), charge(l, 1))).Allowed {
				e.Fatalf("a drained bucket admits in the past")
			}
		}
		e.clock.Set(now)
		e.ledgerTake(books, debit(b, charge(l, 60)))
	}
}

// timeDebtors checks that what a bucket owes is not forgotten, however long it is idle and however many others are
// created.
func timeDebtors(e *env) {
	slow := &store.Limit{Name: "rpd", Amount: 24_000, Period: 24 * time.Hour, Burst: 24_000}
	quick, b := perMinute("rpm", 60), bkt("alice", "api")
	e.allow(debit(b, charge(slow, 24)))
	for hour := range 12 {
		e.clock.Advance(time.Hour)
		for i := range e.some(200) {
			e.allow(debit(bkt(fmt.Sprint("other-", hour, "-", i), "api"), charge(quick, 60)))
		}
	}
	e.refuse(debit(b, charge(slow, 13)))
	e.allow(debit(b, charge(slow, 12)))
}

// timeBackChange goes back to before a change of limits by a refused take. Either earlier times no longer count, or
// what was outstanding then still is.
func timeBackChange(e *env) {
	b, fast, slow := bkt("alice", "api"), perMinute("rpm", 6000), per("rpm", 6000, 6000*time.Hour)
	first := e.allow(at(1, debit(b, charge(fast, 6000))))
	e.clock.Advance(time.Hour)
	e.refuse(at(2, debit(b, charge(slow, 6001))))
	e.clock.Advance(-time.Hour)
	st, now := e.state(b)
	m := reckon.Find(st, slow)
	if m == nil {
		return // full by then, and forgotten
	}
	issued := reckon.Reading(fast, now) - reckon.Reading(fast, first.At)
	if got := reckon.Outstanding(m.Limit, m.Level, now); got < 6000*tok-issued {
		e.Fatalf(
			"%d millitokens outstanding at %v, 6,000,000 were at %v and %d were issued since", got, now, first.At,
			issued,
		)
	}
}

// timeBackOverride covers an override that was full and made room for another, in a take that was refused.
func timeBackOverride(e *env) {
	b, books := bkt("alice", "api"), ledger{}
	over, other := override(perMinute("rpm", 60)), override(perMinute("rpm", 70))
	e.ledgerTake(books, loose(b, charge(over, 60)))
	e.clock.Advance(time.Hour)
	e.ledgerTake(books, loose(b, charge(other, 71)))
	e.clock.Advance(-time.Hour)
	e.ledgerTake(books, loose(b, charge(over, 60)))
	e.ledgerTake(books, loose(b, charge(over, 60)))
}

// timeOn checks that a clock that went back and returns costs nothing.
func timeOn(e *env) {
	b, l, books := bkt("alice", "api"), perMinute("rpm", 60), ledger{}
	e.ledgerTake(books, debit(b, charge(l, 60)))
	wait, _ := retryAfter(e.ledgerTake(books, debit(b, charge(l, 1))), 0, 1*tok)
	e.clock.Advance(-time.Hour)
	e.ledgerTake(books, debit(b, charge(l, 1)))
	e.clock.Advance(time.Hour + wait - time.Nanosecond)
	if e.ledgerTake(books, debit(b, charge(l, 1))).Allowed {
		e.Fatalf("admitted 1ns early")
	}
	e.clock.Advance(time.Nanosecond)
	if !e.ledgerTake(books, debit(b, charge(l, 1))).Allowed {
		e.Fatalf("what the clock had issued was lost on the way back")
	}
}

func timeLeap(e *env) {
	b, l, books := bkt("alice", "api"), perMinute("rpm", 60), ledger{}
	for range 3 {
		e.ledgerTake(books, debit(b, charge(l, 60)))
		e.ledgerTake(books, debit(b, charge(l, 1)))
		e.clock.Advance(10 * 365 * 24 * time.Hour)
		e.wantTokens(b, l, 60)
	}
}

// timeBefore uses times before the epoch, which recorded logs may have.
func timeBefore(t testing.TB, h Harness) {
	e := open(t, t, h, time.Date(1995, time.May, 3, 10, 0, 0, 1, time.UTC))
	b, l, books := bkt("alice", "api"), perMinute("rpm", 7), ledger{}
	e.wantTokens(b, l, 7)
	if !e.ledgerTake(books, debit(b, charge(l, 7))).Allowed {
		t.Fatalf("a fresh bucket refuses its burst")
	}
	out := e.refuse(debit(b, charge(l, 1)))
	after, _ := retryAfter(out, 0, 1*tok)
	if after < 60*time.Second/7-time.Minute/7000 || after > 60*time.Second/7+time.Minute/7000 {
		t.Fatalf("retry after %v, want a seventh of a minute", after)
	}
	e.clock.Advance(after - 1)
	e.refuse(debit(b, charge(l, 1)))
	e.clock.Advance(1)
	e.allow(debit(b, charge(l, 1)))
	e.clock.Set(reckon.Epoch)
	e.wantTokens(b, l, 7)
}

// timeMonotone checks that the times of Peek and of lists are not before earlier decisions.
func timeMonotone(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 1000)
	for range 20 {
		out := e.allow(debit(b, charge(l, 1)))
		page, err := e.store.Buckets(e.Context(), store.BucketQuery{Namespace: "n"})
		if err != nil {
			e.Fatalf("buckets: %v", err)
		}
		if now := e.now(); now.Before(out.At) || page.At.Before(out.At) {
			e.Fatalf("decided at %v; peek says %v, the list %v", out.At, now, page.At)
		}
		e.clock.Advance(time.Millisecond)
	}
}
