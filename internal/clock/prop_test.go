package clock_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/clock"
)

// until2060 is how far ahead clocks are guaranteed not to pass 2^62. Properties, except those of extremes, go no further.
var until2060 = int64(time.Date(2060, time.January, 1, 0, 0, 0, 0, time.UTC).Sub(clock.Epoch))

// magnitude draws a number from 1 to limit, with all orders of magnitude equally likely and both ends now and then.
func magnitude(limit int64) *rapid.Generator[int64] {
	return rapid.Custom(func(t *rapid.T) int64 {
		bits := new(big.Int).SetInt64(limit).BitLen()
		top := int64(math.MaxInt64)
		if n := rapid.IntRange(1, bits).Draw(t, "bits"); n < 63 {
			top = 1<<n - 1
		}
		return rapid.OneOf(rapid.Just(int64(1)), rapid.Just(limit), rapid.Int64Range(1, min(top, limit))).Draw(t, "n")
	})
}

var (
	params = rapid.Custom(func(t *rapid.T) clock.Params {
		period := rapid.OneOf(
			magnitude(int64(clock.MaxPeriod)),
			rapid.SampledFrom([]int64{1, int64(time.Second), int64(time.Minute), int64(time.Hour), int64(24 * time.Hour)}),
		).Draw(t, "period")
		p := clock.Params{
			Amount: magnitude(maxAmount(period)).Draw(t, "amount"),
			Period: period,
			Burst:  magnitude(clock.MaxBurst).Draw(t, "burst"),
		}
		if problem := p.Check(); problem != nil {
			t.Fatalf("%+v: %+v", p, *problem)
		}
		return p
	})

	// instant is from 36 years before Epoch to 36 years after, often near it.
	instant = rapid.Custom(func(t *rapid.T) int64 {
		n := magnitude(until2060).Draw(t, "distance")
		return rapid.SampledFrom([]int64{n, n, n, -n, 0}).Draw(t, "now")
	})
)

// amount draws a debit, often one that barely fits or barely does not.
func amount(t *rapid.T, p clock.Params, available int64) int64 {
	a := rapid.OneOf(
		magnitude(p.Burst),
		rapid.SampledFrom([]int64{0, 1, available, available + 1, available / 2, p.Burst}),
	).Draw(t, "amount")
	return max(0, a)
}

// later draws an instant after another: by nanoseconds, by the time that a few millitokens take, or by much longer.
func later(t *rapid.T, p clock.Params, now int64) int64 {
	few := max(1, p.Period/p.Amount)
	d := rapid.OneOf(rapid.Just(int64(0)), magnitude(4*few), magnitude(until2060/64)).Draw(t, "later")
	return min(now+d, until2060)
}

func TestExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := params.Draw(t, "params")
		number := rapid.OneOf(rapid.Int64(), instant)
		level, now := number.Draw(t, "level"), number.Draw(t, "now")
		compare(t, p, level, now, number.Draw(t, "amount"))
		compare(t, p, p.Clock(now), now, amount(t, p, p.Burst))
		compareRebase(t, p, params.Draw(t, "other"), level, now)
	})
}

// TestNeverOverAdmit is I1: between any two debits, the amount spent less the amount returned never exceeds the burst and
// what the clock issued, in whatever order the instants come and however deep the bucket was in debt.
func TestNeverOverAdmit(t *testing.T) {
	t.Parallel()
	type spent struct {
		before  *big.Int // spent less returned up to then
		reading *big.Int
	}
	rapid.Check(t, func(t *rapid.T) {
		p := params.Draw(t, "params")
		e := exactly(p)
		now := instant.Draw(t, "now")
		level := p.Clock(now) + rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(-clock.MaxBurst, clock.MaxBurst)).Draw(t, "level")
		total := new(big.Int)
		var debits []spent
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			// Instants from other processes: out of order.
			at := later(t, p, now)
			if at > now && rapid.IntRange(0, 3).Draw(t, "back") > 0 {
				now = at
			}
			reading := e.clock(at)
			a := amount(t, p, p.Available(level, p.Clock(at)))
			before := new(big.Int).Set(total)
			switch rapid.SampledFrom([]string{"debit", "debit", "debit", "force", "credit"}).Draw(t, "op") {
			case "debit":
				var ok bool
				if level, ok = p.Debit(level, at, a); !ok {
					continue
				}
				total.Add(total, big.NewInt(a))
				debits = append(debits, spent{before, reading})
				for _, first := range debits {
					used := new(big.Int).Sub(total, first.before)
					bound := new(big.Int).Sub(reading, first.reading)
					if bound.Add(bound, e.burst); used.Cmp(bound) > 0 {
						t.Fatalf("%s spent where %s may be", used, bound)
					}
				}
			case "force":
				var ok bool
				if level, ok = p.Force(level, at, a); ok {
					total.Add(total, big.NewInt(a))
					debits = append(debits, spent{before, reading})
				}
			case "credit":
				level = clock.Credit(level, a)
				total.Sub(total, big.NewInt(a))
			}
		}
	})
}

