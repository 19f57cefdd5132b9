package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/bench/internal/engine"
	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/bench/internal/readwrite"
	"github.com/weirlimits/weir/store/dynamodb"
)

// reader is a limiter that reads a bucket and writes it back, and its number of calls.
type reader struct {
	readwrite.Limiter
	calls *atomic.Int64
}

func newReader(e *harness.Env, check bool, tokens int64, every time.Duration) (*reader, error) {
	name, err := engine.Create(e, dynamodb.CreateConfig{})
	if err != nil {
		return nil, err
	}
	c, calls, err := client()
	return &reader{
		readwrite.Limiter{Client: c, Table: name, Check: check, Tokens: tokens, Every: every, Now: time.Now}, calls,
	}, err
}

// readerShape checks its writes, as any limiter that reads first must. An operation whose check fails counts as failed.
func readerShape(s shape) func(*harness.Env) (harness.Drive, error) {
	return func(e *harness.Env) (harness.Drive, error) {
		b, err := newReader(e, true, 1_000_000, 60*time.Microsecond)
		if err != nil {
			return nil, err
		}
		return func(round int, length time.Duration) (harness.Sample, error) {
			ids := make([]string, s.Entities)
			for i := range ids {
				ids[i] = fmt.Sprintf("r%d-%d", round, i)
				for range 2 {
					if _, err := b.Allow(e.Ctx, ids[i]); err != nil {
						return harness.Sample{}, err
					}
				}
			}
			at := 0 // of the single worker
			m := harness.Meter{CPU: harness.CPU, Calls: b.calls}
			return m.Timed(e, s.Workers, length, func(ctx context.Context, worker int) error {
				if s.Workers == 1 {
					at++
					worker = at
				}
				_, err := b.Allow(ctx, ids[worker%len(ids)])
				return err
			}), nil
		}, nil
	}
}
