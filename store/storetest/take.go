package storetest

import (
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

func takeScenarios() []scenario {
	return []scenario{
		{name: "all or none over limits", run: each(takeLimits)},
		{name: "all or none over buckets", run: each(takeBuckets)},
		{name: "all or none over a chain", run: each(takeChain)},
		{name: "exactly what is there", run: each(takeExact)},
		{name: "nothing of a limit in debt", run: each(takeDebt)},
		{name: "forced", run: each(takeForced)},
		{name: "forced beside a refusal", run: each(takeForcedRefused)},
		{name: "levels", run: each(takeLevels)},
		{name: "levels of every refusal", run: each(takeAllRefused)},
		{name: "time of the decision", run: each(takeAt)},
		{name: "forgotten buckets", run: each(takeForgotten)},
	}
}

// wantLevel is what an outcome must show for a charge.
type wantLevel struct {
	limit   *store.Limit
	room    int64
	refused bool
}

func (e *env) wantLevels(out store.Outcome, want ...wantLevel) {
	e.Helper()
	if len(out.Levels) != len(want) {
		e.Fatalf("%d levels, want %d: %s", len(out.Levels), len(want), show(out))
	}
	for i, w := range want {
		l := out.Levels[i]
		if l.Limit == nil || *l.Limit != *w.limit {
			e.Fatalf("level %d is of %+v, want %+v", i, l.Limit, *w.limit)
		}
		if got := reckon.Room(l.Limit, l.Level, out.At); got != w.room || l.Refused != w.refused {
			e.Fatalf(
				"level %d (%s): available %d refused %t, want %d %t", i, w.limit.Name, got, l.Refused, w.room,
				w.refused,
			)
		}
	}
}

func takeLimits(e *env) {
	b, rpm, tpm := bkt("alice", "api"), still("rpm", 10), still("tpm", 1000)
	e.refuse(debit(b, charge(rpm, 1), charge(tpm, 1001)))
	e.refuse(debit(b, charge(rpm, 11), charge(tpm, 1)))
	e.wantTokens(b, rpm, 10)
	e.wantTokens(b, tpm, 1000)

	e.allow(debit(b, charge(rpm, 4), charge(tpm, 1000)))
	e.refuse(debit(b, charge(rpm, 1), charge(tpm, 1)))
	e.wantTokens(b, rpm, 6)
	e.wantTokens(b, tpm, 0)
}

func takeBuckets(e *env) {
	l := still("rpm", 10)
	a, b := bkt("alice", "api"), bkt("bob", "api")
	e.refuse(debit(a, charge(l, 5)), debit(b, charge(l, 11)))
	e.refuse(debit(b, charge(l, 11)), debit(a, charge(l, 5)))
	e.wantTokens(a, l, 10)
	e.wantTokens(b, l, 10)

	e.allow(debit(a, charge(l, 5)), debit(b, charge(l, 10)))
	e.refuse(debit(a, charge(l, 5)), debit(b, charge(l, 1)))
	e.wantTokens(a, l, 5)
	e.wantTokens(b, l, 0)
}

// takeChain makes each link of a chain of eight refuse in turn.
func takeChain(e *env) {
	l := still("rpm", 10)
	var chain []store.Debit
	for _, entity := range []string{"h", "c", "a", "g", "b", "f", "d", "e"} {
		chain = append(chain, debit(bkt(entity, "api"), charge(l, 1)))
	}
	e.allow(chain...)
	for i := range chain {
		link := debit(chain[i].Bucket, charge(l, 9))
		e.allow(link)
		out := e.refuse(chain...)
		if len(out.Levels) != len(chain) || !out.Levels[i].Refused {
			e.Fatalf("link %d is to refuse: %s", i, show(out))
		}
		e.settle(debit(chain[i].Bucket, charge(l, -9)))
		e.quiesce()
	}
	for _, d := range chain {
		e.wantTokens(d.Bucket, l, 9)
	}
}

func takeExact(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 10)
	c := func(millitokens int64) store.Debit { return debit(b, store.Charge{Limit: l, Amount: millitokens}) }
	e.refuse(c(10_001))
	e.allow(c(9_999))
	e.refuse(c(2))
	e.allow(c(1))
	e.allow(c(0))
	e.refuse(c(1))
	e.wantRoom(b, l, 0)
}

func takeDebt(e *env) {
	b, rpm, tpm := bkt("alice", "api"), still("rpm", 10), still("tpm", 1000)
	e.allow(debit(b, charge(rpm, 1), force(tpm, 1000)))
	e.allow(debit(b, charge(rpm, 1), charge(tpm, 0)))
	e.settle(debit(b, store.Charge{Limit: tpm, Amount: 1}))
	out := e.refuse(debit(b, charge(rpm, 1), charge(tpm, 0)))
	e.wantLevels(out, wantLevel{rpm, 8 * tok, false}, wantLevel{tpm, -1, true})
	e.allow(debit(b, charge(rpm, 1), force(tpm, 0))) // forced, so never a reason to refuse
	e.wantTokens(b, rpm, 7)
	e.wantRoom(b, tpm, -1)
}

