package limitname_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/batch/limitname"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/store"
)

func window(t testing.TB, text string) calendar.Window {
	t.Helper()
	w, err := calendar.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func drawParams(t *rapid.T) clock.Params {
	p := clock.Params{
		Period: rapid.OneOf(rapid.SampledFrom([]int64{1, int64(time.Second), int64(time.Minute), int64(clock.MaxPeriod)}), rapid.Int64Range(1, int64(clock.MaxPeriod))).Draw(t, "period"),
		Burst:  rapid.OneOf(rapid.SampledFrom([]int64{1, 999, 1000, clock.MaxBurst}), rapid.Int64Range(1, clock.MaxBurst)).Draw(t, "burst"),
	}
	p.Amount = rapid.Int64Range(1, max(1, p.Period/250_000*1000)).Draw(t, "amount")
	return p
}

// TestParams checks that the text of a limit's parameters is read back as it was, and that no other text is accepted.
func TestParams(t *testing.T) {
	t.Parallel()
	for p, want := range map[clock.Params]string{
		{Burst: 75_000, Amount: 50_000, Period: int64(time.Minute)}:                           "75/50/60s",
		{Burst: 1, Amount: 1500, Period: 7}:                                                   "1m/1500m/7ns",
		{Burst: 5_000_000, Amount: 5_000_000, Window: window(t, "month@Europe/Berlin")}:       "5000/5000/month@Europe/Berlin",
		{Burst: 1, Amount: 1, Window: window(t, "week+sun@America/Los_Angeles")}:              "1m/1m/week+sun@America/Los_Angeles",
		{Burst: 1000, Amount: 1000, Window: window(t, "month+31@America/Argentina/La_Rioja")}: "1/1/month+31@America/Argentina/La_Rioja",
		clock.Balance: "balance",
		{Burst: 20_000, Heal: int64(30 * time.Second)}: "20/slots/30s",
		{Burst: 1, Heal: 16_000_000_001}:               "1m/slots/16000000001ns",
	} {
		if got := limitname.Format(p); got != want {
			t.Errorf("%+v: %q, want %q", p, got, want)
		}
		if got, ok := limitname.ParseParams(want); p.Check() == nil && (!ok || got != p) {
			t.Errorf("%q: %+v, %t, want %+v", want, got, ok, p)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t)
		if p.Check() != nil {
			t.Skip("the clock would be too fast")
		}
		s := limitname.Format(p)
		if got, ok := limitname.ParseParams(s); !ok || got != p {
			t.Fatalf("%+v became %q, and that %+v, %t", p, s, got, ok)
		}
	})
	for _, s := range []string{
		"", "//", "1/1", "1/1/1", "1/1/1s/1", "0/1/1s", "1/0/1s", "1/1/0s", "-1/1/1s", "1/-1/1s", "1/1/-1s", "1.5/1/1s", "1/1/1h", "x/1/1s",
		"1/1/1ms", "1 /1/1s", "1/1/31622401s", "1000000000000001/1/1s", "9223372036854775807/1/1s", "9223372036854775808m/1/1s", "1/9000000/1s",
		"1/1/month", "1/1/@UTC", "1/1/month+1@UTC", "2/1/month@UTC", "1/1/fortnight@UTC", "1/1/month@Berlin", "1/1/1s/month@UTC", "balance/1", "1/balance",
		"1/slots", "0/slots/30s", "1/slots/15s", "1/slots/3601s", "1/slots/30s/1", "1/slots/month@UTC", "/slots/30s", "slots/1/30s",
	} {
		if p, ok := limitname.ParseParams(s); ok {
			t.Errorf("%q is taken for %+v", s, p)
		}
	}
}

// TestLimitName checks that different limits have different attribute names.
func TestLimitName(t *testing.T) {
	t.Parallel()
	name := rapid.OneOf(rapid.SampledFrom([]string{"L_x", "!", "%21", "x!1/1/1s", "é", "a b"}), rapid.StringOfN(rapid.RuneFrom([]rune("ab!%1250/ms")), 1, 8, -1))
	limit := rapid.Custom(func(t *rapid.T) store.Limit {
		l := store.Limit{Name: name.Draw(t, "name"), Override: rapid.Bool().Draw(t, "override"), Amount: 1000, Period: time.Second, Burst: 1000}
		if !l.Override && rapid.Bool().Draw(t, "slots") {
			l.Amount, l.Period, l.Heal = 0, 0, time.Minute
		}
		if l.Override {
			l.Burst = rapid.SampledFrom([]int64{1000, 2000, 1, 12_000}).Draw(t, "burst")
		}
		return l
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := limit.Draw(t, "a"), limit.Draw(t, "b")
		if (limitname.Of(&a) == limitname.Of(&b)) != (a == b) {
			t.Fatalf("%+v is %q, %+v is %q", a, limitname.Of(&a), b, limitname.Of(&b))
		}
		plain, params, override := limitname.Parse(limitname.Of(&a))
		if plain != a.Name || override != a.Override || override && params != limitname.Format(a.Params()) {
			t.Fatalf("%+v became %q, and that %q, %q, %t", a, limitname.Of(&a), plain, params, override)
		}
	})
}
