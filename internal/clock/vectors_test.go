package clock_test

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/clock"
)

// The worked vectors of the token clock. The number in a test's name is the vector's. Tokens are whole, instants are
// milliseconds after Epoch, and the limit is 100 per 60 s with a burst of 100 unless stated otherwise.

const never = time.Duration(-1) // in a step's retry: there is no retry time, because the debit exceeds the burst

type step struct {
	at        int64 // ms
	op        string
	tokens    int64
	refused   bool
	available int64         // tokens, after the step
	retry     time.Duration // of the debit, if it was refused
}

func per60s(tokens, burst int64) clock.Params {
	return clock.Params{Amount: tokens * 1000, Period: int64(time.Minute), Burst: burst * 1000}
}

func ms(n int64) int64 { return n * int64(time.Millisecond) }

func TestVectors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		limit  clock.Params
		change clock.Params // for the step "change"
		steps  []step
	}{
		{"1 to 4, a burst and then one token", per60s(100, 100), clock.Params{}, []step{
			{at: 0, op: "debit", tokens: 100},
			{at: 0, op: "debit", tokens: 1, refused: true, retry: 600 * time.Millisecond},
			{at: 599, op: "debit", tokens: 1, refused: true, retry: time.Millisecond},
			{at: 600, op: "debit", tokens: 1},
		}},
		{"5, one burst after an idle hour, not two", per60s(100, 100), clock.Params{}, []step{
			{at: 3_600_000, op: "debit", tokens: 100},
			{at: 3_600_000, op: "debit", tokens: 1, refused: true, retry: 600 * time.Millisecond},
		}},
		{"6 and 7, debt and its return", per60s(100, 100), clock.Params{}, []step{
			{at: 0, op: "debit", tokens: 100},
			{at: 0, op: "force", tokens: 20, available: -20},
			{at: 0, op: "debit", tokens: 1, refused: true, available: -20, retry: 12_600 * time.Millisecond},
			{at: 0, op: "credit", tokens: 20},
		}},
		{"10, more than the burst", per60s(100, 100), clock.Params{}, []step{
			{at: 0, op: "debit", tokens: 101, refused: true, available: 100, retry: never},
		}},
		{"11, raised", per60s(100, 100), per60s(200, 200), []step{
			{at: 0, op: "debit", tokens: 100},
			{at: 0, op: "change", available: 100},
		}},
		{"12, lowered", per60s(200, 200), per60s(100, 100), []step{
			{at: 0, op: "debit", tokens: 150, available: 50},
			{at: 0, op: "change", available: -50},
		}},
		{"14, a log older than Epoch", per60s(100, 1), clock.Params{}, []step{
			{at: -1, op: "debit", tokens: 1},
			{at: 0, op: "debit", tokens: 1, refused: true, retry: 598_800 * time.Microsecond},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := tt.limit
			level := p.Clock(ms(tt.steps[0].at))
			for i, s := range tt.steps {
				ok, now := true, ms(s.at)
				switch s.op {
				case "debit":
					level, ok = p.Debit(level, now, s.tokens*1000)
				case "force":
					level, ok = p.Force(level, now, s.tokens*1000)
				case "credit":
					level = clock.Credit(level, s.tokens*1000)
				case "change":
					level = clock.Rebase(p, tt.change, level, now)
					p = tt.change
				}
				if ok == s.refused {
					t.Errorf("step %d: refused is %v, want %v", i, !ok, s.refused)
				}
				// Less than a token apart, because vectors use whole tokens.
				if got := p.Available(level, p.Clock(now)); got < s.available*1000 || got >= s.available*1000+1000 {
					t.Errorf("step %d: available is %d millitokens, want %d tokens", i, got, s.available)
				}
				if s.op != "debit" || !s.refused {
					continue
				}
				wait, possible := p.RetryAfter(level, now, s.tokens*1000)
				if want := s.retry; possible != (want != never) || possible && wait != want {
					t.Errorf("step %d: retry after %v, %v; want %v", i, wait, possible, want)
				}
			}
		})
	}
}

// TestVector8 debits one token a millisecond from a drained bucket of 7 per minute.
func TestVector8(t *testing.T) {
	t.Parallel()
	p := per60s(7, 7)
	level, ok := p.Debit(0, 0, 7000)
	if !ok {
		t.Fatal("a full bucket refused its burst")
	}
	var at []int64
	for n := int64(0); n <= 60_000; n++ {
		if level, ok = p.Debit(level, ms(n), 1000); ok {
			at = append(at, n)
		}
	}
	if len(at) != 7 {
		t.Fatalf("admitted at %v, want 7 times", at)
	}
	for i, got := range at {
		// The first millisecond at or after (i+1)·60,000/7.
		if want := (int64(i+1)*60_000 + 6) / 7; got != want {
			t.Errorf("token %d was admitted at %d ms, want %d", i+1, got, want)
		}
	}
}

