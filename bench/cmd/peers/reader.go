package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/bench/internal/measure"
	"github.com/weirlimits/weir/bench/internal/readwrite"
	"github.com/weirlimits/weir/store/dynamodb"
)

// reader is a limiter that reads a bucket and writes it back, and its number of calls.
type reader struct {
	readwrite.Limiter
	calls *atomic.Int64
}

func newReader(e *env, check bool, tokens int64, every time.Duration) (*reader, error) {
	name, err := table(e, dynamodb.CreateConfig{})
	if err != nil {
		return nil, err
	}
	c, calls, err := client()
	return &reader{
		readwrite.Limiter{Client: c, Table: name, Check: check, Tokens: tokens, Every: every, Now: time.Now}, calls,
	}, err
}

// readerShape checks its writes, as any limiter that reads first must. An operation whose check fails counts as failed.
func readerShape(s shape) func(*env) (drive, error) {
	return func(e *env) (drive, error) {
		b, err := newReader(e, true, 1_000_000, 60*time.Microsecond)
		if err != nil {
			return nil, err
		}
		return func(round int, length time.Duration) (sample, error) {
			ids := make([]string, s.Entities)
			for i := range ids {
				ids[i] = fmt.Sprintf("r%d-%d", round, i)
				for range 2 {
					if _, err := b.Allow(e.ctx, ids[i]); err != nil {
						return sample{}, err
					}
				}
			}
			at := 0 // of the single worker
			return timed(e, s.Workers, meter{measure.CPU, b.calls}, func(ctx context.Context, worker int) error {
				if s.Workers == 1 {
					at++
					worker = at
				}
				_, err := b.Allow(ctx, ids[worker%len(ids)])
				return err
			})(length), nil
		}, nil
	}
}
