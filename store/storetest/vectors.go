package storetest

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// The worked vectors of docs/format/token-clock.md, by their numbers there.
func vectorScenarios() []scenario {
	hand := Caps{HandClock: true}
	return []scenario{
		{name: "1-4 drain and wait", need: hand, run: vector(0, vectorDrain)},
		{name: "5 one burst after idling", need: hand, run: vector(0, vectorIdle)},
		{name: "6-7 debt and return", need: hand, run: vector(0, vectorDebt)},
		{name: "8 seven a minute", need: hand, run: vector(0, vectorSeven)},
		{name: "9 a million a minute", need: hand, run: vector(0, vectorMillion)},
		{name: "10 more than the burst", need: hand, run: vector(0, vectorBurst)},
		{name: "11-12 the limit changes", need: hand, run: vector(0, vectorChange)},
		{name: "13 two limits", need: hand, run: vector(0, vectorTwo)},
		{name: "14 before the epoch", need: hand, run: vector(-1, vectorBefore)},
		{name: "15 held back by what it owes", need: hand, run: vector(0, vectorOwing)},
	}
}

// vector turns f into a scenario that begins ms milliseconds after the epoch.
func vector(ms int64, f func(e *env)) func(testing.TB, Harness) {
	return func(t testing.TB, h Harness) {
		t.Helper()
		f(open(t, t, h, reckon.Epoch.Add(time.Duration(ms)*time.Millisecond)))
	}
}

func (e *env) ms(ms float64) {
	e.clock.Set(reckon.Epoch.Add(time.Duration(ms * float64(time.Millisecond))))
}

// wantRetry checks when a refused charge will fit, according to the level in the refusal.
func (e *env) wantRetry(out store.Outcome, i int, c store.Charge, want time.Duration) {
	e.Helper()
	got, ok := retryAfter(out, i, c.Amount)
	if !ok || got != want {
		e.Fatalf("retry after %v (%t), want %v: %s", got, ok, want, show(out))
	}
}

func retryAfter(out store.Outcome, i int, amount int64) (time.Duration, bool) {
	l := out.Levels[i]
	p := clock.Params{Amount: l.Limit.Amount, Period: int64(l.Limit.Period), Burst: l.Limit.Burst}
	return p.RetryAfter(l.Level, clock.Nanos(out.At), amount)
}

func vectorDrain(e *env) {
	b, l := bkt("alice", "api"), perMinute("rpm", 100)
	one := debit(b, charge(l, 1))
	e.allow(debit(b, charge(l, 100)))
	e.wantTokens(b, l, 0)
	e.wantRetry(e.refuse(one), 0, charge(l, 1), 600*time.Millisecond)
	e.ms(599)
	e.wantRetry(e.refuse(one), 0, charge(l, 1), time.Millisecond)
	e.ms(600)
	e.allow(one)
	e.wantTokens(b, l, 0)
}

func vectorIdle(e *env) {
	b, l := bkt("alice", "api"), perMinute("rpm", 100)
	e.clock.Advance(time.Hour)
	e.allow(debit(b, charge(l, 100)))
	e.refuse(debit(b, charge(l, 1)))
	e.clock.Advance(time.Hour)
	e.allow(debit(b, charge(l, 100)))
	e.refuse(debit(b, charge(l, 1)))
}

func vectorDebt(e *env) {
	b, l := bkt("alice", "api"), perMinute("rpm", 100)
	e.allow(debit(b, charge(l, 100)))
	e.allow(debit(b, force(l, 20)))
	e.wantTokens(b, l, -20)
	e.wantRetry(e.refuse(debit(b, charge(l, 1))), 0, charge(l, 1), 12_600*time.Millisecond)
	e.settle(debit(b, charge(l, -20)))
	e.wantTokens(b, l, 0)
}

