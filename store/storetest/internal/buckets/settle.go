package buckets

import (
	"time"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

func settleScenarios() []Scenario {
	hand := Caps{HandClock: true}
	return []Scenario{
		{Name: "returns", Run: OnStore(settleReturns)},
		{Name: "forces", Run: OnStore(settleForces)},
		{Name: "several buckets", Run: OnStore(settleSeveral)},
		{Name: "a limit twice", Run: OnStore(settleTwice)},
		{Name: "return to no bucket", Run: OnStore(settleAbsent)},
		{Name: "return to no limit", Run: OnStore(settleNoLimit)},
		{Name: "return after refill", Need: hand, Run: OnStore(settleRefilled)},
		{Name: "return after half a refill", Need: hand, Run: OnStore(settleHalf)},
		{Name: "force on no bucket", Run: OnStore(settleBirth)},
		{Name: "force on no limit", Run: OnStore(settleNewLimit)},
		{Name: "other parameters", Need: hand, Run: OnStore(settleOther)},
		{Name: "older epoch", Run: OnStore(settleStale)},
		{Name: "more than was taken", Run: OnStore(settleExcess)},
		{Name: "by other clients", Peer: true, Run: OnStore(settlePeers)},
	}
}

func settleReturns(e *Env) {
	b, rpm, tpm := Bucket("alice", "api"), Still("rpm", 10), Still("tpm", 1000)
	e.Allow(Debit(b, Charge(rpm, 10), Charge(tpm, 800)))
	out := e.Settle(Debit(b, Charge(rpm, 0), Charge(tpm, -300)))
	if !out.Allowed {
		e.Errorf("a settle is always allowed: %s", Show(out))
	}
	e.WantLevels(out, Level(rpm, 0, false), Level(tpm, 500*Token, false))
	e.WantTokens(b, rpm, 0)
	e.WantTokens(b, tpm, 500)
	e.Settle(Debit(b, store.Charge{Limit: rpm, Amount: -1}))
	e.Refuse(Debit(b, store.Charge{Limit: rpm, Amount: 2}, Charge(tpm, 0)))
	e.Allow(Debit(b, store.Charge{Limit: rpm, Amount: 1}, Charge(tpm, 0)))
	e.Settle(Debit(b, Charge(rpm, -10), Charge(tpm, -500)))
	e.Allow(Debit(b, Charge(rpm, 10), Charge(tpm, 1000)))
}

func settleForces(e *Env) {
	b, rpm, tpm := Bucket("alice", "api"), Still("rpm", 10), Still("tpm", 1000)
	e.Allow(Debit(b, Charge(rpm, 1), Charge(tpm, 900)))
	out := e.Settle(Debit(b, Charge(tpm, 300)))
	e.WantLevels(out, Level(tpm, -200*Token, false))
	e.WantTokens(b, rpm, 9)
	e.Refuse(Debit(b, Charge(rpm, 1), Charge(tpm, 0)))
	e.Settle(Debit(b, Charge(tpm, -200)))
	e.Allow(Debit(b, Charge(rpm, 1), Charge(tpm, 0)))
}

func settleSeveral(e *Env) {
	a, b, c, l := Bucket("alice", "api"), Bucket("bob", "api"), Bucket("carol", "api"), Still("rpm", 10)
	e.Allow(Debit(a, Charge(l, 5)), Debit(b, Charge(l, 5)))
	out := e.Settle(Debit(b, Charge(l, -2)), Debit(c, Charge(l, 12)), Debit(a, Charge(l, 3)))
	e.WantLevels(out, Level(l, 7*Token, false), Level(l, -2*Token, false), Level(l, 2*Token, false))
	e.WantTokens(a, l, 2)
	e.WantTokens(b, l, 7)
	e.WantTokens(c, l, -2)
}

// settleTwice checks that a settle may name a limit repeatedly.
func settleTwice(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 100)
	e.Allow(Debit(b, Charge(l, 50)))
	e.Settle(Debit(b, Charge(l, 7), Charge(l, -20), Charge(l, 3)))
	e.WantTokens(b, l, 60)
}

func settleAbsent(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	e.WantLevels(e.Settle(Debit(b, Charge(l, -5))), Level(l, 10*Token, false))
	if st, _ := e.State(b); st.ID != 0 {
		e.Errorf("a return made a bucket: %+v", st)
	}
	e.Allow(Debit(b, Charge(l, 10)))
	e.Refuse(Debit(b, Charge(l, 1)))
	e.Forget(b)
	e.Settle(Debit(b, Charge(l, -10)))
	e.Refuse(Debit(b, Charge(l, 11)))
	e.WantTokens(b, l, 10)
}

func settleNoLimit(e *Env) {
	b, rpm, tpm := Bucket("alice", "api"), Still("rpm", 10), Still("tpm", 10)
	e.Allow(Debit(b, Charge(rpm, 5)))
	out := e.Settle(Debit(b, Charge(tpm, -5), Charge(rpm, -1)))
	e.WantLevels(out, Level(tpm, 10*Token, false), Level(rpm, 6*Token, false))
	e.WantTokens(b, rpm, 6)
	e.Refuse(At(2, Debit(b, Charge(rpm, 1), Charge(tpm, 11))))
	e.Allow(At(2, Debit(b, Charge(rpm, 1), Charge(tpm, 10))))
}

