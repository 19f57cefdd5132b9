// Package phases tests limits that begin and end at known times, used by processes whose clocks differ.
package phases

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

// Suites returns the suite of this package: at each switch a bucket changes its limits once, whatever clocks and epochs
// its processes have, and admits what one of the limits does.
func Suites() []Suite {
	need, quotas := Caps{HandClock: true}, Caps{HandClock: true, Quotas: true}
	return []Suite{{Name: "phases", Scenarios: []Scenario{
		{Name: "before and after", Need: need, Run: OnStore(phaseBounds)},
		{Name: "a former phase never returns", Need: need, Run: OnStore(phaseReturns)},
		{Name: "a boost", Need: quotas, Run: OnStore(phaseBoost)},
		{Name: "a boost and clocks apart", Need: quotas, Peer: true, Run: OnStore(func(e *Env) {
			phaseApart(e, func(skew time.Duration) *Env {
				p := *e
				p.Clock = NewClock(e.Now().Add(skew))
				return p.Peer()
			})
		})},
		{Name: "a boost and clocks of callers apart", Need: quotas, Run: OnStore(
			func(e *Env) { phaseApart(e, func(time.Duration) *Env { return e }) })},
		{Name: "random", Need: quotas, Run: func(t testing.TB, h Harness) {
			Property(t, h, func(rt *rapid.T) { phaseRandom(rt, t, h) })
		}},
	}}}
}

// plan is the limits of a bucket in the course of time: limits[i] until switches[i], then the next.
type plan struct {
	limits   []*store.Limit
	switches []time.Time
}

// at returns the number of switches that have passed at a time.
func (p *plan) at(now time.Time) int {
	n, found := slices.BinarySearchFunc(p.switches, now, time.Time.Compare)
	if found {
		n++
	}
	return n
}

// debit returns a debit by the limits of a phase.
func (p *plan) debit(b store.Bucket, epoch uint64, phase int, tokens int64) store.Debit {
	d := At(epoch<<6+uint64(phase), Debit(b, Charge(p.limits[phase], tokens)))
	d.Phase = new(store.Phase)
	if phase > 0 {
		d.Phase.From = p.switches[phase-1]
	}
	if phase < len(p.switches) {
		d.Phase.Until = p.switches[phase]
	}
	return d
}

// process is a process that decides by a plan, whose records it has read at some epoch.
type process struct {
	*Env

	plan   *plan
	skew   time.Duration // of its clock
	epoch  uint64
	newest *uint64 // that it could have read
}

// take takes as a limiter does: if other limits hold at the bucket's time, it decides as of that time, and if its
// records are old, it reads them again. It returns the phase.
func (p *process) take(b store.Bucket, now time.Time, tokens int64) (out store.Outcome, phase int) {
	p.Helper()
	asOf := now.Add(p.skew)
	for range 5 {
		phase = p.plan.at(asOf)
		d := p.plan.debit(b, p.epoch, phase, tokens)
		got, err := p.Store.Take(p.Context(), store.Take{Debits: []store.Debit{d}})
		var other *store.PhaseError
		switch {
		case errors.As(err, &other):
			asOf = other.At
		case errors.Is(err, store.ErrStaleLimits):
			p.epoch = *p.newest
		case err != nil:
			p.Fatalf("take: %v", err)
		default:
			return got, phase
		}
	}
	p.Fatalf("at %v: no phase is current", now)
	return out, phase
}

// phaseBounds checks that a bucket follows limits from their begin until their end, to the nanosecond.
func phaseBounds(e *Env) {
	begins, ends := e.Now().Add(time.Minute), e.Now().Add(time.Hour)
	p := &plan{[]*store.Limit{Still("rpm", 10), Still("rpm", 100), Still("rpm", 10)}, []time.Time{begins, ends}}
	b := Bucket("alice", "api")
	e.Allow(p.debit(b, 1, 0, 4))
	wrong := func(phase int) {
		e.Helper()
		_, err := e.Store.Take(e.Context(), store.Take{Debits: []store.Debit{p.debit(b, 9, phase, 1)}})
		var other *store.PhaseError
		if !errors.As(err, &other) || !errors.Is(err, store.ErrStaleLimits) || !other.At.Equal(e.Now()) {
			e.Fatalf("phase %d at %v: error %v", phase, e.Now(), err)
		}
	}
	e.Clock.Set(begins.Add(-10 * time.Second))
	wrong(1)
	e.Clock.Set(begins)
	e.Allow(p.debit(b, 1, 1, 50))
	e.WantTokens(b, p.limits[1], 46)
	wrong(0)
	e.Clock.Set(ends.Add(-1))
	e.Allow(p.debit(b, 1, 1, 1))
	e.Clock.Set(ends)
	e.Refuse(p.debit(b, 1, 2, 1))
	wrong(1)
	e.WantTokens(b, p.limits[2], -45)
}

