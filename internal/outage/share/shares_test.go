package share_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/outage/share"
	"github.com/weirlimits/weir/store"
)

var noon = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func limit(name string, tokens int64, period time.Duration) *store.Limit {
	return &store.Limit{Name: name, Amount: tokens * 1000, Period: period, Burst: tokens * 1000}
}

func debit(entity string, l *store.Limit, tokens int64) store.Debit {
	return store.Debit{Bucket: store.Bucket{Entity: entity}, Charges: []store.Charge{{Limit: l, Amount: tokens * 1000}}}
}

func take(t *testing.T, s *share.Shares, n int, at time.Time, ds ...store.Debit) bool {
	t.Helper()
	out, ok := s.Take(ds, n, at)
	if !ok {
		t.Fatal("no room")
	}
	return out.Allowed
}

// However many processes share a limit, together they have its rate to the millitoken, and its burst or one token each.
func TestOf(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &store.Limit{
			Amount: rapid.Int64Range(1, clock.MaxBurst).Draw(t, "amount"), Period: time.Duration(rapid.Int64Range(1,
				int64(clock.MaxPeriod)).Draw(t, "period")),
			Burst: rapid.Int64Range(1, clock.MaxBurst).Draw(t, "burst"),
		}
		n := rapid.IntRange(1, 100_000).Draw(t, "n")
		p := share.Of(l, n)
		if p.Burst > l.Burst || p.Burst < 1 || p.Amount < 1 || p.Period < int64(l.Period) {
			t.Fatalf("%+v", p)
		}
		if p.Burst < 1000 && p.Burst != l.Burst || p.Burst > 1000 && p.Burst > l.Burst/int64(n) {
			t.Fatalf("burst %d of %d over %d", p.Burst, l.Burst, n)
		}
		whole := float64(l.Amount) / float64(l.Period) / float64(n)
		if got := float64(p.Amount) / float64(p.Period); got > whole*(1+1e-9) && p.Amount > 1 {
			t.Fatalf("rate %g, its share is %g", got, whole)
		}
	})
}

// All or nothing, across the buckets of a chain.
func TestAllOrNone(t *testing.T) {
	t.Parallel()
	s := share.New(1000)
	child, parent := limit("rpm", 10, time.Minute), limit("rpm", 4, time.Minute)
	both := func(n int64) bool { return take(t, s, 2, noon, debit("child", child, n), debit("parent", parent, n)) }
	if !both(2) || both(1) || !take(t, s, 2, noon, debit("child", child, 3)) || take(t, s, 2, noon, debit("child",
		child, 1)) {
		t.Error("a refused chain was charged, or an empty one admitted")
	}
	if take(t, s, 2, noon.Add(29*time.Second), debit("parent", parent, 1)) || !take(t, s, 2, noon.Add(30*time.Second),
		debit("parent", parent, 1)) {
		t.Error("not at half of its rate")
	}
}

// A warm share is never below empty, whatever the store admitted to the process.
func TestWarmIsNotInDebt(t *testing.T) {
	t.Parallel()
	s, l := share.New(1000), limit("rpm", 60, time.Minute)
	for range 50 {
		s.Warm([]store.Debit{debit("a", l, 1)}, &store.Outcome{Allowed: true, At: noon}, 10, noon)
	}
	if take(t, s, 10, noon, debit("a", l, 1)) || !take(t, s, 10, noon.Add(10*time.Second), debit("a", l, 1)) {
		t.Error("not empty, or in debt")
	}
}

// A share is as empty as the limit is in the store, debt included, whoever spent the tokens, and by the store's clock.
func TestWarmFollowsTheStore(t *testing.T) {
	t.Parallel()
	l := limit("rpm", 60, time.Minute)
	p := clock.Params{Amount: l.Amount, Period: int64(l.Period), Burst: l.Burst}
	theirs := noon.Add(time.Hour)
	for left, want := range map[int64]int64{60: 6, 30: 3, 10: 1, 9: 0, 0: 0, -60: -6} {
		s := share.New(1000)
		level := p.Clock(clock.Nanos(theirs)) + l.Burst - left*1000
		s.Warm([]store.Debit{debit("a", l, 0)}, &store.Outcome{
			Allowed: true, At: theirs,
			Levels: []store.Level{{Limit: l, Level: level}},
		}, 10, noon)
		out, _ := s.Take([]store.Debit{debit("a", l, 0)}, 10, noon)
		share := share.Of(l, 10)
		got := share.Available(out.Levels[0].Level, share.Clock(clock.Nanos(noon)))
		if math.Floor(float64(got)/1000) != float64(want) {
			t.Errorf("%d are left in the store: %d in the share, want %d", left, got, want)
		}
	}
	s := share.New(1000)
	s.Warm([]store.Debit{debit("a", l, 3)}, &store.Outcome{At: noon}, 10, noon) // refused, with a brief answer
	if take(t, s, 10, noon, debit("a", l, 3)) || !take(t, s, 10, noon, debit("a", l, 2)) {
		t.Error("a refusal is not known")
	}
}

