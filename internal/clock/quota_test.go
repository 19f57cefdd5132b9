package clock_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/calendar"
)

// quota returns a quota of whole tokens in each window.
func quota(t testing.TB, tokens int64, window string) clock.Params {
	t.Helper()
	w, err := calendar.Parse(window)
	if err != nil {
		t.Fatal(err)
	}
	p := clock.Params{Amount: 1000 * tokens, Burst: 1000 * tokens, Window: w}
	if bad := p.Check(); bad != nil {
		t.Fatal(*bad)
	}
	return p
}

func day(y int, m time.Month, d int) int64 {
	return clock.Nanos(time.Date(y, m, d, 0, 0, 0, 0, time.UTC))
}

// TestQuotaWindows spends at random instants. In each window at most the amount fits, all of it if nobody owes, and a
// debt carries over.
func TestQuotaWindows(t *testing.T) {
	t.Parallel()
	windows := []string{"month@Europe/Berlin", "day@America/New_York", "week+sun@Asia/Kolkata", "hour@UTC", "year@UTC"}
	rapid.Check(t, func(t *rapid.T) {
		w, err := calendar.Parse(rapid.SampledFrom(windows).Draw(t, "window"))
		if err != nil {
			t.Fatal(err)
		}
		amount := 1000 * rapid.Int64Range(1, 100).Draw(t, "amount")
		p := clock.Params{Amount: amount, Burst: amount, Window: w}
		now := rapid.Int64Range(0, int64(10*365*24*time.Hour)).Draw(t, "start")
		level, k, used := p.Fresh(now), w.Index(now), int64(0)
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			from, to := w.Bounds(now)
			now += rapid.Int64Range(0, to-from).Draw(t, "elapsed")
			if at := w.Index(now); at != k {
				used = max(0, used-(at-k)*amount) // what is left of a debt
				k = at
			}
			a := rapid.Int64Range(0, amount+amount/2).Draw(t, "debit")
			wait, ok := p.RetryAfter(level, now, a)
			after, fits := p.Debit(level, now, a)
			if want := used+a <= amount; fits != want || ok != (a <= amount) || fits && wait != 0 {
				t.Fatalf("a debit of %d beside %d of %d: %v, want %v; wait %v, %v", a, used, amount, fits, want, wait, ok)
			}
			if ok && !fits { // retryAfter is tight
				at := now + int64(wait)
				if _, early := p.Debit(level, at-1, a); early {
					t.Fatalf("a debit fits before %v", wait)
				}
				if _, then := p.Debit(level, at, a); !then {
					t.Fatalf("a debit does not fit after %v", wait)
				}
			}
			if fits {
				level, used = after, used+a
			} else if rapid.Bool().Draw(t, "force") {
				level, _ = p.Force(level, now, a)
				used += a
			}
			if got := amount - p.Available(level, p.Clock(now)); got != used {
				t.Fatalf("%d used, want %d", got, used)
			}
		}
	})
}

func TestQuotaSteps(t *testing.T) {
	t.Parallel()
	p := quota(t, 5000, "month@UTC")
	november := day(2026, time.November, 10)
	level, ok := p.Debit(p.Fresh(november), november, 5_000_000)
	if !ok {
		t.Fatal("a whole month does not fit")
	}
	december := day(2026, time.December, 1)
	if wait, ok := p.RetryAfter(level, november, 1000); !ok || november+int64(wait) != december {
		t.Errorf("wait %v, %v", wait, ok)
	}
	if p.Full(level) != december {
		t.Errorf("full at %v", clock.Time(p.Full(level)))
	}
	debt, _ := p.Force(level, november, 12_000_000)
	if wait, _ := p.RetryAfter(debt, november, 1000); november+int64(wait) != day(2027, time.February, 1) {
		t.Errorf("in debt, a debit fits after %v", wait)
	}
	if p.Available(debt, p.Clock(december)) != -7_000_000 {
		t.Errorf("%d available in December", p.Available(debt, p.Clock(december)))
	}
}

