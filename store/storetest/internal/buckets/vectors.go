package buckets

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// The worked vectors of docs/format/token-clock.md, by their numbers there.
func vectorScenarios() []Scenario {
	hand := Caps{HandClock: true}
	return []Scenario{
		{Name: "1-4 drain and wait", Need: hand, Run: vector(0, vectorDrain)},
		{Name: "5 one burst after idling", Need: hand, Run: vector(0, vectorIdle)},
		{Name: "6-7 debt and return", Need: hand, Run: vector(0, vectorDebt)},
		{Name: "8 seven a minute", Need: hand, Run: vector(0, vectorSeven)},
		{Name: "9 a million a minute", Need: hand, Run: vector(0, vectorMillion)},
		{Name: "10 more than the burst", Need: hand, Run: vector(0, vectorBurst)},
		{Name: "11-12 the limit changes", Need: hand, Run: vector(0, vectorChange)},
		{Name: "13 two limits", Need: hand, Run: vector(0, vectorTwo)},
		{Name: "14 before the epoch", Need: hand, Run: vector(-1, vectorBefore)},
		{Name: "15 held back by what it owes", Need: hand, Run: vector(0, vectorOwing)},
	}
}

// vector turns f into a scenario that begins ms milliseconds after the epoch.
func vector(ms int64, f func(e *Env)) func(testing.TB, Harness) {
	return func(t testing.TB, h Harness) {
		t.Helper()
		f(Open(t, t, h, reckon.Epoch.Add(time.Duration(ms)*time.Millisecond)))
	}
}

func setMillis(e *Env, ms float64) {
	e.Clock.Set(reckon.Epoch.Add(time.Duration(ms * float64(time.Millisecond))))
}

// wantRetry checks when a refused charge will fit, according to the level in the refusal.
func wantRetry(e *Env, out store.Outcome, i int, c store.Charge, want time.Duration) {
	e.Helper()
	got, ok := RetryAfter(out, i, c.Amount)
	if !ok || got != want {
		e.Fatalf("retry after %v (%t), want %v: %s", got, ok, want, Show(out))
	}
}

func vectorDrain(e *Env) {
	b, l := Bucket("alice", "api"), PerMinute("rpm", 100)
	one := Debit(b, Charge(l, 1))
	e.Allow(Debit(b, Charge(l, 100)))
	e.WantTokens(b, l, 0)
	wantRetry(e, e.Refuse(one), 0, Charge(l, 1), 600*time.Millisecond)
	setMillis(e, 599)
	wantRetry(e, e.Refuse(one), 0, Charge(l, 1), time.Millisecond)
	setMillis(e, 600)
	e.Allow(one)
	e.WantTokens(b, l, 0)
}

func vectorIdle(e *Env) {
	b, l := Bucket("alice", "api"), PerMinute("rpm", 100)
	e.Clock.Advance(time.Hour)
	e.Allow(Debit(b, Charge(l, 100)))
	e.Refuse(Debit(b, Charge(l, 1)))
	e.Clock.Advance(time.Hour)
	e.Allow(Debit(b, Charge(l, 100)))
	e.Refuse(Debit(b, Charge(l, 1)))
}

func vectorDebt(e *Env) {
	b, l := Bucket("alice", "api"), PerMinute("rpm", 100)
	e.Allow(Debit(b, Charge(l, 100)))
	e.Allow(Debit(b, Force(l, 20)))
	e.WantTokens(b, l, -20)
	wantRetry(e, e.Refuse(Debit(b, Charge(l, 1))), 0, Charge(l, 1), 12_600*time.Millisecond)
	e.Settle(Debit(b, Charge(l, -20)))
	e.WantTokens(b, l, 0)
}

func vectorSeven(e *Env) {
	b, l := Bucket("alice", "api"), PerMinute("rpm", 7)
	e.Allow(Debit(b, Charge(l, 7)))
	admitted := 0
	for ms := 0; ms <= 60_000; ms++ {
		next := 60_000 * (admitted + 1) / 7 // the last ms before the next token is due, unless it is due within it
		if e.Harness.Caps.Remote && ms < next-1 {
			continue
		}
		setMillis(e, float64(ms))
		if !e.Take(Debit(b, Charge(l, 1))).Allowed {
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

// vectorMillion debits 25 tokens 2,000 times a second, or in brief 500 tokens 100 times a second.
func vectorMillion(e *Env) {
	b, l := Bucket("alice", "api"), PerMinute("rpm", 1_000_000)
	writes, amount := 2000, int64(25)
	if e.Harness.Brief() {
		writes, amount = 100, 500
	}
	e.Allow(Debit(b, Charge(l, 1_000_000)))
	admitted := int64(0)
	for i := 1; i <= 60*writes; i++ {
		e.Clock.Set(reckon.Epoch.Add(time.Duration(i) * time.Second / time.Duration(writes)))
		if e.Take(Debit(b, Charge(l, amount))).Allowed {
			admitted += amount
		}
	}
	if admitted != 1_000_000 {
		e.Fatalf("%d admitted, want 1,000,000", admitted)
	}
}

func vectorBurst(e *Env) {
	b, l := Bucket("alice", "api"), PerMinute("rpm", 100)
	out := e.Refuse(Debit(b, Charge(l, 101)))
	if d, ok := RetryAfter(out, 0, 101*Token); ok || !out.Levels[0].Refused {
		e.Fatalf("more than the burst is to be refused for good: retry after %v, %s", d, Show(out))
	}
	e.WantTokens(b, l, 100)
}

func vectorChange(e *Env) {
	small, large := PerMinute("rpm", 100), PerMinute("rpm", 200)

	b := Bucket("raised", "api")
	e.Allow(At(1, Debit(b, Charge(small, 100))))
	e.Allow(At(2, Debit(b, Charge(large, 0))))
	e.WantTokens(b, large, 100)

	b = Bucket("lowered", "api")
	e.Allow(At(1, Debit(b, Charge(large, 150))))
	e.Refuse(At(2, Debit(b, Charge(small, 0))))
	e.WantTokens(b, small, -50)
}

func vectorTwo(e *Env) {
	b, rpm, tpm := Bucket("alice", "api"), PerMinute("rpm", 10), PerMinute("tpm", 1000)
	out := e.Refuse(Debit(b, Charge(rpm, 1), Charge(tpm, 1001)))
	e.WantLevels(out, Level(rpm, 10*Token, false), Level(tpm, 1000*Token, true))
	e.WantTokens(b, rpm, 10)
	e.WantTokens(b, tpm, 1000)
}

func vectorBefore(e *Env) {
	b, l := Bucket("alice", "api"), PerMinute("rpm", 100)
	l.Burst = 1 * Token
	e.Allow(Debit(b, Charge(l, 1)))
	setMillis(e, 0)
	wantRetry(e, e.Refuse(Debit(b, Charge(l, 1))), 0, Charge(l, 1), 598_800*time.Microsecond)
}

func vectorOwing(e *Env) {
	b, rpm, tpm := Bucket("alice", "api"), PerMinute("rpm", 10), PerMinute("tpm", 1000)
	e.Settle(Debit(b, Charge(tpm, 1500)))
	out := e.Refuse(Debit(b, Charge(rpm, 1), Charge(tpm, 0)))
	e.WantLevels(out, Level(rpm, 10*Token, false), Level(tpm, -500*Token, true))
	wantRetry(e, out, 1, Charge(tpm, 0), 30*time.Second)
	e.WantTokens(b, rpm, 10)
}