// phaseReturns checks that what was debited in a phase is not given back strictly in a later one with the same limits.
func phaseReturns(e *Env) {
	begins, ends := e.Now().Add(time.Minute), e.Now().Add(2*time.Minute)
	p := &plan{[]*store.Limit{Still("rpm", 100), Still("rpm", 1000), Still("rpm", 100)}, []time.Time{begins, ends}}
	b := Bucket("alice", "api")
	out := e.Allow(p.debit(b, 1, 0, 50))
	e.Clock.Set(begins)
	e.Allow(p.debit(b, 1, 1, 10))
	e.Clock.Set(ends)
	e.Allow(p.debit(b, 1, 2, 10))
	back := p.debit(b, 1, 0, -50)
	back.Charges[0].Strict = true
	e.SettleOnce(store.Settle{Debits: []store.Debit{back}, Since: out.At})
	e.WantTokens(b, p.limits[2], 30)
	back.Charges[0].Strict = false
	e.SettleOnce(store.Settle{Debits: []store.Debit{back}, Since: out.At})
	e.WantTokens(b, p.limits[2], 80)
}

// phaseBoost checks what is left after a boost: nothing this month if as much was spent, and all in the next.
func phaseBoost(e *Env) {
	month := Quota("usd", 5000, "month@UTC")
	ends := time.Date(2026, time.March, 6, 17, 0, 0, 0, time.UTC)
	p := &plan{
		[]*store.Limit{month, Quota("usd", 50_000, "month@UTC"), month}, []time.Time{e.Now().Add(time.Hour), ends},
	}
	daily := &plan{
		[]*store.Limit{Quota("usd", 3000, "month@UTC"), Quota("usd", 100, "day@UTC")}, []time.Time{ends},
	}
	b, d := Bucket("alice", "api"), Bucket("bob", "api")
	e.Allow(p.debit(b, 1, 0, 5000))
	e.Allow(daily.debit(d, 1, 0, 2900))
	e.Clock.Set(p.switches[0])
	e.Allow(p.debit(b, 1, 1, 15_000))
	e.Clock.Set(ends)
	e.Refuse(p.debit(b, 1, 2, 1))
	e.Refuse(daily.debit(d, 1, 1, 1))
	e.Clock.Set(time.Date(2026, time.March, 7, 0, 0, 0, 0, time.UTC))
	e.Refuse(p.debit(b, 1, 2, 1))
	e.Allow(daily.debit(d, 1, 1, 100))
	e.Refuse(daily.debit(d, 1, 1, 1))
	e.Clock.Set(time.Date(2026, time.April, 1, 0, 0, 0, 0, time.UTC))
	e.Allow(p.debit(b, 1, 2, 5000))
	e.Refuse(p.debit(b, 1, 2, 1))
}

// phaseApart lets processes whose clocks are two seconds apart, both ways, pass the begin and the end of a boost.
// Those that are behind have read their records last. Each switch changes the limits of a bucket once, and nobody is
// refused what is left.
func phaseApart(e *Env, open func(skew time.Duration) *Env) {
	day := Quota("usd", 50, "day@UTC")
	begins, ends := e.Now().Add(10*time.Second), e.Now().Add(40*time.Second)
	p := &plan{[]*store.Limit{day, Quota("usd", 500, "day@UTC"), day}, []time.Time{begins, ends}}
	newest := uint64(20)
	var all []*process
	for i, skew := range []time.Duration{2 * time.Second, 0, -2 * time.Second} {
		all = append(all, &process{Env: open(skew), plan: p, skew: skew, epoch: uint64(10 + i), newest: &newest})
	}
	b := Bucket("alice", "api")
	admitted, follows, last := []int64{0, 0, 0}, 0, day
	for range 120 {
		for _, of := range all {
			out, phase := of.take(b, e.Now(), 1)
			if out.Allowed {
				admitted[phase]++
			}
			e.Quiesce()
			if l := e.Peek(b).States[0].Limits[0].Limit; *l != *last {
				last = l
				follows++
			}
		}
		e.Clock.Advance(500 * time.Millisecond)
		for _, of := range all {
			if of.Clock != e.Clock {
				of.Clock.Advance(500 * time.Millisecond)
			}
		}
	}
	if admitted[0] > 50 || admitted[1] < 150 || admitted[0]+admitted[1]+admitted[2] > 500 || admitted[2] > 0 {
		e.Errorf("admitted %v of 50, then 500, then 50 in the same day", admitted)
	}
	if follows != 2 {
		e.Errorf("the limits changed %d times", follows)
	}
}

