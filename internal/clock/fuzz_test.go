package clock_test

import (
	"math"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/clock"
)

// extremes are the numbers at which int64 arithmetic is most likely to fail.
var extremes = []int64{
	math.MinInt64, math.MinInt64 + 1, -clock.MaxLevel, -1 << 62, -clock.MaxBurst, -int64(clock.MaxPeriod), -1 << 32, -1000, -1,
	0, 1, 1000, 1 << 32, int64(clock.MaxPeriod), clock.MaxBurst, 1 << 62, clock.MaxLevel, clock.MaxLevel + 1, math.MaxInt64 - clock.MaxBurst,
	math.MaxInt64 - 1, math.MaxInt64,
}

// extremeParams are the extreme valid parameters.
func extremeParams() []clock.Params {
	bursts := []int64{1, 100_000, clock.MaxBurst}
	var ps []clock.Params
	for i, period := range []int64{1, 2, 3, 999_999_937, int64(time.Minute), int64(clock.MaxPeriod)} {
		for j, amount := range []int64{1, min(7, maxAmount(period)), maxAmount(period)} {
			ps = append(ps, clock.Params{Amount: amount, Period: period, Burst: bursts[(i+j)%len(bursts)]})
		}
	}
	return ps
}

func TestExtremes(t *testing.T) {
	t.Parallel()
	ps := extremeParams()
	for i, p := range ps {
		if problem := p.Check(); problem != nil {
			t.Fatalf("%+v: %+v", p, *problem)
		}
		for _, level := range extremes {
			for _, now := range extremes {
				for _, a := range extremes {
					compare(t, p, level, now, a)
				}
				compareRebase(t, p, ps[(i+7)%len(ps)], level, now)
			}
		}
	}
}

func FuzzDebit(f *testing.F) {
	minute := int64(time.Minute)
	for _, level := range extremes {
		f.Add(int64(100_000), minute, int64(100_000), level, int64(599_999_999), int64(1000))
		f.Add(int64(4), int64(1), int64(clock.MaxBurst), int64(1), level, int64(clock.MaxBurst))
		f.Add(int64(1), int64(clock.MaxPeriod), int64(1), int64(-1), int64(-1), level)
	}
	f.Add(int64(7000), minute, int64(7000), int64(7000), int64(8_571_428_571), int64(1000))
	f.Add(int64(1), int64(1), int64(1), int64(math.MinInt64), int64(math.MaxInt64), int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, amount, period, burst, level, now, a int64) {
		p := clock.Params{Amount: amount, Period: period, Burst: burst}
		if p.Check() != nil {
			p = legal(amount, period, burst)
			if problem := p.Check(); problem != nil {
				t.Fatalf("%+v: %+v", p, *problem)
			}
		}
		compare(t, p, level, now, a)
		compareRebase(t, p, legal(period, amount, level), level, now)
	})
}

// legal turns any numbers into valid parameters.
func legal(amount, period, burst int64) clock.Params {
	within := func(n, limit int64) int64 { return 1 + int64(uint64(n)%uint64(limit)) }
	period = within(period, int64(clock.MaxPeriod))
	return clock.Params{Amount: within(amount, maxAmount(period)), Period: period, Burst: within(burst, clock.MaxBurst)}
}