// If the number of processes or the limits change, the spent fraction of a share stays.
func TestChange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := share.New(1000)
		tokens := rapid.Int64Range(1, 1000)
		l := limit("rpm", tokens.Draw(t, "limit"), time.Hour)
		if out, _ := s.Take([]store.Debit{debit("a", l, l.Burst/1000)}, 3, noon); !out.Allowed {
			t.Fatal("a full share refused")
		}
		for range 20 {
			n := rapid.IntRange(1, 50).Draw(t, "n")
			l = limit("rpm", tokens.Draw(t, "limit"), time.Hour)
			if out, _ := s.Take([]store.Debit{debit("a", l, 1)}, n, noon); out.Allowed {
				t.Fatalf("a token of an empty share, as one of %d of %+v", n, l)
			}
		}
	})
}

// There is room for a fixed number of buckets, and a bucket is evicted only if it is full.
func TestRoom(t *testing.T) {
	t.Parallel()
	s, l := share.New(64), limit("rpm", 10, time.Minute)
	admitted, full := 0, 0
	for round := range 3 {
		for i := range 2000 {
			out, ok := s.Take([]store.Debit{debit(fmt.Sprint(i), l, 10)}, 1, noon)
			if ok && out.Allowed {
				admitted++
			} else if !ok {
				full++
			}
		}
		if s.Len() > 64 || admitted > 64 || full == 0 {
			t.Fatalf("round %d: %d buckets, %d bursts, %d without room", round, s.Len(), admitted, full)
		}
	}
	before := admitted
	for i := range 2000 {
		if out, ok := s.Take([]store.Debit{debit(fmt.Sprint(i+5000), l, 10)}, 1, noon.Add(3*time.Minute)); ok &&
			out.Allowed {
			admitted++
		}
	}
	if got := admitted - before; got < 32 || got > 64 {
		t.Errorf("%d found room when all were full again", got)
	}
}

// Limits given with requests are bounded in number, as in a store.
func TestOverrides(t *testing.T) {
	t.Parallel()
	s := share.New(1000)
	over := func(tokens int64) store.Debit {
		l := limit("rpm", tokens, time.Minute)
		l.Override = true
		return debit("a", l, tokens)
	}
	for i := range int64(store.MaxOverrides) {
		if !take(t, s, 1, noon, over(i+1)) || take(t, s, 1, noon, over(i+1)) {
			t.Fatal(i)
		}
	}
	if _, ok := s.Take([]store.Debit{over(100)}, 1, noon); ok {
		t.Error("one too many")
	}
	if !take(t, s, 1, noon.Add(3*time.Minute), over(100)) {
		t.Error("no room when the others are full")
	}
	two := over(7)
	two.Charges = append(two.Charges, over(200).Charges[0], over(201).Charges[0])
	_, _ = s.Take([]store.Debit{two}, 1, noon.Add(3*time.Minute))
}