// phaseRandom compares random histories with a bucket that changes its limits once at each switch.
func phaseRandom(rt *rapid.T, t testing.TB, h Harness) {
	e := Open(rt, t, h, Noon)
	p := &plan{}
	var gaps []time.Duration
	for i := range rapid.IntRange(2, 4).Draw(rt, "phases") {
		amount := rapid.Int64Range(1, 100).Draw(rt, "amount")
		l := &store.Limit{Name: "n", Amount: amount * Token, Period: time.Minute, Burst: amount * Token}
		if rapid.Bool().Draw(rt, "quota") {
			l = Quota("n", amount, rapid.SampledFrom([]string{"hour@UTC", "day@UTC"}).Draw(rt, "window"))
		}
		p.limits = append(p.limits, l)
		if i > 0 {
			gaps = append(gaps, time.Duration(rapid.Int64Range(1, int64(20*time.Second)).Draw(rt, "gap")))
		}
	}
	at := e.Now()
	for _, gap := range gaps {
		at = at.Add(gap)
		p.switches = append(p.switches, at)
	}
	newest := uint64(10)
	all := make([]*process, 3)
	for i := range all {
		skew := time.Duration(rapid.Int64Range(-int64(2*time.Second), int64(2*time.Second)).Draw(rt, "skew"))
		of := e
		if h.Peer != nil && i > 0 {
			peer := *e
			peer.Clock = NewClock(e.Now().Add(skew))
			of = peer.Peer()
		} else if h.Peer != nil {
			skew = 0
		}
		epoch := rapid.Uint64Range(1, newest).Draw(rt, "epoch")
		all[i] = &process{Env: of, plan: p, skew: skew, epoch: epoch, newest: &newest}
	}
	b, model := Bucket("alice", "api"), bucket{}
	for range rapid.IntRange(1, 40).Draw(rt, "steps") {
		step := time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(rt, "step"))
		e.Clock.Advance(step)
		for _, of := range all {
			if of.Clock != e.Clock {
				of.Clock.Advance(step)
			}
		}
		of := all[rapid.IntRange(0, len(all)-1).Draw(rt, "process")]
		tokens := rapid.Int64Range(0, 60).Draw(rt, "tokens")
		out, phase := of.take(b, e.Now(), tokens)
		if m := e.Meter(b, p.limits[phase]); !out.Allowed && (m == nil || *m.Limit != *p.limits[phase]) {
			continue // more than the burst is refused without a look at the bucket
		}
		back := phase < model.phase && *p.limits[phase] != *p.limits[model.phase]
		if model.born && back && !model.full(p, clock.Nanos(out.At)) { // full ones are forgotten
			e.Fatalf("phase %d after %d", phase, model.phase)
		}
		if fits := model.take(p, phase, clock.Nanos(out.At), tokens*Token); out.Allowed && !fits {
			e.Fatalf("%d tokens were admitted at %v by phase %d, which has less left", tokens, out.At, phase)
		}
	}
}

// bucket is a bucket that changes its limits once at each switch.
type bucket struct {
	phase int
	level int64
	born  bool
}

// full reports whether nothing of the bucket's limit is outstanding.
func (m *bucket) full(p *plan, now int64) bool {
	return m.level <= p.limits[m.phase].Params().Clock(now)
}

// take decides a take, and reports whether it fits. One that is refused may make no bucket.
func (m *bucket) take(p *plan, phase int, now, milli int64) bool {
	to, level := p.limits[phase].Params(), m.level
	switch {
	case !m.born:
		level = to.Fresh(now)
	case phase != m.phase:
		level = clock.Rebase(p.limits[m.phase].Params(), to, level, now)
	}
	level, fits := to.Debit(level, now, milli)
	if fits || m.born {
		m.phase, m.level, m.born = phase, level, true
	}
	return fits
}
