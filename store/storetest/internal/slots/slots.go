// Package slots tests limits of how much is held at once.
package slots

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

const (
	// heal is the heal time of most limits here.
	heal = 30 * time.Second
	// skew is the most by which the clocks of a store's processes may differ from true time.
	skew = 2 * time.Second
)

// Suites returns the suite of this package: I7, I8 and I9 of the arithmetic of slots.
func Suites() []Suite {
	need, hand := Caps{Slots: true}, Caps{Slots: true, HandClock: true}
	return []Suite{{Name: "slots", Scenarios: []Scenario{
		{Name: "or none", Run: OnStore(orNone)},
		{Name: "taken and given back", Need: need, Run: OnStore(takenAndGivenBack)},
		{Name: "given back together with tokens", Need: need, Run: OnStore(withTokens)},
		{Name: "given back once", Need: need, Run: OnStore(givenBackOnce)},
		{Name: "of no such hold", Need: need, Run: OnStore(noSuchHold)},
		{Name: "all or nothing", Need: need, Run: OnStore(allOrNothing)},
		{Name: "forced and in shadow", Need: need, Run: OnStore(forcedAndShadow)},
		{Name: "limits change", Need: need, Run: OnStore(limitsChange)},
		{Name: "another kind of limit", Need: need, Run: OnStore(otherKind)},
		{Name: "reset", Need: need, Run: OnStore(reset)},
		{Name: "mistakes", Need: need, Run: OnStore(mistakes)},
		{Name: "at once", Need: need, Run: OnStore(func(e *Env) { atOnce(e, e.Store) })},
		{Name: "at once from two clients", Need: need, Peer: true, Run: OnStore(func(e *Env) {
			atOnce(e, e.Store, e.Peer().Store)
		})},
		{Name: "heals", Need: hand, Run: OnStore(heals)},
		{Name: "next end", Need: hand, Run: OnStore(nextEnd)},
		{Name: "renewed", Need: hand, Run: OnStore(renewed)},
		{Name: "renewed without an answer", Need: hand, Run: OnStore(renewedUnanswered)},
		{Name: "given back elsewhere", Need: hand, Peer: true, Run: OnStore(elsewhere)},
		{Name: "first taken of two limits by two clients", Need: need, Peer: true, Run: OnStore(firstOfTwo)},
		{Name: "many limits from two clients", Need: need, Peer: true, Run: OnStore(many)},
		{Name: "kept", Need: hand, Run: OnStore(kept)},
		{Name: "random", Need: hand, Run: OnStore(func(e *Env) { random(e, e.Store) })},
		{Name: "random from two clients", Need: hand, Peer: true, Run: OnStore(func(e *Env) {
			random(e, e.Store, e.Peer().Store)
		})},
		{
			Name: "random from two clients with clocks of their own", Peer: true,
			Need: Caps{Slots: true, HandClock: true, OwnClocks: true}, Run: OnStore(apart),
		},
		{Name: "each call fails", Need: hand, Cut: true, Run: OnStore(callsFail)},
	}}}
}

// hold returns what an outcome shows of the limit of its i-th charge.
func hold(e *Env, out store.Outcome, i int) *store.Hold {
	e.Helper()
	h := out.Levels[i].Hold
	if h == nil || h.Birth == 0 || h.Valid < heal-2*skew || h.Valid > out.Levels[i].Limit.Heal*2 ||
		h.End.Before(out.At.Add(h.Valid)) {
		e.Fatalf("hold %+v at %v", h, out.At)
	}
	return h
}

// orNone checks that a store without limits of slots refuses them, and that others do not.
func orNone(e *Env) {
	b, l, rpm := Bucket("alice", "api"), Slots("parallel", 2), Still("rpm", 10)
	if e.Harness.Caps.Slots {
		e.Settle(Debit(b, Charge(l, 1)))
		e.Allow(Debit(b, Charge(l, 1), Charge(rpm, 1)))
		return
	}
	e.TakeFails(store.ErrNoSlots, Debit(b, Charge(rpm, 1), Charge(l, 1)))
	e.TakeFails(store.ErrNoSlots, Debit(b, Charge(rpm, 1)), Debit(Bucket("bob", "api"), Charge(l, 0)))
	e.SettleFails(store.ErrNoSlots, store.Settle{Debits: []store.Debit{Debit(b, Charge(rpm, 1), Charge(l, 1))}})
	e.SettleFails(store.ErrNoSlots, e.Once("a", Debit(b, GiveBack(l, 1, &store.Hold{Birth: 1}))))
	if st, _ := e.State(b); len(st.Limits) > 0 {
		e.Errorf("left %+v", st)
	}
}