func vectorSeven(e *env) {
	b, l := bkt("alice", "api"), perMinute("rpm", 7)
	e.allow(debit(b, charge(l, 7)))
	admitted := 0
	for ms := 0; ms <= 60_000; ms++ {
		next := 60_000 * (admitted + 1) / 7 // the last ms before the next token is due, unless it is due within it
		if e.h.Caps.Remote && ms < next-1 {
			continue
		}
		e.ms(float64(ms))
		if !e.take(debit(b, charge(l, 1))).Allowed {
			continue
		}
		admitted++
		if due := (60_000*admitted + 6) / 7; ms != due {
			e.Fatalf("token %d admitted at %d ms, want %d", admitted, ms, due)
		}
	}
	if admitted != 7 {
		e.Fatalf("%d admitted, want 7", admitted)
	}
}

// vectorMillion debits 25 tokens 2,000 times a second, or over a network 500 tokens 100 times a second.
func vectorMillion(e *env) {
	b, l := bkt("alice", "api"), perMinute("rpm", 1_000_000)
	writes, amount := 2000, int64(25)
	if e.h.Caps.Remote {
		writes, amount = 100, 500
	}
	e.allow(debit(b, charge(l, 1_000_000)))
	admitted := int64(0)
	for i := 1; i <= 60*writes; i++ {
		e.clock.Set(reckon.Epoch.Add(time.Duration(i) * time.Second / time.Duration(writes)))
		if e.take(debit(b, charge(l, amount))).Allowed {
			admitted += amount
		}
	}
	if admitted != 1_000_000 {
		e.Fatalf("%d admitted, want 1,000,000", admitted)
	}
}

func vectorBurst(e *env) {
	b, l := bkt("alice", "api"), perMinute("rpm", 100)
	out := e.refuse(debit(b, charge(l, 101)))
	if d, ok := retryAfter(out, 0, 101*tok); ok || !out.Levels[0].Refused {
		e.Fatalf("more than the burst is to be refused for good: retry after %v, %s", d, show(out))
	}
	e.wantTokens(b, l, 100)
}

func vectorChange(e *env) {
	small, large := perMinute("rpm", 100), perMinute("rpm", 200)

	b := bkt("raised", "api")
	e.allow(at(1, debit(b, charge(small, 100))))
	e.allow(at(2, debit(b, charge(large, 0))))
	e.wantTokens(b, large, 100)

	b = bkt("lowered", "api")
	e.allow(at(1, debit(b, charge(large, 150))))
	e.refuse(at(2, debit(b, charge(small, 0))))
	e.wantTokens(b, small, -50)
}

func vectorTwo(e *env) {
	b, rpm, tpm := bkt("alice", "api"), perMinute("rpm", 10), perMinute("tpm", 1000)
	out := e.refuse(debit(b, charge(rpm, 1), charge(tpm, 1001)))
	e.wantLevels(out, wantLevel{rpm, 10 * tok, false}, wantLevel{tpm, 1000 * tok, true})
	e.wantTokens(b, rpm, 10)
	e.wantTokens(b, tpm, 1000)
}

func vectorBefore(e *env) {
	b, l := bkt("alice", "api"), perMinute("rpm", 100)
	l.Burst = 1 * tok
	e.allow(debit(b, charge(l, 1)))
	e.ms(0)
	e.wantRetry(e.refuse(debit(b, charge(l, 1))), 0, charge(l, 1), 598_800*time.Microsecond)
}

func vectorOwing(e *env) {
	b, rpm, tpm := bkt("alice", "api"), perMinute("rpm", 10), perMinute("tpm", 1000)
	e.settle(debit(b, charge(tpm, 1500)))
	out := e.refuse(debit(b, charge(rpm, 1), charge(tpm, 0)))
	e.wantLevels(out, wantLevel{rpm, 10 * tok, false}, wantLevel{tpm, -500 * tok, true})
	e.wantRetry(out, 1, charge(tpm, 0), 30*time.Second)
	e.wantTokens(b, rpm, 10)
}
