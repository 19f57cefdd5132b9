package instances_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/fleet/instances"
	"github.com/weirlimits/weir/internal/testkit/raced"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// counted is a catalog that counts writes.
type counted struct {
	store.Catalog

	commits atomic.Int64
}

func (c *counted) Commit(ctx context.Context, ws ...store.Write) error {
	c.commits.Add(1)
	return c.Catalog.Commit(ctx, ws...)
}

// A thousand processes are all counted by each of them, and write no more than a hundred times a second.
func TestThousand(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		cat := &counted{Catalog: memory.New(nil)}
		ctx, stop := context.WithCancel(t.Context())
		left, leave := context.WithCancel(ctx) // half of them leave
		all := make([]*instances.Counter, n)
		for i := range all {
			all[i] = instances.New(cat, slog.New(slog.DiscardHandler))
			c, ctx := all[i], ctx
			if i >= n/2 {
				ctx = left
			}
			go func() { _ = c.Run(ctx) }()
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		for i, c := range all {
			if got := c.Count(); got != n {
				t.Fatalf("process %d counts %d", i, got)
			}
		}
		cat.commits.Store(0)
		time.Sleep(100 * time.Second)
		if rate := float64(cat.commits.Load()) / 100; rate > 110 || rate < 80 {
			t.Errorf("%.0f writes a second", rate)
		}
		leave()
		time.Sleep(5 * time.Minute)
		for i, c := range all[:n/2] {
			if got := c.Count(); got != n/2 {
				t.Fatalf("process %d counts %d after half have left", i, got)
			}
		}
		stop()
		synctest.Wait()
	})
}
