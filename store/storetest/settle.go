package storetest

import (
	"time"

	"github.com/weirlimits/weir/store"
)

func settleScenarios() []scenario {
	hand := Caps{HandClock: true}
	return []scenario{
		{name: "returns", run: each(settleReturns)},
		{name: "forces", run: each(settleForces)},
		{name: "several buckets", run: each(settleSeveral)},
		{name: "a limit twice", run: each(settleTwice)},
		{name: "return to no bucket", run: each(settleAbsent)},
		{name: "return to no limit", run: each(settleNoLimit)},
		{name: "return after refill", need: hand, run: each(settleRefilled)},
		{name: "return after half a refill", need: hand, run: each(settleHalf)},
		{name: "force on no bucket", run: each(settleBirth)},
		{name: "force on no limit", run: each(settleNewLimit)},
		{name: "other parameters", need: hand, run: each(settleOther)},
		{name: "older epoch", run: each(settleStale)},
		{name: "more than was taken", run: each(settleExcess)},
		{name: "by other clients", peer: true, run: each(settlePeers)},
	}
}

func settleReturns(e *env) {
	b, rpm, tpm := bkt("alice", "api"), still("rpm", 10), still("tpm", 1000)
	e.allow(debit(b, charge(rpm, 10), charge(tpm, 800)))
	out := e.settle(debit(b, charge(rpm, 0), charge(tpm, -300)))
	if !out.Allowed {
		e.Errorf("a settle is always allowed: %s", show(out))
	}
	if len(out.Levels) > 0 {
		e.wantLevels(out, wantLevel{rpm, 0, false}, wantLevel{tpm, 500 * tok, false})
	}
	e.wantTokens(b, rpm, 0)
	e.wantTokens(b, tpm, 500)
	e.settle(debit(b, store.Charge{Limit: rpm, Amount: -1}))
	e.refuse(debit(b, store.Charge{Limit: rpm, Amount: 2}, charge(tpm, 0)))
	e.allow(debit(b, store.Charge{Limit: rpm, Amount: 1}, charge(tpm, 0)))
	e.settle(debit(b, charge(rpm, -10), charge(tpm, -500)))
	e.allow(debit(b, charge(rpm, 10), charge(tpm, 1000)))
}

func settleForces(e *env) {
	b, rpm, tpm := bkt("alice", "api"), still("rpm", 10), still("tpm", 1000)
	e.allow(debit(b, charge(rpm, 1), charge(tpm, 900)))
	out := e.settle(debit(b, charge(tpm, 300)))
	e.wantLevels(out, wantLevel{tpm, -200 * tok, false})
	e.wantTokens(b, rpm, 9)
	e.refuse(debit(b, charge(rpm, 1), charge(tpm, 0)))
	e.settle(debit(b, charge(tpm, -200)))
	e.allow(debit(b, charge(rpm, 1), charge(tpm, 0)))
}

func settleSeveral(e *env) {
	a, b, c, l := bkt("alice", "api"), bkt("bob", "api"), bkt("carol", "api"), still("rpm", 10)
	e.allow(debit(a, charge(l, 5)), debit(b, charge(l, 5)))
	e.settle(debit(b, charge(l, -2)), debit(c, charge(l, 12)), debit(a, charge(l, 3)))
	e.wantTokens(a, l, 2)
	e.wantTokens(b, l, 7)
	e.wantTokens(c, l, -2)
}

// settleTwice checks that a settle may name a limit repeatedly.
func settleTwice(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 100)
	e.allow(debit(b, charge(l, 50)))
	e.settle(debit(b, charge(l, 7), charge(l, -20), charge(l, 3)))
	e.wantTokens(b, l, 60)
}

func settleAbsent(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 10)
	if out := e.settle(debit(b, charge(l, -5))); len(out.Levels) != 0 {
		e.Errorf("levels of a bucket that does not exist: %s", show(out))
	}
	if st, _ := e.state(b); st.ID != 0 {
		e.Errorf("a return made a bucket: %+v", st)
	}
	e.allow(debit(b, charge(l, 10)))
	e.refuse(debit(b, charge(l, 1)))
	e.forget(b)
	e.settle(debit(b, charge(l, -10)))
	e.refuse(debit(b, charge(l, 11)))
	e.wantTokens(b, l, 10)
}

func settleNoLimit(e *env) {
	b, rpm, tpm := bkt("alice", "api"), still("rpm", 10), still("tpm", 10)
	e.allow(debit(b, charge(rpm, 5)))
	e.settle(debit(b, charge(tpm, -5), charge(rpm, -1)))
	e.wantTokens(b, rpm, 6)
	e.refuse(at(2, debit(b, charge(rpm, 1), charge(tpm, 11))))
	e.allow(at(2, debit(b, charge(rpm, 1), charge(tpm, 10))))
}