// TestNeverLose is I2 and also I3: for one caller with advancing time, a bucket answers like one that counts what is
// outstanding and lets it drain, and a twin that is polled between the steps answers the same.
func TestNeverLose(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := params.Draw(t, "params")
		now := instant.Draw(t, "now")
		m, level := newModel(p, now), int64(math.MinInt64)
		polled := level
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			next := later(t, p, now)
			for range rapid.IntRange(0, 3).Draw(t, "polls") {
				at := rapid.Int64Range(now, next).Draw(t, "at")
				var ok bool
				if polled, ok = p.Debit(polled, at, max(0, p.Available(polled, p.Clock(at)))+1); ok {
					t.Fatal("more than what is available was admitted")
				}
				polled, _ = p.Debit(polled, at, 0)
			}
			now = next
			m.to(now)
			if got, want := p.Available(level, p.Clock(now)), m.available(); got != want {
				t.Fatalf("available %d, want %d", got, want)
			}
			a := amount(t, p, m.available())
			switch rapid.SampledFrom([]string{"debit", "debit", "debit", "force", "credit"}).Draw(t, "op") {
			case "debit":
				var ok, twin bool
				level, ok = p.Debit(level, now, a)
				polled, twin = p.Debit(polled, now, a)
				if fits := a <= m.available(); ok != fits || twin != fits {
					t.Fatalf("admitted %v, polled %v; want %v", ok, twin, fits)
				} else if fits {
					m.spend(a)
				}
			case "force":
				var ok, twin bool
				level, ok = p.Force(level, now, a)
				polled, twin = p.Force(polled, now, a)
				if ok != twin {
					t.Fatalf("forced %v, polled %v", ok, twin)
				} else if ok {
					m.spend(a)
				}
			case "credit":
				level, polled = clock.Credit(level, a), clock.Credit(polled, a)
				m.credit(a)
			}
			if got, want := p.Available(level, p.Clock(now)), m.available(); got != want {
				t.Fatalf("available %d after a step, want %d", got, want)
			}
		}
	})
}

// TestTelescopes drains a bucket and takes every millitoken as soon as it appears: the total is exactly what was issued,
// whatever the times of the reads.
func TestTelescopes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := params.Draw(t, "params")
		first := instant.Draw(t, "first")
		level, ok := p.Debit(math.MinInt64, first, p.Burst)
		if !ok {
			t.Fatal("a full bucket refused its burst")
		}
		admitted, now := new(big.Int), first
		for range rapid.IntRange(1, 60).Draw(t, "looks") {
			next := later(t, p, now)
			// If it is read before more than a full bucket was issued, nothing is wasted.
			if full := p.Full(level); p.Clock(full) == level {
				now = min(next, full)
			} else {
				now = min(next, full-1)
			}
			a := p.Available(level, p.Clock(now))
			if level, ok = p.Debit(level, now, a); !ok {
				t.Fatalf("%d are available and were refused", a)
			}
			admitted.Add(admitted, big.NewInt(a))
		}
		e := exactly(p)
		if issued := new(big.Int).Sub(e.clock(now), e.clock(first)); issued.Cmp(admitted) != 0 {
			t.Fatalf("admitted %s, issued %s", admitted, issued)
		}
	})
}

// TestNoTimeTravel is I4: an earlier instant never admits what a later one refuses, for any two int64.
func TestNoTimeTravel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := params.Draw(t, "params")
		number := rapid.OneOf(rapid.Int64(), instant)
		level, early, late := number.Draw(t, "level"), number.Draw(t, "early"), number.Draw(t, "late")
		early, late = min(early, late), max(early, late)
		if p.Clock(early) > p.Clock(late) {
			t.Fatalf("the clock went from %d to %d", p.Clock(early), p.Clock(late))
		}
		if p.Available(level, p.Clock(early)) > p.Available(level, p.Clock(late)) {
			t.Fatal("more was available before than after")
		}
		a := amount(t, p, p.Burst)
		if after, ok := p.Debit(level, late, a); ok && p.Available(after, p.Clock(early)) > p.Available(level, p.Clock(late))-a {
			t.Fatal("going back in time gave something back")
		}
	})
}