func takenAndGivenBack(e *Env) {
	b, l := Bucket("alice", "api"), Slots("parallel", 3)
	out := e.Allow(Debit(b, Charge(l, 2)))
	e.WantLevels(out, Level(l, Token, false))
	two := hold(e, out, 0)
	out = e.Refuse(Debit(b, Charge(l, 2)))
	e.WantLevels(out, Level(l, Token, true))
	if out.Levels[0].Hold != nil {
		e.Errorf("a refused take holds %+v", out.Levels[0].Hold)
	}
	one := hold(e, e.Allow(Debit(b, Charge(l, 1))), 0)
	e.Refuse(Debit(b, Charge(l, 1)))
	e.WantRoom(b, l, 0)
	out = e.Settle(Debit(b, GiveBack(l, 1, two)))
	if out.Levels[0].Level != 2*Token || out.Levels[0].Hold != nil {
		e.Errorf("after a return: %+v", out.Levels[0])
	}
	e.Allow(Debit(b, Charge(l, 1)))
	e.Refuse(Debit(b, Charge(l, 1)))
	e.Settle(Debit(b, GiveBack(l, 1, one)))
	e.WantTokens(b, l, 1)
	e.WantCounts(b, l, 4*Token, 2*Token)
	e.TakeFails(store.ErrStaleLimits, At(0, Debit(b, Charge(Slots("parallel", 30), 1))))
	out = e.Refuse(Debit(b, Charge(l, 4)))
	if wait, ok := RetryAfter(out, 0, 4*Token); ok {
		e.Errorf("retry after %v, want never", wait)
	}
}

// withTokens checks that one settle returns tokens and slots.
func withTokens(e *Env) {
	b, l, tpm := Bucket("alice", "api"), Slots("parallel", 2), Still("tpm", 100)
	out := e.Allow(Debit(b, Charge(tpm, 60), Charge(l, 1)))
	h := hold(e, out, 1)
	e.Settle(Debit(b, Charge(tpm, -20), GiveBack(l, 1, h)))
	e.WantTokens(b, tpm, 60)
	e.WantTokens(b, l, 2)
	h = hold(e, e.Allow(Debit(b, Charge(tpm, 10), Charge(l, 2))), 1)
	e.SettleOnce(e.Once("a", Debit(b, Charge(tpm, 70), GiveBack(l, 1, h))))
	e.WantTokens(b, tpm, -20)
	e.WantTokens(b, l, 1)
	e.Refuse(Debit(b, Charge(tpm, 0), Charge(l, 1)))
	e.WantTokens(b, l, 1)
}

func givenBackOnce(e *Env) {
	b, l := Bucket("alice", "api"), Slots("parallel", 3)
	h := hold(e, e.Allow(Debit(b, Charge(l, 1))), 0)
	e.Allow(Debit(b, Charge(l, 2)))
	s := e.Once("a", Debit(b, GiveBack(l, 1, h)))
	e.SettleOnce(s)
	e.SettleFails(store.ErrSettled, s)
	e.WantTokens(b, l, 1)
	e.Settle(Debit(b, GiveBack(l, 9, h))) // never below 0
	e.WantTokens(b, l, 3)
	e.Allow(Debit(b, Charge(l, 3)))
	e.Refuse(Debit(b, Charge(l, 1)))
}

