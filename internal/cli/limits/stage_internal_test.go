package limits

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

type counts interface{ store.Usage }

// noRequests is a store that keeps usage, but not the number of admitted requests, like a table booked by an older weir.
type noRequests struct {
	store.Store
	counts
}

func (s noRequests) Usage(ctx context.Context, q store.UsageQuery) (store.UsagePage, error) {
	page, err := s.counts.Usage(ctx, q)
	for i := range page.Records {
		for j := range page.Records[i].Counts {
			page.Records[i].Counts[j].Requests = 0
		}
	}
	return page, err
}

// If the store counts only refusals, a gate does not take them for all requests: it reports that it cannot tell.
func TestGateNeedsRequests(t *testing.T) {
	t.Parallel()
	for name, counted := range map[string]bool{"counted": true, "not counted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := memory.New(nil)
			var st store.Store = m
			if !counted {
				st = noRequests{m, m}
			}
			lim, err := weir.New(weir.Config{Store: st})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = lim.Close() })
			if err := admin.New(lim).Limits.Set(t.Context(), admin.Scope{Resource: "api"}, weir.PerHour("rph", 9)); err != nil {
				t.Fatal(err)
			}
			g := &refusals{threshold: 0.5, read: usageOf(lim, time.Now())}
			if err := g.Begin(t.Context(), 5); err != nil {
				t.Fatal(err)
			}
			for range 10 { // one is refused
				if _, err := lim.Allow(t.Context(), "alice", "api"); err != nil {
					t.Fatal(err)
				}
			}
			if err := g.Check(t.Context(), true); counted != (err == nil) || !counted && !errors.Is(err, errNotCounted) {
				t.Errorf("the gate says %v", err)
			}
		})
	}
}
