package stores

import (
	"context"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/lab/torture"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/memory"
	"github.com/weirlimits/weir/store/redis"
)

// Torture is a store under test: how to open it, what to expect of it, and how much load to put on it.
type Torture struct {
	Open      torture.Opener
	Traits    torture.Traits
	Processes int
	Rate      float64
}

// OpenTorture returns how to open a store for weir torture: with a clock of its own where possible, and in its most
// exact configuration.
func OpenTorture(address string) (*Torture, error) {
	scheme, rest, _ := strings.Cut(address, ":")
	switch {
	case scheme == "memory" && rest == "":
		return &Torture{
			Open: func(now func() time.Time) (store.Store, error) {
				return memory.New(&memory.Config{Now: now}), nil
			},
			Traits: torture.Traits{Atomic: true, OwnClock: true},
		}, nil
	case scheme == "disk":
		path, cfg, err := diskConfig(address, rest)
		if err != nil {
			return nil, err
		}
		cfg.MustExist = true
		return &Torture{
			Open: func(now func() time.Time) (store.Store, error) {
				cfg.Now = now
				return disk.Open(path, cfg)
			},
			Traits: torture.Traits{Atomic: true, OwnClock: true},
		}, nil
	case scheme == "dynamodb":
		return tortureDynamo(address, rest)
	case redis.Knows(scheme):
		return &Torture{
			Open:   func(func() time.Time) (store.Store, error) { return openRedis(address) },
			Traits: torture.Traits{Shared: true, Atomic: true, InFlight: 100 * time.Millisecond, Back: time.Second},
			Rate:   2000, Processes: 3,
		}, nil
	}
	_, err := Open(address, Existing) // explains what is wrong with the address
	return nil, err
}

// tortureDynamo turns off the features that save calls at the cost of exactness between processes: remembered refusals,
// tokens debited ahead and split buckets.
func tortureDynamo(address, rest string) (*Torture, error) {
	d, err := parseDynamo(address, rest)
	if err != nil {
		return nil, err
	}
	return &Torture{
		Open: func(now func() time.Time) (store.Store, error) {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			cfg, err := d.AWS(ctx)
			if err != nil {
				return nil, err
			}
			c := d.store
			c.Client, c.Table, c.Now = d.client(cfg), d.table, now
			c.RejectionTTL, c.Guard, c.Prefetch, c.MaxShards = -1, -1, dynamodb.Prefetch{}, 1
			return dynamodb.Open(ctx, c)
		},
		Traits: torture.Traits{Shared: true, OwnClock: true, InFlight: 300 * time.Millisecond, Back: 2 * time.Second},
		Rate:   200, Processes: 3,
	}, nil
}