// noSuchHold checks that a hold of another birth, or of a bucket or limit that is not there, changes nothing.
func noSuchHold(e *Env) {
	b, other, l := Bucket("alice", "api"), Bucket("bob", "api"), Slots("parallel", 2)
	h := hold(e, e.Allow(Debit(b, Charge(l, 2))), 0)
	foreign := *h
	foreign.Birth++
	for _, d := range []store.Debit{
		Debit(b, GiveBack(l, 1, &foreign)), Debit(b, Renew(l, 1, &foreign)), Debit(b, Charge(l, -1)),
		Debit(other, GiveBack(l, 1, h)), Debit(other, Renew(l, 1, h)),
		Debit(b, GiveBack(Slots("others", 2), 1, h)), Debit(b, Renew(Slots("others", 2), 1, h)),
	} {
		out := e.Settle(d)
		if renews := d.Charges[0].Amount > 0; out.Levels[0].Refused != renews || out.Levels[0].Hold != nil {
			e.Errorf("%+v: %+v", d, out.Levels[0])
		}
	}
	e.Refuse(Debit(b, Charge(l, 1)))
	if st, _ := e.State(other); st.ID != 0 {
		e.Errorf("created %+v", st)
	}
	if out := e.Settle(Debit(b, Renew(l, 2, h))); out.Levels[0].Refused || out.Levels[0].Level != 2*Token {
		e.Errorf("renewed: %+v", out.Levels[0])
	}
}

// allOrNothing checks that a refused slot spends no tokens, and that refused tokens take no slot, in one bucket and in
// several.
func allOrNothing(e *Env) {
	b, parent := Bucket("alice", "api"), Bucket("team", "api")
	l, team, rpm := Slots("parallel", 2), Slots("parallel", 3), Still("rpm", 10)
	e.Allow(Debit(b, Charge(rpm, 1), Charge(l, 2)), Debit(parent, Charge(rpm, 1), Charge(team, 2)))
	e.Refuse(Debit(b, Charge(rpm, 1), Charge(l, 1)), Debit(parent, Charge(rpm, 1), Charge(team, 1)))
	e.Refuse(Debit(parent, Charge(rpm, 10), Charge(team, 1)))
	e.Refuse(Debit(parent, Charge(rpm, 1), Charge(team, 1)), Debit(b, Charge(rpm, 10), Charge(l, 0)))
	for _, at := range []store.Bucket{b, parent} {
		e.WantTokens(at, rpm, 9)
	}
	e.WantTokens(b, l, 0)
	e.WantTokens(parent, team, 1)
	e.Allow(Debit(parent, Charge(rpm, 1), Charge(team, 1)), Debit(b, Charge(rpm, 1), Charge(l, 0)))
}

func forcedAndShadow(e *Env) {
	b, l, rpm := Bucket("alice", "api"), Slots("parallel", 2), Still("rpm", 10)
	out := e.Allow(Debit(b, Charge(rpm, 1), Shadow(l, 2)))
	h := hold(e, out, 1)
	out = e.Allow(Debit(b, Charge(rpm, 1), Shadow(l, 1)))
	e.WantLevels(out, Level(rpm, 8*Token, false), Level(l, 0, true))
	if out.Levels[1].Hold != nil {
		e.Errorf("what was left out is held: %+v", out.Levels[1].Hold)
	}
	out = e.Allow(Debit(b, Charge(rpm, 1), Force(l, 3)))
	e.WantLevels(out, Level(rpm, 7*Token, false), Level(l, -3*Token, false))
	forced := hold(e, out, 1)
	e.Refuse(Debit(b, Charge(rpm, 1), Charge(l, 0)))
	out = e.Allow(Debit(b, Charge(rpm, 1), Force(l, 0)))
	if e.WantLevels(out, Level(rpm, 6*Token, false), Level(l, -3*Token, false)); out.Levels[1].Hold != nil {
		e.Errorf("nothing is held: %+v", out.Levels[1].Hold)
	}
	again := hold(e, e.Settle(Debit(b, Charge(l, 1))), 0) // without a hold: taken, whether free or not
	e.WantTokens(b, l, -4)
	e.Settle(Debit(b, GiveBack(l, 3, forced)))
	e.Settle(Debit(b, GiveBack(l, 1, again)))
	e.Refuse(Debit(b, Charge(rpm, 1), Charge(l, 1)))
	e.Settle(Debit(b, GiveBack(l, 1, h)))
	e.Allow(Debit(b, Charge(rpm, 1), Charge(l, 1)))
	bounded := Charge(l, 5)
	bounded.MaxDebt = 2 * Token
	if out := e.Settle(Debit(b, bounded)); out.Levels[0].Left != 3*Token {
		e.Errorf("left out %d, want 3", out.Levels[0].Left)
	}
	e.WantTokens(b, l, -2)
}

