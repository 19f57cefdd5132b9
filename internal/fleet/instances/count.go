package instances

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/fleet"
)

// report is what a process writes about itself.
type report struct {
	Seq uint64 `json:"seq"`
}

// count is what the leader writes.
type count struct {
	fleet.Head

	Count int `json:"count"`
}

// counting is a process's part in a fleet that only counts its members. The leader counts those whose reports changed
// recently, and removes the reports of others.
type counting struct {
	registry fleet.Registry
	count    atomic.Int64
	seq      uint64

	// While leading.
	now     time.Time // when the reports were read
	reports map[string]*report
	before  map[string]*report // the reports read before
	ledger  *fleet.Ledger
	dead    []string
}

// Beat implements [fleet.Protocol].
func (c *counting) Beat() (beat time.Duration, hurry bool) {
	return max(Every, time.Duration(c.count.Load())*Each), c.seq <= 10 // a new process may not have been counted yet
}

// Report implements [fleet.Protocol].
func (c *counting) Report(_ context.Context, seq uint64) (any, error) {
	c.seq = seq
	return report{seq}, nil
}

// None implements [fleet.Protocol].
func (c *counting) None() *count { return new(count) }

// Follow implements [fleet.Protocol].
func (c *counting) Follow(_ context.Context, g *count) { c.count.Store(int64(g.Count)) }

// Reports implements [fleet.Protocol].
func (c *counting) Reports(ctx context.Context) (epoch uint64, err error) {
	reports, err := fleet.Reports[report](ctx, c.registry)
	if err != nil {
		return 0, err
	}
	c.now, c.before, c.reports = time.Now(), c.reports, reports
	return 0, nil
}

// TakeOver implements [fleet.Protocol].
func (c *counting) TakeOver(*count) { c.ledger, c.before = fleet.NewLedger(gone, 0, c.now), nil }

// Issue implements [fleet.Protocol].
func (c *counting) Issue(h fleet.Head) *count {
	c.ledger.BeginRound(c.now)
	c.dead = nil
	for name, r := range c.reports {
		var seen time.Time
		if before, known := c.before[name]; !known || before.Seq != r.Seq {
			seen = c.now
		}
		if c.ledger.Observe(name, seen, fleet.Version{}); c.ledger.Missing(name, c.now) {
			c.dead = append(c.dead, name)
		}
	}
	for name := range c.before {
		if _, there := c.reports[name]; !there {
			c.ledger.Remove(name)
		}
	}
	return &count{h, len(c.reports) - len(c.dead)}
}

// Commit implements [fleet.Protocol].
func (c *counting) Commit(ctx context.Context, _ *count) error {
	for _, name := range c.dead {
		if err := c.registry.Delete(ctx, fleet.ReportPrefix+name); err != nil {
			return err
		}
	}
	return nil
}