// TestVector9 writes 2,000 times a second to one hot bucket: if time is rounded, each write gains a little.
func TestVector9(t *testing.T) {
	t.Parallel()
	p := per60s(1_000_000, 1_000_000)
	level, _ := p.Debit(0, 0, p.Burst)
	admitted := 0
	for n := int64(1); n <= 120_000; n++ {
		var ok bool
		if level, ok = p.Debit(level, n*int64(500*time.Microsecond), 25_000); ok {
			admitted += 25
		}
	}
	if admitted != 1_000_000 {
		t.Errorf("admitted %d, want exactly 1,000,000", admitted)
	}
}

// several is a bucket with several limits, as a store keeps it.
type several struct {
	limits []clock.Params
	levels []int64
}

// debit spends all amounts or none.
func (s *several) debit(now int64, tokens ...int64) bool {
	for i, p := range s.limits {
		if !p.Fits(s.levels[i], p.Clock(now), tokens[i]*1000) {
			return false
		}
	}
	for i, p := range s.limits {
		s.levels[i] = clock.Spend(s.levels[i], p.Clock(now), tokens[i]*1000)
	}
	return true
}

func (s *several) available(now int64) [2]int64 {
	var got [2]int64
	for i, p := range s.limits {
		got[i] = p.Available(s.levels[i], p.Clock(now)) / 1000
	}
	return got
}

func newRpmTpm() *several {
	return &several{[]clock.Params{per60s(10, 10), per60s(1000, 1000)}, []int64{0, 0}}
}

func TestVector13(t *testing.T) {
	t.Parallel()
	s := newRpmTpm()
	if s.debit(0, 1, 1001) {
		t.Error("1001 of 1000 were admitted")
	}
	if got, want := s.available(0), [2]int64{10, 1000}; got != want {
		t.Errorf("available %v after the refusal, want %v", got, want)
	}
}

func TestVector15(t *testing.T) {
	t.Parallel()
	s := newRpmTpm()
	s.levels[1], _ = s.limits[1].Force(s.levels[1], 0, 1_500_000)
	if s.debit(0, 1, 0) {
		t.Error("a debit of rpm was admitted while tpm is in debt")
	}
	if got, want := s.available(0), [2]int64{10, -500}; got != want {
		t.Errorf("available %v, want %v", got, want)
	}
	wait, ok := s.limits[1].RetryAfter(s.levels[1], 0, 0)
	if !ok || wait != 30*time.Second {
		t.Fatalf("retry after %v, %v; want 30s", wait, ok)
	}
	if s.debit(int64(wait)-1, 1, 0) || !s.debit(int64(wait), 1, 0) {
		t.Error("not admitted exactly when told to retry")
	}
}

func TestEpoch(t *testing.T) {
	t.Parallel()
	if got, want := clock.Epoch.Format(time.RFC3339), "2024-01-01T00:00:00Z"; got != want {
		t.Errorf("Epoch is %s, want %s", got, want)
	}
	at := clock.Epoch.Add(-1234567 * time.Nanosecond)
	if n := clock.Nanos(at); n != -1234567 || !clock.Time(n).Equal(at) {
		t.Errorf("Nanos is %d, and its inverse %v", n, clock.Time(n))
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	year := int64(clock.MaxPeriod)
	for _, tt := range []struct {
		name  string
		p     clock.Params
		field string
	}{
		{"usual", per60s(100, 100), ""},
		{"slowest", clock.Params{Amount: 1, Period: year, Burst: 1}, ""},
		{"longest period, fastest", clock.Params{Amount: maxAmount(year), Period: year, Burst: clock.MaxBurst}, ""},
		{"shortest period, fastest", clock.Params{Amount: maxAmount(1), Period: 1, Burst: 1}, ""},
		{"no amount", clock.Params{Amount: 0, Period: 1, Burst: 1}, "amount"},
		{"negative amount", clock.Params{Amount: -1, Period: 1, Burst: 1}, "amount"},
		{"no period", clock.Params{Amount: 1, Period: 0, Burst: 1}, "period"},
		{"negative period", clock.Params{Amount: 1, Period: -1, Burst: 1}, "period"},
		{"long period", clock.Params{Amount: 1, Period: year + 1, Burst: 1}, "period"},
		{"no burst", clock.Params{Amount: 1, Period: 1, Burst: 0}, "burst"},
		{"negative burst", clock.Params{Amount: 1, Period: 1, Burst: -1}, "burst"},
		{"great burst", clock.Params{Amount: 1, Period: 1, Burst: clock.MaxBurst + 1}, "burst"},
		{"too fast, longest period", clock.Params{Amount: maxAmount(year) + 1, Period: year, Burst: 1}, "rate"},
		{"too fast, shortest period", clock.Params{Amount: maxAmount(1) + 1, Period: 1, Burst: 1}, "rate"},
		{"4 million a second", clock.Params{Amount: 4_000_000_000, Period: int64(time.Second), Burst: 1}, ""},
		{"5 million a second", clock.Params{Amount: 5_000_000_000, Period: int64(time.Second), Burst: 1}, "rate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			switch problem := tt.p.Check(); {
			case problem == nil && tt.field != "":
				t.Errorf("no problem found, want one with the %s", tt.field)
			case problem != nil && (problem.Field != tt.field || problem.Reason == ""):
				t.Errorf("found %+v, want a problem with %q", *problem, tt.field)
			}
		})
	}
}
