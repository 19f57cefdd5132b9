package buckets

import (
	"math"
	"time"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

// What bounds a settle: how far into debt it may bring a limit, what a strict limit gives back, and what it forgives.
func termScenarios() []Scenario {
	hand := Caps{HandClock: true}
	return []Scenario{
		{Name: "at most so much debt", Run: OnStore(termsDebt)},
		{Name: "at most so much debt, once", Run: OnStore(termsDebtOnce)},
		{Name: "at most so much debt, by others", Peer: true, Run: OnStore(termsDebtPeers)},
		{Name: "at most so much debt, at once", Run: OnStore(termsDebtTogether)},
		{Name: "at most so much debt of a new bucket", Run: OnStore(termsDebtNew)},
		{Name: "forgiven", Run: OnStore(termsForgiven)},
		{Name: "forgiven by others", Peer: true, Run: OnStore(termsForgivenPeers)},
		{Name: "strict returns", Need: hand, Run: OnStore(termsStrict)},
		{Name: "strict returns by others", Need: hand, Peer: true, Run: OnStore(termsStrictPeers)},
		{Name: "strict returns after a change", Need: hand, Run: OnStore(termsStrictChange)},
	}
}

// debited returns a charge of a settle with a bound on the debt.
func debited(l *store.Limit, tokens, most int64) store.Charge {
	return store.Charge{Limit: l, Amount: tokens * Token, MaxDebt: most * Token}
}

func wantLeft(e *Env, out store.Outcome, tokens ...int64) {
	e.Helper()
	for i, l := range out.Levels {
		if l.Left != tokens[i]*Token {
			e.Errorf("%s: %d left out, want %d", l.Limit.Name, l.Left, tokens[i]*Token)
		}
	}
}

func termsDebt(e *Env) {
	b, rpm, tpm := Bucket("alice", "api"), Still("rpm", 10), Still("tpm", 1000)
	e.Allow(Debit(b, Charge(rpm, 4), Charge(tpm, 0)))
	out := e.Settle(Debit(b, debited(rpm, 16, 10), debited(tpm, 900, 500)))
	e.WantLevels(out, Level(rpm, -10*Token, false), Level(tpm, 100*Token, false))
	wantLeft(e, out, 0, 0)
	out = e.Settle(Debit(b, debited(rpm, 1, 10), debited(tpm, 700, 500)))
	e.WantLevels(out, Level(rpm, -10*Token, false), Level(tpm, -500*Token, false))
	wantLeft(e, out, 1, 100)
	e.Settle(Debit(b, Charge(rpm, -3)))
	out = e.Settle(Debit(b, debited(rpm, 1_000_000_000_000_000, 10)))
	wantLeft(e, out, 1_000_000_000_000_000-3)
	e.WantTokens(b, rpm, -10)
	e.WantCounts(b, rpm, 23*Token, 3*Token)
	e.Settle(Debit(b, Charge(rpm, 5))) // without a bound
	out = e.Settle(Debit(b, debited(rpm, 2, 10)))
	wantLeft(e, out, 2)
	e.WantTokens(b, rpm, -15)
}

func termsDebtOnce(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	e.Allow(Debit(b, Charge(l, 4)))
	s := e.Once("a", Debit(b, debited(l, 25, 10)))
	wantLeft(e, e.SettleOnce(s), 9)
	for range 2 {
		e.SettleFails(store.ErrSettled, s)
		e.WantTokens(b, l, -10)
	}
	e.Settle(Debit(b, Charge(l, -8)))
	e.SettleFails(store.ErrSettled, s)
	e.WantTokens(b, l, -2)
}

func termsDebtPeers(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	p := e.Peer()
	e.Allow(Debit(b, Charge(l, 4)))
	wantLeft(e, p.Settle(Debit(b, debited(l, 20, 10))), 4)
	p.Settle(Debit(b, Charge(l, -7)))
	p.Quiesce()
	wantLeft(e, e.Settle(Debit(b, debited(l, 9, 10))), 2)
	e.Quiesce()
	p.WantTokens(b, l, -10)
}

// termsDebtTogether checks that adjustments that share a write are bounded together.
func termsDebtTogether(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	e.Allow(Debit(b, Charge(l, 5)))
	e.Each(20, func(int) { e.SettleQuietly(Debit(b, debited(l, 3, 10))) })
	e.WantTokens(b, l, -10)
}

func termsDebtNew(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	out := e.Settle(Debit(b, debited(l, 1000, 7)))
	e.WantLevels(out, Level(l, -7*Token, false))
	wantLeft(e, out, 983)
	e.Refuse(Debit(b, Charge(l, 0)))
}

// forgive returns a settle that forgives debts.
func forgive(b store.Bucket, limits ...*store.Limit) store.Settle {
	d := Debit(b)
	for _, l := range limits {
		d.Charges = append(d.Charges, store.Charge{Limit: l, Amount: -math.MaxInt64})
	}
	return store.Settle{Debits: []store.Debit{d}, Forgive: true}
}

func termsForgiven(e *Env) {
	b, rpm, tpm := Bucket("alice", "api"), Still("rpm", 10), Still("tpm", 1000)
	e.SettleOnce(forgive(b, rpm)) // there is no such bucket
	if st, _ := e.State(b); st.ID != 0 {
		e.Errorf("forgiving made a bucket: %+v", st)
	}
	e.Allow(Debit(b, Charge(rpm, 4), Charge(tpm, 0)))
	e.Settle(Debit(b, Charge(rpm, 2), Charge(tpm, 1500)))
	out := e.SettleOnce(forgive(b, rpm, tpm))
	e.WantLevels(out, Level(rpm, 4*Token, false), Level(tpm, 0, false))
	e.WantTokens(b, rpm, 4)
	e.WantTokens(b, tpm, 0)
	e.WantCounts(b, tpm, 1500*Token, 500*Token)
	e.SettleOnce(forgive(b, rpm, tpm))
	e.WantTokens(b, tpm, 0)
	e.Allow(Debit(b, Charge(rpm, 1), Charge(tpm, 0)))
	e.Refuse(Debit(b, Charge(rpm, 1), Charge(tpm, 1)))
	s := forgive(b, rpm)
	s.Debits[0].Charges[0].Amount = 0
	e.SettleFails(store.ErrInvalid, s)
}

func termsForgivenPeers(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	p := e.Peer()
	p.SettleOnce(forgive(b, l)) // so that it remembers the bucket as it was
	for range 2 {
		e.Settle(Debit(b, Charge(l, 30)))
		e.Quiesce()
		p.SettleOnce(forgive(b, l))
		p.Quiesce()
		e.WantTokens(b, l, 0)
	}
}

// strictly returns a settle that gives tokens of a debit back strictly.
func strictly(since time.Time, epoch uint64, b store.Bucket, l *store.Limit, tokens int64) store.Settle {
	c := store.Charge{Limit: l, Amount: -tokens * Token, Strict: true}
	return store.Settle{Debits: []store.Debit{At(epoch, Debit(b, c))}, Since: since}
}

func termsStrict(e *Env) {
	b, l := Bucket("alice", "api"), PerMinute("rpm", 60)
	out := e.Allow(At(5, Debit(b, Charge(l, 30))))
	e.Allow(At(5, Debit(b, Charge(l, 30))))
	e.SettleOnce(strictly(out.At, 5, b, l, 3)) // at once: all of it
	e.WantTokens(b, l, 3)
	e.Clock.Advance(10 * time.Second)
	e.SettleOnce(strictly(time.Time{}, 5, b, l, 20)) // of an unknown time: nothing
	e.WantTokens(b, l, 13)
	out2 := e.SettleOnce(strictly(out.At, 5, b, l, 12)) // all but the 10 that were issued again
	e.WantLevels(out2, Level(l, 15*Token, false))
	e.WantCounts(b, l, 60*Token, 5*Token)
	e.SettleOnce(strictly(out.At, 5, b, l, 10))
	e.WantTokens(b, l, 15)
	e.SettleOnce(strictly(out.At, 4, b, l, 30)) // of older limits: nothing
	e.WantTokens(b, l, 15)
	e.Settle(Debit(b, Charge(l, -1))) // another one that is not strict
	e.WantTokens(b, l, 16)
}

func termsStrictPeers(e *Env) {
	b, l := Bucket("alice", "api"), PerMinute("rpm", 60)
	p, q := e.Peer(), e.Peer()
	out := e.Allow(At(5, Debit(b, Charge(l, 60))))
	e.Clock.Advance(10 * time.Second)
	e.Quiesce()
	p.SettleOnce(strictly(out.At, 4, b, l, 60)) // it has not seen the bucket
	p.Quiesce()
	e.WantTokens(b, l, 10)
	q.SettleOnce(strictly(out.At, 5, b, l, 25))
	q.Quiesce()
	e.WantTokens(b, l, 25)
	s := strictly(out.At, 5, b, l, 30)
	s.ID, s.Expires = "once", e.Soon()
	p.SettleOnce(s)
	q.SettleFails(store.ErrSettled, s)
	p.Quiesce()
	e.WantTokens(b, l, 45)
}

// termsStrictChange checks that nothing is given back once the limits have changed, even if they are the same again.
func termsStrictChange(e *Env) {
	b, l, more := Bucket("alice", "api"), PerMinute("rpm", 60), PerMinute("rpm", 6000)
	out := e.Allow(At(5, Debit(b, Charge(l, 60))))
	e.Allow(At(6, Debit(b, Charge(more, 0))))
	e.SettleOnce(strictly(out.At, 5, b, l, 60))
	e.WantDebt(b, more, 60*Token)
	e.Clock.Advance(300 * time.Millisecond) // 30 of them are issued again
	e.Allow(At(7, Debit(b, Charge(l, 0))))
	e.SettleOnce(strictly(out.At, 5, b, l, 60))
	e.WantTokens(b, l, 30)
}