// limitsChange checks that more or fewer slots and another heal time apply at once, and forget nothing that is held.
func limitsChange(e *Env) {
	b, l, rpm := Bucket("alice", "api"), Slots("parallel", 4), Still("rpm", 100)
	h := hold(e, e.Allow(Debit(b, Charge(l, 4))), 0)
	fewer := store.Slots("parallel", 2*Token, time.Hour)
	e.Refuse(At(2, Debit(b, Charge(fewer, 0))))
	e.TakeFails(store.ErrStaleLimits, Debit(b, Charge(l, 1)))
	e.Settle(At(2, Debit(b, GiveBack(fewer, 2, h))))
	e.Allow(At(2, Debit(b, Charge(fewer, 0))))
	e.Refuse(At(2, Debit(b, Charge(fewer, 1))))
	more := Slots("parallel", 5)
	e.Allow(At(3, Debit(b, Charge(rpm, 1), Charge(more, 3))))
	e.Refuse(At(3, Debit(b, Charge(rpm, 1), Charge(more, 1))))
	e.Allow(At(4, Debit(b, Charge(rpm, 1)))) // removed
	if out := e.Settle(Debit(b, Renew(l, 2, h))); out.Levels[0].Refused {
		e.Errorf("cannot be renewed once the limit is removed")
	}
	e.Settle(At(4, Debit(b, GiveBack(l, 1, h)))) // by the limits of the take
	e.Refuse(At(5, Debit(b, Charge(rpm, 1), Charge(more, 2))))
	e.Allow(At(5, Debit(b, Charge(rpm, 1), Charge(more, 1))))
}

// otherKind checks that a limit that becomes a rate, and one of slots again, forgets nothing.
func otherKind(e *Env) {
	b, l, rate := Bucket("alice", "api"), Slots("parallel", 2), Still("parallel", 5)
	h := hold(e, e.Allow(Debit(b, Charge(l, 2))), 0)
	e.Allow(At(2, Debit(b, Charge(rate, 4))))
	e.Refuse(At(2, Debit(b, Charge(rate, 2))))
	e.Settle(At(2, Debit(b, GiveBack(l, 1, h))))
	e.WantTokens(b, rate, 1)
	e.WantTokens(b, l, 1)
	e.Refuse(At(3, Debit(b, Charge(l, 2))))
	e.Allow(At(3, Debit(b, Charge(l, 1))))
	e.Refuse(At(4, Debit(b, Charge(rate, 2))))
}

// reset checks that what is held stays, and can still be renewed and given back.
func reset(e *Env) {
	b, l, rpm := Bucket("alice", "api"), Slots("parallel", 2), Still("rpm", 10)
	h := hold(e, e.Allow(Debit(b, Charge(rpm, 10), Charge(l, 2))), 1)
	e.Forget(b)
	e.WantTokens(b, rpm, 10)
	e.Refuse(Debit(b, Charge(rpm, 1), Charge(l, 1)))
	out := e.Settle(Debit(b, Renew(l, 2, h)))
	e.Settle(Debit(b, GiveBack(l, 1, hold(e, out, 0))))
	e.Forget(b)
	e.Allow(Debit(b, Charge(rpm, 10), Charge(l, 1)))
	e.Refuse(Debit(b, Charge(rpm, 0), Charge(l, 1)))
}

func mistakes(e *Env) {
	b, l, rpm := Bucket("alice", "api"), Slots("parallel", 2), Still("rpm", 10)
	for _, bad := range []*store.Limit{
		store.Slots("parallel", 0, heal), store.Slots("parallel", Token, heal/2),
		store.Slots("parallel", Token, 2*time.Hour),
		{Name: "parallel", Amount: Token, Burst: Token, Heal: heal},
		{Name: "parallel", Amount: Token, Burst: Token, Period: time.Minute, Heal: heal},
		Override(l),
	} {
		e.TakeFails(store.ErrInvalid, Loose(b, Charge(bad, 1)))
	}
	held := Charge(l, 1)
	held.Hold = &store.Hold{Birth: 1}
	e.TakeFails(store.ErrInvalid, Debit(b, held))
	e.SettleFails(store.ErrInvalid, store.Settle{Debits: []store.Debit{Debit(b, GiveBack(rpm, 1, held.Hold))}})
	if st, _ := e.State(b); len(st.Limits) > 0 {
		e.Errorf("left %+v", st)
	}
}