// settleRefilled checks that a return to a full bucket adds nothing.
func settleRefilled(e *Env) {
	b, l := Bucket("alice", "api"), PerMinute("rpm", 60)
	e.Allow(Debit(b, Charge(l, 60)))
	e.Clock.Advance(time.Minute)
	e.Settle(Debit(b, Charge(l, -60)))
	e.WantTokens(b, l, 60)
	e.Refuse(Debit(b, Charge(l, 61)))
	e.Allow(Debit(b, Charge(l, 60)))
	e.Refuse(Debit(b, Charge(l, 1)))
}

// settleHalf checks that a return counts only as far as the clock has not passed it.
func settleHalf(e *Env) {
	b, l := Bucket("alice", "api"), PerMinute("rpm", 60)
	e.Allow(Debit(b, Charge(l, 60)))
	e.Clock.Advance(40 * time.Second)
	e.Settle(Debit(b, Charge(l, -30)))
	e.WantTokens(b, l, 60)
	e.Allow(Debit(b, Charge(l, 60)))
	e.Refuse(Debit(b, Charge(l, 1)))
	e.Clock.Advance(20 * time.Second)
	e.WantTokens(b, l, 20)
	e.Settle(Debit(b, Charge(l, -30)))
	e.WantTokens(b, l, 50)
}

func settleBirth(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	out := e.Settle(Debit(b, Charge(l, 12)))
	e.WantLevels(out, Level(l, -2*Token, false))
	if st, _ := e.State(b); st.ID == 0 || !st.At.Equal(out.At) {
		e.Errorf("after a settle at %v the bucket is %+v", out.At, st)
	}
	e.Refuse(Debit(b, Charge(l, 0)))
	e.Settle(Debit(b, Charge(l, -3)))
	e.Allow(Debit(b, Charge(l, 1)))
	e.Refuse(Debit(b, Charge(l, 1)))
}

// settleNewLimit checks that an adjustment may name limits that the request did not, and that charges to them count.
func settleNewLimit(e *Env) {
	b, rpm, tpm := Bucket("alice", "api"), Still("rpm", 10), Still("tpm", 1000)
	e.Allow(At(1, Debit(b, Charge(rpm, 1))))
	e.Settle(At(2, Debit(b, Charge(tpm, 1500))))
	out := e.Refuse(At(2, Debit(b, Charge(rpm, 1), Charge(tpm, 0))))
	e.WantLevels(out, Level(rpm, 9*Token, false), Level(tpm, -500*Token, true))
}

// settleOther checks that a settle does not change limits: a limit that it names stands for the bucket's own of that
// name.
func settleOther(e *Env) {
	b, own, other := Bucket("alice", "api"), PerMinute("rpm", 60), PerMinute("rpm", 6000)
	e.Allow(At(5, Debit(b, Charge(own, 60))))
	for _, epoch := range []uint64{3, 5, 8} {
		out := e.Settle(At(epoch, Debit(b, Charge(other, -10))))
		e.WantLevels(out, Level(own, 10*Token, false))
		out = e.Settle(At(epoch, Debit(b, Charge(other, 10))))
		e.WantLevels(out, Level(own, 0, false))
	}
	e.Clock.Advance(30 * time.Second)
	e.WantTokens(b, own, 30)
	e.Allow(At(5, Debit(b, Charge(own, 30))))
}

// settleStale checks that tokens taken under older limits can be returned, and can be owed.
func settleStale(e *Env) {
	b, old, now := Bucket("alice", "api"), Still("rpm", 100), Still("rpm", 50)
	e.Allow(At(1, Debit(b, Charge(old, 40))))
	e.Allow(At(2, Debit(b, Charge(now, 0))))
	e.Settle(At(1, Debit(b, Charge(old, -20))))
	e.WantDebt(b, now, 20*Token)
	e.Settle(At(1, Debit(b, Charge(old, 50))))
	e.WantDebt(b, now, 70*Token)
}

// settleExcess checks that a full bucket stays full, however much is returned.
func settleExcess(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	e.Allow(Debit(b, Charge(l, 1)))
	for range 3 {
		e.Settle(Debit(b, Charge(l, -1000)))
		e.WantTokens(b, l, 10)
	}
	e.Refuse(Debit(b, Charge(l, 11)))
	e.Allow(Debit(b, Charge(l, 10)))
	e.Refuse(Debit(b, Charge(l, 1)))
}

func settlePeers(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	p := e.Peer()
	e.Allow(Debit(b, Charge(l, 10)))
	p.Settle(Debit(b, Charge(l, -4)))
	p.Quiesce()
	e.WantTokens(b, l, 4)
	e.Allow(Debit(b, Charge(l, 4)))
	e.Settle(Debit(b, Charge(l, 3)))
	e.Quiesce()
	p.WantTokens(b, l, -3)
	p.Refuse(Debit(b, Charge(l, 0)))
}
