package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/bench/internal/inprocess"
	"github.com/weirlimits/weir/store/disk"
)

// callers is the number of goroutines that wait for a disk or a network at the same time.
const callers = 64

func diskRows() []row {
	thousand := func() *harness.Keys { return harness.Uniform(1_000) }
	many := func() *harness.Keys { return harness.Uniform(100_000) }
	skewed := func() *harness.Keys { return harness.Zipf(100_000, 1.1) }
	what := func(mode disk.Mode, population string) string {
		return fmt.Sprintf("disk %s: admitted, %d callers, %s", mode, callers, population)
	}
	return []row{
		{
			name: what(disk.Ahead, "1,000 keys, 10,000/s each"), unit: perSecond, workers: callers,
			contenders: []contender{{name: "weir", setup: allowDisk(disk.Ahead, thousand, 10_000)}},
			target:     target{value: 200_000},
		},
		{
			name: what(disk.Ahead, "100,000 keys, Zipf 1.1, 1,000/s each"), unit: perSecond, workers: callers,
			contenders: []contender{{name: "weir", setup: allowDisk(disk.Ahead, skewed, 1_000)}},
			target:     target{value: 60_000},
		},
		{
			name: what(disk.Always, "100,000 keys"), unit: perSecond, workers: callers,
			contenders: []contender{
				{name: "weir", setup: allowDisk(disk.Always, many, 10_000)},
				{name: "bare bbolt", setup: bareBolt(many)},
			},
			target: target{ratio: 0.8},
		},
		{
			name: what(disk.Interval, "100,000 keys"), unit: perSecond, workers: callers,
			contenders: []contender{{name: "weir", setup: allowDisk(disk.Interval, many, 10_000)}},
			target:     target{value: 600_000},
		},
	}
}

// allowDisk counts the admitted requests for one token each, under limits that are the same for all keys.
func allowDisk(mode disk.Mode, population func() *harness.Keys, rate int64) func(*harness.Env) (harness.Work, error) {
	return func(e *harness.Env) (harness.Work, error) {
		st, err := disk.Open(filepath.Join(e.Dir, "weir-"+string(mode)), &disk.Config{Mode: mode})
		if err != nil {
			return nil, err
		}
		// A slow disk must be measured, not time out.
		lim, err := inprocess.Limiter(e, st, weir.Config{StoreTimeout: time.Minute}, weir.PerSecond("rps", rate))
		if err != nil {
			return nil, err
		}
		ctx, ks := e.Ctx, population()
		// Reading a key's limits is not what is measured, so they are cached; its bucket is created by its first debit.
		err = ks.Touch(func(id string) error { _, err := lim.Available(ctx, id, resource); return err })
		if err != nil {
			return nil, err
		}
		return allowed(e, asking(lim), ks, true), nil
	}
}
