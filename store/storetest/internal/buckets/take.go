package buckets

import (
	"time"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

func takeScenarios() []Scenario {
	return []Scenario{
		{Name: "all or none over limits", Run: OnStore(takeLimits)},
		{Name: "all or none over buckets", Run: OnStore(takeBuckets)},
		{Name: "all or none over a chain", Run: OnStore(takeChain)},
		{Name: "exactly what is there", Run: OnStore(takeExact)},
		{Name: "nothing of a limit in debt", Run: OnStore(takeDebt)},
		{Name: "forced", Run: OnStore(takeForced)},
		{Name: "forced beside a refusal", Run: OnStore(takeForcedRefused)},
		{Name: "levels", Run: OnStore(takeLevels)},
		{Name: "levels of every refusal", Run: OnStore(takeAllRefused)},
		{Name: "time of the decision", Run: OnStore(takeAt)},
	}
}

func takeLimits(e *Env) {
	b, rpm, tpm := Bucket("alice", "api"), Still("rpm", 10), Still("tpm", 1000)
	e.Refuse(Debit(b, Charge(rpm, 1), Charge(tpm, 1001)))
	e.Refuse(Debit(b, Charge(rpm, 11), Charge(tpm, 1)))
	e.WantTokens(b, rpm, 10)
	e.WantTokens(b, tpm, 1000)

	e.Allow(Debit(b, Charge(rpm, 4), Charge(tpm, 1000)))
	e.Refuse(Debit(b, Charge(rpm, 1), Charge(tpm, 1)))
	e.WantTokens(b, rpm, 6)
	e.WantTokens(b, tpm, 0)
}

func takeBuckets(e *Env) {
	l := Still("rpm", 10)
	a, b := Bucket("alice", "api"), Bucket("bob", "api")
	e.Refuse(Debit(a, Charge(l, 5)), Debit(b, Charge(l, 11)))
	e.Refuse(Debit(b, Charge(l, 11)), Debit(a, Charge(l, 5)))
	e.WantTokens(a, l, 10)
	e.WantTokens(b, l, 10)

	e.Allow(Debit(a, Charge(l, 5)), Debit(b, Charge(l, 10)))
	e.Refuse(Debit(a, Charge(l, 5)), Debit(b, Charge(l, 1)))
	e.WantTokens(a, l, 5)
	e.WantTokens(b, l, 0)
}

// takeChain makes each link of a chain of eight refuse in turn.
func takeChain(e *Env) {
	l := Still("rpm", 10)
	var chain []store.Debit
	for _, entity := range []string{"h", "c", "a", "g", "b", "f", "d", "e"} {
		chain = append(chain, Debit(Bucket(entity, "api"), Charge(l, 1)))
	}
	e.Allow(chain...)
	for i := range chain {
		link := Debit(chain[i].Bucket, Charge(l, 9))
		e.Allow(link)
		out := e.Refuse(chain...)
		if len(out.Levels) != len(chain) || !out.Levels[i].Refused {
			e.Fatalf("link %d is to refuse: %s", i, Show(out))
		}
		e.Settle(Debit(chain[i].Bucket, Charge(l, -9)))
		e.Quiesce()
	}
	for _, d := range chain {
		e.WantTokens(d.Bucket, l, 9)
	}
}

func takeExact(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	c := func(millitokens int64) store.Debit { return Debit(b, store.Charge{Limit: l, Amount: millitokens}) }
	e.Refuse(c(10_001))
	e.Allow(c(9_999))
	e.Refuse(c(2))
	e.Allow(c(1))
	e.Allow(c(0))
	e.Refuse(c(1))
	e.WantRoom(b, l, 0)
}

func takeDebt(e *Env) {
	b, rpm, tpm := Bucket("alice", "api"), Still("rpm", 10), Still("tpm", 1000)
	e.Allow(Debit(b, Charge(rpm, 1), Force(tpm, 1000)))
	e.Allow(Debit(b, Charge(rpm, 1), Charge(tpm, 0)))
	e.Settle(Debit(b, store.Charge{Limit: tpm, Amount: 1}))
	out := e.Refuse(Debit(b, Charge(rpm, 1), Charge(tpm, 0)))
	e.WantLevels(out, Level(rpm, 8*Token, false), Level(tpm, -1, true))
	e.Allow(Debit(b, Charge(rpm, 1), Force(tpm, 0))) // forced, so never a reason to refuse
	e.WantTokens(b, rpm, 7)
	e.WantRoom(b, tpm, -1)
}

func takeForced(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	e.Allow(Debit(b, Force(l, 25)))
	e.WantTokens(b, l, -15)
	e.Allow(Debit(b, Force(l, 25)))
	e.WantTokens(b, l, -40)
	e.Refuse(Debit(b, Charge(l, 0)))
}

// takeForcedRefused checks that a forced charge never refuses, but is not made if its take is refused.
func takeForcedRefused(e *Env) {
	a, b := Bucket("alice", "api"), Bucket("bob", "api")
	rpm, shadow := Still("rpm", 10), Still("shadow", 5)
	out := e.Refuse(Debit(a, Charge(rpm, 11), Force(shadow, 20)))
	e.WantLevels(out, Level(rpm, 10*Token, true), Level(shadow, 5*Token, false))
	e.WantTokens(a, shadow, 5)

	e.Refuse(Debit(a, Force(rpm, 7)), Debit(b, Charge(rpm, 11)))
	e.WantTokens(a, rpm, 10)
	e.Allow(Debit(a, Force(rpm, 7)), Debit(b, Charge(rpm, 10)))
	e.WantTokens(a, rpm, 3)
}

// takeLevels checks that levels follow the order of the debits and charges, whatever order the store works in.
func takeLevels(e *Env) {
	x, y, z := Still("x", 10), Still("y", 20), Still("z", 30)
	zoe, amy := Bucket("zoe", "api"), Bucket("amy", "api")
	out := e.Allow(Debit(zoe, Charge(z, 3), Charge(x, 1)), Debit(amy, Charge(y, 2), Charge(x, 4), Charge(z, 0)))
	e.WantLevels(out,
		Level(z, 27*Token, false), Level(x, 9*Token, false),
		Level(y, 18*Token, false), Level(x, 6*Token, false), Level(z, 30*Token, false))

	// The bucket holds its limits in one order; the next debit names them in another.
	out = e.Allow(Debit(zoe, Charge(x, 2), Charge(z, 1)))
	e.WantLevels(out, Level(x, 7*Token, false), Level(z, 26*Token, false))
	out = e.Refuse(Debit(zoe, Charge(x, 8), Charge(z, 26)))
	e.WantLevels(out, Level(x, 7*Token, true), Level(z, 26*Token, false))
	out = e.Refuse(Debit(zoe, Charge(x, 7), Charge(z, 27)))
	e.WantLevels(out, Level(x, 7*Token, false), Level(z, 26*Token, true))
}

// takeAllRefused checks that every charge that does not fit in a bucket is flagged. Across buckets, at least one is
// flagged, and all of them if the store decides in one step.
func takeAllRefused(e *Env) {
	a, b, x, y := Bucket("alice", "api"), Bucket("bob", "api"), Still("x", 10), Still("y", 20)
	out := e.Refuse(Debit(a, Charge(x, 11), Charge(y, 21)))
	e.WantLevels(out, Level(x, 10*Token, true), Level(y, 20*Token, true))

	out = e.Refuse(Debit(a, Charge(x, 11), Charge(y, 1)), Debit(b, Charge(x, 1), Charge(y, 21)))
	if e.Harness.Caps.AtomicTake {
		e.WantLevels(out,
			Level(x, 10*Token, true), Level(y, 20*Token, false),
			Level(x, 10*Token, false), Level(y, 20*Token, true))
	} else if len(out.Levels) != 4 || !out.Levels[0].Refused && !out.Levels[3].Refused {
		e.Fatalf("no charge says why the take was refused: %s", Show(out))
	}
}

func takeAt(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 100)
	last := time.Time{}
	for i := range 12 {
		var out store.Outcome
		if i%2 == 0 {
			out = e.Take(Debit(b, Charge(l, 1)), Debit(Bucket("bob", "api"), Charge(l, 0)))
		} else {
			out = e.Settle(Debit(b, Charge(l, 1)))
		}
		if e.Harness.Caps.HandClock && !out.At.Equal(e.Clock.Now()) {
			e.Fatalf("decided at %v, the clock says %v", out.At, e.Clock.Now())
		}
		if out.At.Before(last) {
			e.Fatalf("decided at %v after %v", out.At, last)
		}
		if st, now := e.State(b); !st.At.Equal(out.At) && e.Harness.Caps.HandClock || now.Before(out.At) {
			e.Fatalf("the bucket was written at %v, seen at %v, decided at %v", st.At, now, out.At)
		}
		last = out.At
		e.Clock.Advance(time.Duration(i) * 17 * time.Millisecond)
	}
}