func TestQuotaRebase(t *testing.T) {
	t.Parallel()
	now := day(2026, time.November, 20)
	month, boost := quota(t, 5000, "month@UTC"), quota(t, 50_000, "month@UTC")
	daily, berlin := quota(t, 100, "day@UTC"), quota(t, 5000, "month+15@Europe/Berlin")
	rate := clock.Params{Amount: 100_000, Period: int64(time.Minute), Burst: 200_000}
	for _, tt := range []struct {
		name        string
		from, to    clock.Params
		spent, then int64 // tokens
		full        int64
	}{
		{"a boost ended", boost, month, 20_000, 0, day(2026, time.December, 1)},
		{"a boost ended within the quota", boost, month, 2000, 3000, day(2026, time.December, 1)},
		{"a boost began", month, boost, 5000, 45_000, day(2026, time.December, 1)},
		{"a month became a day", quota(t, 3000, "month@UTC"), daily, 2900, 0, day(2026, time.November, 21)},
		{"another anchor", month, berlin, 4000, 1000, clock.Nanos(time.Date(2026, 12, 14, 23, 0, 0, 0, time.UTC))},
		{"a rate became a quota", rate, month, 150, 4850, day(2026, time.December, 1)},
		{"a quota became a rate", month, rate, 5000, 0, now + int64(2*time.Minute)},
		{"a debt when a boost began", month, boost, 6000, 44_000, day(2026, time.December, 1)},
		{"a debt stays", month, daily, 5350, -350, day(2026, time.November, 25)},
	} {
		level, _ := tt.from.Force(tt.from.Fresh(now), now, 1000*tt.spent)
		level = clock.Rebase(tt.from, tt.to, level, now)
		if got := tt.to.Available(level, tt.to.Clock(now)); got != 1000*tt.then {
			t.Errorf("%s: %d millitokens are available, want %d tokens", tt.name, got, tt.then)
		}
		if got := tt.to.Full(level); got != tt.full {
			t.Errorf("%s: full at %v, want %v", tt.name, clock.Time(got), clock.Time(tt.full))
		}
	}
}

// TestBalance holds that what is available is what was credited and not debited, at any time.
func TestBalance(t *testing.T) {
	t.Parallel()
	p := clock.Balance
	if bad := p.Check(); bad != nil || p.Kind() != clock.Credits {
		t.Fatal(bad, p.Kind())
	}
	rapid.Check(t, func(t *rapid.T) {
		level, has := p.Fresh(0), int64(0)
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			now := rapid.Int64().Draw(t, "now")
			a := rapid.Int64Range(0, 1_000_000).Draw(t, "amount")
			switch rapid.SampledFrom([]string{"debit", "credit", "force"}).Draw(t, "step") {
			case "debit":
				wait, ok := p.RetryAfter(level, now, a)
				after, fits := p.Debit(level, now, a)
				if fits != (a <= has) || ok != fits || fits != (wait == 0) || !fits && wait != math.MaxInt64 {
					t.Fatalf("a debit of %d of %d: %v; wait %v, %v", a, has, fits, wait, ok)
				}
				if fits {
					level, has = after, has-a
				}
			case "credit":
				level, has = clock.Credit(level, a), has+a
			case "force":
				level, _ = p.Force(level, now, a)
				has -= a
			}
			if got := p.Available(level, p.Clock(now)); got != has || level != -has {
				t.Fatalf("%d available, level %d, want %d", got, level, has)
			}
			if p.Full(level) != math.MaxInt64 || p.Debt(level, p.Clock(now)) != max(0, -has) {
				t.Fatalf("full at %d, debt %d", p.Full(level), p.Debt(level, p.Clock(now)))
			}
		}
	})
	if level := clock.Rebase(perMinute, p, perMinute.Clock(start), start); p.Available(level, p.Clock(start)) != 0 {
		t.Error("a rate that becomes a balance has credits")
	}
}

func TestQuotaBounds(t *testing.T) {
	t.Parallel()
	w := quota(t, 1, "month@UTC").Window
	for name, tt := range map[string]struct {
		p     clock.Params
		field string
	}{
		"another burst":     {clock.Params{Amount: 1000, Burst: 2000, Window: w}, "burst"},
		"a period":          {clock.Params{Amount: 1000, Burst: 1000, Period: 1, Window: w}, "window"},
		"neither":           {clock.Params{Amount: 1000, Burst: 1000}, "period"},
		"too much":          {clock.Params{Amount: 1e17, Burst: 1e17, Window: w}, "amount"},
		"nothing":           {clock.Params{Window: w}, "amount"},
		"a small balance":   {clock.Params{Burst: 1000}, "amount"},
		"a balance, rising": {clock.Params{Amount: 1, Burst: clock.Balance.Burst}, "period"},
	} {
		if bad := tt.p.Check(); bad == nil || bad.Field != tt.field {
			t.Errorf("%s: %v", name, bad)
		}
	}
}

func BenchmarkQuota(b *testing.B) {
	p := quota(b, 5000, "month@Europe/Berlin")
	b.ReportAllocs()
	level, now := p.Fresh(start), start
	for b.Loop() {
		now += 1000
		level, sinkOK = p.Debit(level, now, 0)
	}
	sinkLevel = level
}