func takeForced(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 10)
	e.allow(debit(b, force(l, 25)))
	e.wantTokens(b, l, -15)
	e.allow(debit(b, force(l, 25)))
	e.wantTokens(b, l, -40)
	e.refuse(debit(b, charge(l, 0)))
}

// takeForcedRefused checks that a forced charge never refuses, but is not made if its take is refused.
func takeForcedRefused(e *env) {
	a, b := bkt("alice", "api"), bkt("bob", "api")
	rpm, shadow := still("rpm", 10), still("shadow", 5)
	out := e.refuse(debit(a, charge(rpm, 11), force(shadow, 20)))
	e.wantLevels(out, wantLevel{rpm, 10 * tok, true}, wantLevel{shadow, 5 * tok, false})
	e.wantTokens(a, shadow, 5)

	e.refuse(debit(a, force(rpm, 7)), debit(b, charge(rpm, 11)))
	e.wantTokens(a, rpm, 10)
	e.allow(debit(a, force(rpm, 7)), debit(b, charge(rpm, 10)))
	e.wantTokens(a, rpm, 3)
}

// takeLevels checks that levels follow the order of the debits and charges, whatever order the store works in.
func takeLevels(e *env) {
	x, y, z := still("x", 10), still("y", 20), still("z", 30)
	zoe, amy := bkt("zoe", "api"), bkt("amy", "api")
	out := e.allow(debit(zoe, charge(z, 3), charge(x, 1)), debit(amy, charge(y, 2), charge(x, 4), charge(z, 0)))
	e.wantLevels(out,
		wantLevel{z, 27 * tok, false}, wantLevel{x, 9 * tok, false},
		wantLevel{y, 18 * tok, false}, wantLevel{x, 6 * tok, false}, wantLevel{z, 30 * tok, false})

	// The bucket holds its limits in one order; the next debit names them in another.
	out = e.allow(debit(zoe, charge(x, 2), charge(z, 1)))
	e.wantLevels(out, wantLevel{x, 7 * tok, false}, wantLevel{z, 26 * tok, false})
	out = e.refuse(debit(zoe, charge(x, 8), charge(z, 26)))
	e.wantLevels(out, wantLevel{x, 7 * tok, true}, wantLevel{z, 26 * tok, false})
	out = e.refuse(debit(zoe, charge(x, 7), charge(z, 27)))
	e.wantLevels(out, wantLevel{x, 7 * tok, false}, wantLevel{z, 26 * tok, true})
}

// takeAllRefused checks that every charge that does not fit in a bucket is flagged. Across buckets, at least one is
// flagged, and all of them if the store decides in one step.
func takeAllRefused(e *env) {
	a, b, x, y := bkt("alice", "api"), bkt("bob", "api"), still("x", 10), still("y", 20)
	out := e.refuse(debit(a, charge(x, 11), charge(y, 21)))
	e.wantLevels(out, wantLevel{x, 10 * tok, true}, wantLevel{y, 20 * tok, true})

	out = e.refuse(debit(a, charge(x, 11), charge(y, 1)), debit(b, charge(x, 1), charge(y, 21)))
	if e.h.Caps.AtomicTake {
		e.wantLevels(out,
			wantLevel{x, 10 * tok, true}, wantLevel{y, 20 * tok, false},
			wantLevel{x, 10 * tok, false}, wantLevel{y, 20 * tok, true})
	} else if len(out.Levels) != 4 || !out.Levels[0].Refused && !out.Levels[3].Refused {
		e.Fatalf("no charge says why the take was refused: %s", show(out))
	}
}

func takeAt(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 100)
	last := time.Time{}
	for i := range 12 {
		var out store.Outcome
		if i%2 == 0 {
			out = e.take(debit(b, charge(l, 1)), debit(bkt("bob", "api"), charge(l, 0)))
		} else {
			out = e.settle(debit(b, charge(l, 1)))
		}
		if e.h.Caps.HandClock && !out.At.Equal(e.clock.Now()) {
			e.Fatalf("decided at %v, the clock says %v", out.At, e.clock.Now())
		}
		if out.At.Before(last) {
			e.Fatalf("decided at %v after %v", out.At, last)
		}
		if st, now := e.state(b); !st.At.Equal(out.At) && e.h.Caps.HandClock || now.Before(out.At) {
			e.Fatalf("the bucket was written at %v, seen at %v, decided at %v", st.At, now, out.At)
		}
		last = out.At
		e.clock.Advance(time.Duration(i) * 17 * time.Millisecond)
	}
}

// takeForgotten checks that a bucket is full again once it was forgotten.
func takeForgotten(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 10)
	d := debit(b, charge(l, 6))
	for range 3 {
		e.allow(d)
		e.refuse(d)
		e.wantTokens(b, l, 4)
		e.forget(b)
		e.wantTokens(b, l, 10)
	}
	e.allow(d)
	e.forget(b)
	back := debit(b, charge(l, -6))
	e.settle(back) // to no bucket
	e.wantTokens(b, l, 10)
	owe := debit(b, charge(l, 11))
	e.settle(owe)
	e.wantTokens(b, l, -1)
	e.refuse(d)
}