// atOnce lets callers take, renew and give back at once. Each counts the slots that it was told it has.
func atOnce(e *Env, clients ...store.Store) {
	e.Helper()
	b, l, rpm := Bucket("alice", "api"), Slots("parallel", 5), Still("rpm", 1_000_000)
	var now, most, took atomic.Int64
	enough := int64(e.Some(300))
	e.Each(16, func(i int) {
		s := clients[i%len(clients)]
		call := func(d store.Debit) store.Outcome {
			out, err := s.Settle(e.Context(), store.Settle{Debits: []store.Debit{d}})
			if err != nil {
				e.Errorf("settle: %v", err)
				return store.Outcome{Levels: make([]store.Level, 2)}
			}
			return out
		}
		// Whoever is refused tries again: how many are, depends on the scheduler.
		for k := 0; took.Load() < enough && e.Context().Err() == nil && !e.Failed(); k++ {
			n := int64(1 + (i+k)%3)
			out, err := s.Take(e.Context(), store.Take{Debits: []store.Debit{Debit(b, Charge(rpm, 1), Charge(l, n))}})
			if err != nil && !errors.Is(err, store.ErrClosed) {
				e.Errorf("take: %v", err)
			}
			if !out.Allowed {
				continue
			}
			took.Add(1)
			for is := now.Add(n); ; {
				if m := most.Load(); is <= m || most.CompareAndSwap(m, is) {
					break
				}
			}
			h := out.Levels[1].Hold
			if k%3 == 0 {
				if r := call(Debit(b, Renew(l, n, h))).Levels[0]; r.Refused || r.Hold == nil {
					e.Errorf("renewed: %+v", r)
				} else {
					h = r.Hold
				}
			}
			now.Add(-n)
			call(Debit(b, Charge(rpm, -1), GiveBack(l, n, h)))
		}
	})
	e.Quiesce()
	if most.Load() > 5 || took.Load() < enough {
		e.Errorf("%d were held at once, of %d takes", most.Load(), took.Load())
	}
	e.WantTokens(b, l, 5)
}

// firstOfTwo takes the first slots of two limits of a bucket from two clients that have seen it without any.
func firstOfTwo(e *Env) {
	b, x, y, p := Bucket("alice", "api"), Slots("x", 2), Slots("y", 2), e.Peer()
	for _, c := range []*Env{e, p} {
		c.Allow(Debit(b, Charge(x, 0), Charge(y, 0)))
	}
	one := hold(e, e.Allow(Debit(b, Charge(x, 2), Charge(y, 0))), 0)
	other := hold(p, p.Settle(Debit(b, Charge(y, 1))), 0) // as after an outage
	for _, c := range []*Env{e, p} {
		c.Refuse(Debit(b, Charge(x, 1), Charge(y, 0)))
		out := c.Settle(Debit(b, Renew(x, 2, one), Renew(y, 1, other)))
		if out.Levels[0].Refused || out.Levels[1].Refused {
			e.Errorf("not renewed: %+v", out.Levels)
		}
	}
	p.Settle(Debit(b, GiveBack(x, 2, one), GiveBack(y, 1, other)))
	e.WantTokens(b, x, 2)
	e.WantTokens(b, y, 2)
}

// many takes the only slot of each of as many limits as there may be, from two clients that have seen the bucket
// without.
func many(e *Env) {
	b, p := Bucket("alice", "api"), e.Peer()
	var none, all []store.Charge
	for i := range store.MaxLimits {
		l := Slots(fmt.Sprint("l", i), 1)
		none, all = append(none, Charge(l, 0)), append(all, Charge(l, 1))
	}
	for _, c := range []*Env{e, p} {
		c.Allow(Debit(b, none...))
	}
	for _, c := range []*Env{e, p, e} {
		out := c.Allow(Debit(b, all...))
		for _, other := range []*Env{e, p} {
			other.Refuse(Debit(b, all...))
		}
		var back []store.Charge
		for i := range all {
			back = append(back, GiveBack(all[i].Limit, 1, hold(e, out, i)))
		}
		c.Settle(Debit(b, back...))
	}
	for i := range all {
		e.WantTokens(b, all[i].Limit, 1)
	}
}