// TestWhenInDoubtDebit is the arithmetic part of I5: a debit made twice and a credit left out never leave more than they
// should have, and neither does any later step.
func TestWhenInDoubtDebit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := params.Draw(t, "params")
		now := instant.Draw(t, "now")
		low := p.Clock(now) + rapid.Int64Range(-clock.MaxBurst, clock.MaxBurst).Draw(t, "low")
		a := amount(t, p, p.Available(low, p.Clock(now)))
		high := low + a // the level after a debit made twice or a credit left out
		then := later(t, p, now)
		if p.Available(high, p.Clock(then)) > p.Available(low, p.Clock(then)) {
			t.Fatal("spending made more available")
		}
		b := amount(t, p, p.Available(low, p.Clock(then)))
		lowAfter, lowOK := p.Debit(low, then, b)
		highAfter, highOK := p.Debit(high, then, b)
		if highOK && (!lowOK || highAfter < lowAfter) {
			t.Fatal("the bucket with less admitted more")
		}
		if clock.Credit(high, b) < clock.Credit(low, b) || clock.Spend(high, p.Clock(then), b) < clock.Spend(low, p.Clock(then), b) {
			t.Fatal("a step turned the order around")
		}
	})
}

// TestRetryAfterIsTight is I6: a retry at that time succeeds, and not a nanosecond earlier.
func TestRetryAfterIsTight(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := params.Draw(t, "params")
		now := instant.Draw(t, "now")
		reading := p.Clock(now)
		level := reading + magnitude(clock.MaxBurst).Draw(t, "outstanding")
		a := amount(t, p, p.Available(level, reading))
		wait, ok := p.RetryAfter(level, now, a)
		switch {
		case a > p.Burst:
			if ok {
				t.Fatalf("more than the burst fits after %v", wait)
			}
		case !ok || wait < 0:
			t.Fatalf("retry after %v, %v", wait, ok)
		case p.Fits(level, reading, a):
			if wait != 0 {
				t.Fatalf("what fits has to wait %v", wait)
			}
		case wait < math.MaxInt64 && exactly(p).at(level, a).IsInt64():
			then := now + int64(wait)
			if _, early := p.Debit(level, then-1, a); early {
				t.Fatalf("admitted before %v", wait)
			}
			if _, ok := p.Debit(level, then, a); !ok {
				t.Fatalf("refused after %v", wait)
			}
		}
		if full := p.Full(level); exactly(p).at(level, p.Burst).IsInt64() && (p.Clock(full) < level || p.Clock(full-1) >= level) {
			t.Fatalf("not full just at %d", full)
		}
	})
}

// TestRebase changes a limit: what is outstanding stays to the millitoken, so a raise takes effect at once and a cut
// forgives nothing. From then on the bucket is within one millitoken of an ideal one that drains evenly.
func TestRebase(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		from, to := params.Draw(t, "from"), params.Draw(t, "to")
		now := instant.Draw(t, "now")
		level := from.Clock(now) + rapid.Int64Range(-clock.MaxBurst, clock.MaxBurst).Draw(t, "outstanding")
		outstanding := clock.Outstanding(level, from.Clock(now))

		rebased := clock.Rebase(from, to, level, now)
		if got := clock.Outstanding(rebased, to.Clock(now)); got != outstanding {
			t.Fatalf("%d outstanding, %d before", got, outstanding)
		}
		gained := to.Available(rebased, to.Clock(now)) - from.Available(level, from.Clock(now))
		if gained != to.Burst-from.Burst {
			t.Fatalf("available changed by %d, the burst by %d", gained, to.Burst-from.Burst)
		}
		if again := clock.Rebase(to, to, rebased, now); clock.Outstanding(again, to.Clock(now)) != outstanding {
			t.Fatal("a change to the same changes something")
		}

		then := later(t, to, now)
		e := exactly(to)
		ideal := new(big.Rat).Sub(e.issued(then), e.issued(now))
		ideal.Sub(new(big.Rat).SetInt64(outstanding), ideal)
		if ideal.Sign() < 0 {
			ideal.SetInt64(0)
		}
		off := ideal.Sub(ideal, new(big.Rat).SetInt64(clock.Outstanding(rebased, to.Clock(then))))
		if off.Abs(off).Cmp(big.NewRat(1, 1)) >= 0 {
			t.Fatalf("%s millitokens off", off)
		}
	})
}

// TestReturn returns what was spent: the bucket is as before, also for later reads.
func TestReturn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := params.Draw(t, "params")
		now := instant.Draw(t, "now")
		reading := p.Clock(now)
		level := reading + rapid.Int64Range(-clock.MaxBurst, clock.MaxBurst).Draw(t, "outstanding")
		a := amount(t, p, p.Available(level, reading))
		back := clock.Credit(clock.Spend(level, reading, a), a)
		if level >= reading && back != level {
			t.Fatalf("level %d after the return, %d before", back, level)
		}
		then := p.Clock(later(t, p, now))
		if p.Available(back, then) != p.Available(level, then) {
			t.Fatal("spending and returning changed what is available")
		}
		// Once the bucket is full again, a return gives nothing.
		if spent := clock.Spend(level, reading, a); then >= spent && p.Available(clock.Credit(spent, a), then) != p.Burst {
			t.Fatal("a late return made a bucket more than full")
		}
	})
}
