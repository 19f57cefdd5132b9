package main

import (
	"time"

	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/internal/clock"
)

func bucketRows() []row {
	return []row{{
		name:       "bucket: debit",
		unit:       nanoseconds,
		workers:    1,
		contenders: []contender{{name: "weir", setup: debit}},
		target:     target{value: 15, hasAllocs: true},
	}}
}

// debit debits a limit of a million a minute, each time as soon as it fits, two years after Epoch.
func debit(*harness.Env) (harness.Work, error) {
	p := clock.Params{Amount: 1_000_000_000, Period: int64(time.Minute), Burst: 1_000_000_000}
	now := int64(2 * 365 * 24 * time.Hour)
	level := p.Clock(now) + p.Burst
	return func(_, n int) (int, error) {
		admitted := 0
		for range n {
			now += 60_000
			var ok bool
			if level, ok = p.Debit(level, now, 1000); ok {
				admitted++
			}
		}
		return admitted, nil
	}, nil
}