// settleRefilled checks that a return to a full bucket adds nothing.
func settleRefilled(e *env) {
	b, l := bkt("alice", "api"), perMinute("rpm", 60)
	e.allow(debit(b, charge(l, 60)))
	e.clock.Advance(time.Minute)
	e.settle(debit(b, charge(l, -60)))
	e.wantTokens(b, l, 60)
	e.refuse(debit(b, charge(l, 61)))
	e.allow(debit(b, charge(l, 60)))
	e.refuse(debit(b, charge(l, 1)))
}

// settleHalf checks that a return counts only as far as the clock has not passed it.
func settleHalf(e *env) {
	b, l := bkt("alice", "api"), perMinute("rpm", 60)
	e.allow(debit(b, charge(l, 60)))
	e.clock.Advance(40 * time.Second)
	e.settle(debit(b, charge(l, -30)))
	e.wantTokens(b, l, 60)
	e.allow(debit(b, charge(l, 60)))
	e.refuse(debit(b, charge(l, 1)))
	e.clock.Advance(20 * time.Second)
	e.wantTokens(b, l, 20)
	e.settle(debit(b, charge(l, -30)))
	e.wantTokens(b, l, 50)
}

func settleBirth(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 10)
	out := e.settle(debit(b, charge(l, 12)))
	e.wantLevels(out, wantLevel{l, -2 * tok, false})
	if st, _ := e.state(b); st.ID == 0 || !st.At.Equal(out.At) {
		e.Errorf("after a settle at %v the bucket is %+v", out.At, st)
	}
	e.refuse(debit(b, charge(l, 0)))
	e.settle(debit(b, charge(l, -3)))
	e.allow(debit(b, charge(l, 1)))
	e.refuse(debit(b, charge(l, 1)))
}

// settleNewLimit checks that an adjustment may name limits that the request did not, and that charges to them count.
func settleNewLimit(e *env) {
	b, rpm, tpm := bkt("alice", "api"), still("rpm", 10), still("tpm", 1000)
	e.allow(at(1, debit(b, charge(rpm, 1))))
	e.settle(at(2, debit(b, charge(tpm, 1500))))
	out := e.refuse(at(2, debit(b, charge(rpm, 1), charge(tpm, 0))))
	e.wantLevels(out, wantLevel{rpm, 9 * tok, false}, wantLevel{tpm, -500 * tok, true})
}

// settleOther checks that a settle does not change limits: a limit that it names stands for the bucket's own of that
// name.
func settleOther(e *env) {
	b, own, other := bkt("alice", "api"), perMinute("rpm", 60), perMinute("rpm", 6000)
	e.allow(at(5, debit(b, charge(own, 60))))
	for _, epoch := range []uint64{3, 5, 8} {
		out := e.settle(at(epoch, debit(b, charge(other, -10))))
		if len(out.Levels) > 0 {
			e.wantLevels(out, wantLevel{own, 10 * tok, false})
		}
		out = e.settle(at(epoch, debit(b, charge(other, 10))))
		e.wantLevels(out, wantLevel{own, 0, false})
	}
	e.clock.Advance(30 * time.Second)
	e.wantTokens(b, own, 30)
	e.allow(at(5, debit(b, charge(own, 30))))
}

// settleStale checks that tokens taken under older limits can be returned, and can be owed.
func settleStale(e *env) {
	b, old, now := bkt("alice", "api"), still("rpm", 100), still("rpm", 50)
	e.allow(at(1, debit(b, charge(old, 40))))
	e.allow(at(2, debit(b, charge(now, 0))))
	e.settle(at(1, debit(b, charge(old, -20))))
	e.wantDebt(b, now, 20*tok)
	e.settle(at(1, debit(b, charge(old, 50))))
	e.wantDebt(b, now, 70*tok)
}

// settleExcess checks that a full bucket stays full, however much is returned.
func settleExcess(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 10)
	e.allow(debit(b, charge(l, 1)))
	for range 3 {
		e.settle(debit(b, charge(l, -1000)))
		e.wantTokens(b, l, 10)
	}
	e.refuse(debit(b, charge(l, 11)))
	e.allow(debit(b, charge(l, 10)))
	e.refuse(debit(b, charge(l, 1)))
}

func settlePeers(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 10)
	p := e.peer()
	e.allow(debit(b, charge(l, 10)))
	p.settle(debit(b, charge(l, -4)))
	p.quiesce()
	e.wantTokens(b, l, 4)
	e.allow(debit(b, charge(l, 4)))
	e.settle(debit(b, charge(l, 3)))
	e.quiesce()
	p.wantTokens(b, l, -3)
	p.refuse(debit(b, charge(l, 0)))
}
