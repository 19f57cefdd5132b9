package clock_test

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/clock"
)

// perMinute is the limit of most benchmarks. Like any realistic limit, its clock needs a 128-bit product.
var perMinute = clock.Params{Amount: 1_000_000_000, Period: int64(time.Minute), Burst: 1_000_000_000}

// Results that the compiler must not optimize away.
var (
	sinkLevel int64
	sinkOK    bool
	sinkWait  time.Duration
)

// start is two years after Epoch: near Epoch the products would fit into 64 bits.
const start = int64(2 * 365 * 24 * time.Hour)

func BenchmarkDebit(b *testing.B) {
	for _, bb := range []struct {
		name string
		step int64 // nanoseconds between debits of the tokens issued in 60 µs
	}{
		{"admitted", 60_000},
		{"refused", 0},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			level, ok, now := int64(0), false, start
			for b.Loop() {
				now += bb.step
				level, ok = perMinute.Debit(level, now, 1000)
			}
			sinkLevel, sinkOK = level, ok
		})
	}
}

func BenchmarkRetryAfter(b *testing.B) {
	b.ReportAllocs()
	level := clock.Spend(0, perMinute.Clock(start), perMinute.Burst)
	for b.Loop() {
		sinkWait, sinkOK = perMinute.RetryAfter(level, start, 1000)
	}
}

func TestAllocations(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts the allocations of the whole process
	p, level := perMinute, int64(0)
	slower := clock.Params{Amount: 1, Period: int64(clock.MaxPeriod), Burst: 1}
	for name, f := range map[string]func(){
		"Debit":      func() { level, sinkOK = p.Debit(level, start, 1) },
		"Force":      func() { level, sinkOK = p.Force(level, start, 1) },
		"Credit":     func() { level = clock.Credit(level, 1) },
		"RetryAfter": func() { sinkWait, sinkOK = p.RetryAfter(level, start, p.Burst) },
		"Full":       func() { sinkLevel = p.Full(level) },
		"Rebase":     func() { sinkLevel = clock.Rebase(p, slower, level, start) },
		"Check":      func() { sinkOK = p.Check() == nil },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