func TestSettleAndBill(t *testing.T) {
	t.Parallel()
	b, l := store.Bucket{Entity: "a"}, limit("rpm", 60, time.Minute)
	spent := func() *share.Shares {
		s := share.New(1000)
		take(t, s, 2, noon, debit("a", l, 20))
		s.Settle([]store.Debit{debit("a", l, -5)}, 2, time.Time{}, noon)
		s.Settle([]store.Debit{debit("a", l, 25)}, 2, time.Time{}, noon)
		return s
	}
	const minute = time.Minute
	if got := spent().Bill(b, l, 2, noon, 40_000); got != 40_000 {
		t.Errorf("owes %d", got)
	}
	for after, want := range map[time.Duration]int64{
		minute:                    40_000, // the store may have issued the whole burst to others
		minute + 20*time.Second:   30_000, // from then on, half of the rate covers it
		2*minute + 20*time.Second: 0,
	} {
		if got := spent().Bill(b, l, 2, noon.Add(after), 40_000); got != want {
			t.Errorf("owes %d after %v, want %d", got, after, want)
		}
	}
	known := spent()
	known.Away(noon.Add(minute + 20*time.Second))
	if got := known.Bill(b, l, 2, noon.Add(time.Hour), 40_000); got != 30_000 {
		t.Errorf("owes %d when the store was last known to be away after 80 s", got)
	}
	if got := spent().Bill(store.Bucket{Entity: "b"}, l, 2, noon, 40_000); got != 0 {
		t.Errorf("a stranger owes %d", got)
	}
	s := spent() // the store answers, fails and answers again before it is charged
	out := &store.Outcome{Allowed: true, At: noon.Add(2 * minute)}
	s.Warm([]store.Debit{debit("a", l, 30)}, out, 2, out.At)
	take(t, s, 2, noon.Add(3*minute), debit("a", l, 15))
	if got := s.Bill(b, l, 2, noon.Add(3*minute), 55_000); got != 10_000+15_000 {
		t.Errorf("owes %d of two outages, want 10 of the first and 15 of the second", got)
	}
	if got := s.Bill(b, l, 2, noon.Add(3*minute), 1_000); got != 0 {
		t.Errorf("owes %d again", got)
	}
	s = spent()
	s.Warm([]store.Debit{debit("a", l, 30)}, out, 2, out.At)
	if got := s.Bill(b, l, 2, noon.Add(time.Hour), 40_000); got != 10_000 {
		t.Errorf("owes %d, want the 10 of when the store answered", got)
	}
}

// In a process that began without a store no share is full, not even one that arrives with another process's lease.
func TestBeginThenSettle(t *testing.T) {
	t.Parallel()
	s, rpm, tpm := share.New(1000), limit("rpm", 60, time.Minute), limit("tpm", 60, time.Minute)
	s.Begin(noon)
	if !take(t, s, 2, noon, debit("a", rpm, 1)) || take(t, s, 2, noon, debit("a", rpm, 1)) {
		t.Error("not a token")
	}
	s.Settle([]store.Debit{debit("a", tpm, 1)}, 2, time.Time{}, noon)
	if take(t, s, 2, noon.Add(time.Second), debit("a", tpm, 1)) || !take(t, s, 2, noon.Add(2*time.Second), debit("a",
		tpm, 1)) {
		t.Error("a share that was settled first is full")
	}
}

func BenchmarkWarm(b *testing.B) {
	s := share.New(1000)
	l := limit("rpm", 1_000_000, time.Minute)
	m := limit("tpm", 1_000_000, time.Minute)
	d := debit("a", l, 1)
	d.Charges = append(d.Charges, store.Charge{Limit: m})
	now := time.Now()
	p := clock.Params{Amount: l.Amount, Period: int64(l.Period), Burst: l.Burst}
	lv := store.Level{Limit: l, Level: p.Clock(clock.Nanos(now))}
	out := &store.Outcome{Allowed: true, At: now, Levels: []store.Level{lv, lv}}
	b.ReportAllocs()
	for b.Loop() {
		s.Warm([]store.Debit{d}, out, 3, now)
	}
}

// An adjustment brings a share at most its part of MaxDebt into debt, and a strict return gives back what the whole
// limit has not issued again.
func TestSettleTerms(t *testing.T) {
	t.Parallel()
	l, s := limit("tpm", 600, time.Minute), share.New(1000)
	if !take(t, s, 2, noon, debit("a", l, 300)) {
		t.Fatal("refused")
	}
	settle := func(since, at time.Time, c store.Charge) int64 {
		c.Limit = l
		got := s.Settle([]store.Debit{{Bucket: debit("a", l, 0).Bucket, Charges: []store.Charge{c}}}, 2, since, at)
		return got[0].Charges[0].Amount / 1000
	}
	if got := settle(noon, noon, store.Charge{Amount: 500_000, MaxDebt: 400_000}); got != 200 {
		t.Errorf("%d debited, want half of 400", got)
	}
	if got := settle(noon, noon, store.Charge{Amount: 500_000, MaxDebt: 400_000}); got != 0 {
		t.Errorf("%d debited beyond that", got)
	}
	later := noon.Add(10 * time.Second) // the limit has issued 100
	for name, tt := range map[string]struct {
		since time.Time
		want  int64
	}{"known": {noon, -50}, "unknown": {time.Time{}, 0}} {
		if got := settle(tt.since, later, store.Charge{Amount: -150_000, Strict: true}); got != tt.want {
			t.Errorf("%s: %d given back, want %d", name, got, tt.want)
		}
	}
}
