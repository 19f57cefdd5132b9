package governor

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Status is the state of a governor.
type Status struct {
	// Budgets are those that are configured, first the account's, then by table and index, and those of tables that
	// were throttled.
	Budgets []BudgetStatus
	// Fleet is the state of the governor in its fleet; the zero value if it has none.
	Fleet FleetStatus
}

// BudgetStatus is the state of one budget. Units are capacity units, counted when the calls that consume them end.
type BudgetStatus struct {
	Table, Index string // "" for the account, or for the table
	Direction    Direction

	Limit     float64 // units per second, as configured
	Rate      float64 // units per second now: the share of the fleet's limit, less the effect of throttling
	Available float64 // units that can be used at once; negative in debt

	Consumed  float64 // units since the governor was created
	Estimated float64 // the part of Consumed that DynamoDB did not report
	Second    float64 // units in the last second
	Average   float64 // units per second since the first call

	Waiting   int           // calls waiting now
	Waited    time.Duration // total time that calls have waited
	Refused   int64         // calls that did not begin: see WaitError
	Throttles int64         // throttled attempts, and batches that were not processed in full
	HotKeys   int64         // attempts throttled because of a hot key range: more throughput will not help
}

// Status returns the state of the governor.
func (g *Governor) Status() Status {
	now := g.now()
	g.mu.RLock()
	budgets := slices.Clone(g.budgets)
	g.mu.RUnlock()
	var s Status
	for _, b := range budgets {
		one := b.status(now)
		if !b.implied || one.Throttles > 0 || one.HotKeys > 0 {
			s.Budgets = append(s.Budgets, one)
		}
	}
	slices.SortFunc(s.Budgets, func(a, b BudgetStatus) int {
		return cmp.Or(
			cmp.Compare(a.Table, b.Table), cmp.Compare(a.Index, b.Index), cmp.Compare(a.Direction, b.Direction),
		)
	})
	if g.member != nil {
		s.Fleet = g.member.Status()
	}
	return s
}

func (b *budget) status(now int64) BudgetStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.raise(now)
	m := &b.meter
	return BudgetStatus{
		Table: b.table, Index: b.index, Direction: b.dir,
		Limit: whole(b.limit), Rate: whole(b.rate()), Available: whole(b.available(now)),
		Consumed: whole(m.consumed), Estimated: whole(m.estimated), Second: whole(m.lastSecond(now)),
		Average: m.average(now) / milli,
		Waiting: int(m.waiting), Waited: m.waited, Refused: m.refused, Throttles: m.throttles, HotKeys: m.hotKeys,
	}
}

func whole(thousandths int64) float64 { return float64(thousandths) / milli }

// String returns one line about the budgets that were used.
func (s Status) String() string {
	var parts []string
	for _, b := range s.Budgets {
		if b.Consumed > 0 || b.Waiting > 0 || b.Throttles > 0 {
			parts = append(parts, b.String())
		}
	}
	if len(parts) == 0 {
		parts = []string{"nothing consumed yet"}
	}
	if f := s.Fleet; f.Worker != "" {
		state := "no share yet"
		switch {
		case f.Granted:
			state = fmt.Sprintf("of %d workers", f.Workers)
		case f.Workers > 0:
			state = "safe share, no contact"
		}
		parts = append(parts, state)
	}
	return strings.Join(parts, " | ")
}

// String returns one line: consumption in the last second and on average, the budget, and waiting calls.
func (b BudgetStatus) String() string {
	var s strings.Builder
	if b.Table != "" {
		s.WriteString(b.Table + " ")
	}
	if b.Index != "" {
		s.WriteString(b.Index + " ")
	}
	fmt.Fprintf(&s, "%s %.1f/s (average %.1f, budget %.4g", b.Direction, b.Second, b.Average, b.Rate)
	if b.Rate < b.Limit {
		fmt.Fprintf(&s, " of %.4g", b.Limit)
	}
	fmt.Fprintf(&s, "), %d waiting, %d throttled", b.Waiting, b.Throttles)
	if b.HotKeys > 0 {
		fmt.Fprintf(&s, ", %d on hot keys", b.HotKeys)
	}
	return s.String()
}

// Report writes a line about the governor's state to w at the given interval, until the context ends.
func (g *Governor) Report(ctx context.Context, w io.Writer, every time.Duration) {
	t := time.NewTicker(max(every, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			fmt.Fprintln(w, g.Status())
		}
	}
}
