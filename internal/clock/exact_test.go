package clock_test

import (
	"math"
	"math/big"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/clock"
)

// exact is the reference: the token clock in arbitrary precision, written from the definition. It shares no arithmetic
// with the package. Values outside int64 saturate where the package defines it.
type exact struct{ amount, period, burst *big.Int }

func exactly(p clock.Params) exact {
	return exact{big.NewInt(p.Amount), big.NewInt(p.Period), big.NewInt(p.Burst)}
}

// issued returns what was issued since Epoch, as a fraction.
func (e exact) issued(now int64) *big.Rat {
	return new(big.Rat).Mul(big.NewRat(now, 1), new(big.Rat).SetFrac(e.amount, e.period))
}

func (e exact) clock(now int64) *big.Int { return floor(e.issued(now)) }

// at returns the first instant at which level + a - burst had been issued. No clock reads more than int64 holds.
func (e exact) at(level, a int64) *big.Int {
	target := new(big.Int).Add(big.NewInt(level), big.NewInt(a))
	return e.when(big.NewInt(saturate(target.Sub(target, e.burst))))
}

func (e exact) when(clock *big.Int) *big.Int {
	return ceil(new(big.Rat).Mul(new(big.Rat).SetInt(clock), new(big.Rat).SetFrac(e.period, e.amount)))
}

// compare checks every function of the package against the reference on one input. Level, instant and amount may be any
// int64.
func compare(t rapid.TB, p clock.Params, level, now, a int64) {
	t.Helper()
	e := exactly(p)
	want := func(what string, got int64, exact *big.Int) {
		t.Helper()
		if got != saturate(exact) {
			t.Fatalf("%s = %d, want %s (%+v, level %d, now %d, amount %d)", what, got, exact, p, level, now, a)
		}
	}
	wantOK := func(what string, got, exact bool) {
		t.Helper()
		if got != exact {
			t.Fatalf("%s: %v, want %v (%+v, level %d, now %d, amount %d)", what, got, exact, p, level, now, a)
		}
	}

	reading := p.Clock(now)
	want("Clock", reading, e.clock(now))

	// From here on, results are valid only if the clock fits into int64.
	lvl, c, amt := big.NewInt(level), big.NewInt(reading), big.NewInt(a)
	outstanding := new(big.Int).Sub(lvl, c)
	if outstanding.Sign() < 0 {
		outstanding.SetInt64(0)
	}
	outstanding.SetInt64(saturate(outstanding))
	want("Outstanding", clock.Outstanding(level, reading), outstanding)
	available := new(big.Int).Sub(e.burst, outstanding)
	want("Available", p.Available(level, reading), available)

	ceiling := new(big.Int).Add(c, e.burst)
	fits := amt.Cmp(available) <= 0 && ceiling.IsInt64()
	wantOK("Fits", p.Fits(level, reading, a), fits)

	spent := new(big.Int).Add(lvl, amt)
	if c.Cmp(lvl) > 0 {
		spent.Add(c, amt)
	}
	want("Spend", clock.Spend(level, reading, a), spent)
	after, ok := p.Debit(level, now, a)
	wantOK("Debit", ok, fits)
	want("level after Debit", after, choose(fits, spent, lvl))
	after, ok = p.Force(level, now, a)
	legal := spent.Cmp(big.NewInt(clock.MaxLevel)) <= 0
	wantOK("Force", ok, legal)
	want("level after Force", after, choose(legal, spent, lvl))
	want("Credit", clock.Credit(level, a), new(big.Int).Sub(lvl, amt))

	want("Full", p.Full(level), e.when(lvl))
	if a < 0 {
		p.RetryAfter(level, now, a) // the result is meaningless, but the call must not panic
		return
	}
	at := e.at(level, a)
	want("At", p.At(level, a), at)
	wait, ok := p.RetryAfter(level, now, a)
	wantOK("RetryAfter", ok, amt.Cmp(e.burst) <= 0)
	exactWait := new(big.Int).Sub(big.NewInt(saturate(at)), big.NewInt(now))
	switch {
	case !ok || fits:
		exactWait.SetInt64(0)
	case exactWait.Sign() <= 0:
		exactWait.SetInt64(math.MaxInt64)
	}
	want("RetryAfter", int64(wait), exactWait)
}

// compareRebase checks a change of parameters against the reference.
func compareRebase(t rapid.TB, from, to clock.Params, level, now int64) {
	t.Helper()
	want := big.NewInt(clock.Outstanding(level, from.Clock(now)))
	want.Add(want, big.NewInt(saturate(exactly(to).clock(now))))
	if got := clock.Rebase(from, to, level, now); got != saturate(want) {
		t.Fatalf("Rebase = %d, want %s (%+v to %+v, level %d, now %d)", got, want, from, to, level, now)
	}
}

// model is a bucket without levels: it counts what is outstanding and lets it drain.
type model struct {
	exact
	outstanding, clock *big.Int
}

func newModel(p clock.Params, now int64) *model {
	e := exactly(p)
	return &model{e, new(big.Int), e.clock(now)}
}

// to drains the bucket until an instant that is not before the previous one.
func (m *model) to(now int64) {
	c := m.exact.clock(now)
	m.outstanding.Sub(m.outstanding, new(big.Int).Sub(c, m.clock))
	if m.outstanding.Sign() < 0 {
		m.outstanding.SetInt64(0)
	}
	m.clock = c
}

func (m *model) available() int64 { return saturate(new(big.Int).Sub(m.burst, m.outstanding)) }

func (m *model) spend(a int64) { m.outstanding.Add(m.outstanding, big.NewInt(a)) }

// credit returns at most what is outstanding: a full bucket accepts no more.
func (m *model) credit(a int64) {
	if m.spend(-a); m.outstanding.Sign() < 0 {
		m.outstanding.SetInt64(0)
	}
}

// maxAmount returns the greatest valid amount for a period: its clock stays below 2^62 until 2060.
func maxAmount(period int64) int64 {
	until2060 := time.Date(2060, time.January, 1, 0, 0, 0, 0, time.UTC).Sub(clock.Epoch)
	// floor(until2060 * amount / period) < 2^62
	n := new(big.Int).Mul(new(big.Int).Lsh(big.NewInt(1), 62), big.NewInt(period))
	n.Sub(n, big.NewInt(1))
	return saturate(n.Quo(n, big.NewInt(int64(until2060))))
}

func floor(r *big.Rat) *big.Int {
	q, m := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if m.Sign() < 0 {
		q.Sub(q, big.NewInt(1))
	}
	return q
}

func ceil(r *big.Rat) *big.Int {
	f := floor(new(big.Rat).Neg(r))
	return f.Neg(f)
}

func saturate(n *big.Int) int64 {
	switch {
	case n.IsInt64():
		return n.Int64()
	case n.Sign() < 0:
		return math.MinInt64
	default:
		return math.MaxInt64
	}
}

func choose(yes bool, a, b *big.Int) *big.Int {
	if yes {
		return a
	}
	return b
}
