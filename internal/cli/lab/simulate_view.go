package lab

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/lab/cost"
	"github.com/weirlimits/weir/internal/lab/simulate"
)

func printSimulation(a *kit.Run, name string, cfg *simulate.Config, r *simulate.Report, e *cost.Estimate) {
	count := func(n int) string { return a.Out.Count(int64(n)) }
	of := func(n, all int) string {
		return fmt.Sprintf("%s (%.2f %%)", count(n), 100*float64(n)/float64(max(all, 1)))
	}
	pairs := []string{
		"scenario", fmt.Sprintf("%s, seed %d", name, r.Seed),
		"fleet", fmt.Sprintf("%s processes, %s in virtual time", count(r.Processes), cfg.For),
		"limit", fmt.Sprintf("%s for each of %s entities, which allows %s tokens", r.Limit, count(r.Entities),
			a.Out.Count(int64(r.Allowed))),
		"decisions", count(r.Asked),
		"admitted", of(r.Admitted, r.Asked) + ", compared with " + count(r.Ideal) + " without any delay",
		"refused", of(r.Refused, r.Asked),
	}
	if r.Sample > 1 {
		pairs = slices.Insert(pairs, 4, "sample", fmt.Sprintf("%s entities, each counted %s times",
			count(r.Entities/r.Sample), count(r.Sample)))
	}
	if r.Failed > 0 {
		pairs = append(pairs, "failed", of(r.Failed, r.Asked))
	}
	over := "nothing, in any interval"
	if r.Over > 0 {
		over = fmt.Sprintf("%s tokens at most (%.1f %% of the burst)", a.Out.Count(int64(r.Over+0.999)), 100*r.OverPart)
	}
	pairs = append(pairs, "beyond the limit", over)
	if r.Degraded > 0 {
		pairs = append(pairs, "without the table", of(r.Degraded,
			r.Asked)+", "+count(r.DegradedAdmitted)+" of them admitted")
	}
	if r.Recovered >= 0 {
		pairs = append(pairs, "recovered", fmt.Sprintf("%.2f s after the outage", r.Recovered))
	}
	pairs = append(pairs,
		"calls", fmt.Sprintf("%s: %.3f per decision, %.3f per admission", count(r.Calls), r.PerAsked, r.PerAdmit),
		"  wasted", count(r.InVain)+" whose condition failed")
	if r.Throttled > 0 {
		pairs = append(pairs, "  throttled", count(r.Throttled))
	}
	if r.Splits > 0 {
		pairs = append(pairs, "splits", count(r.Splits))
	}
	pairs = append(pairs, "write units", fmt.Sprintf("%s: %.3f per decision", count(r.Units), r.UnitsAsked))
	pairs = append(pairs, simulationCost(r, e)...)
	pairs = append(pairs,
		"latency", fmt.Sprintf("%.1f ms median, %.1f ms p99, %.1f ms max", r.P50, r.P99, r.Max))
	a.Out.Pairs(pairs...)
	printCells(a, r)
	printTimeline(a, cfg, r)
}

// simulationCost returns the lines on what the simulated calls cost, or none if there is no estimate.
func simulationCost(r *simulate.Report, e *cost.Estimate) []string {
	if e == nil {
		return nil
	}
	m := &e.Money
	return []string{
		"costs", fmt.Sprintf("%s %s per hour, %s per month, %s per million decisions at this load", amount(m.Hour),
			e.Prices.Currency, amount(m.Month), amount(m.PerMillion)),
		"  of which",
		fmt.Sprintf("%s for writes, %s for reads of limits; %.1f %% of the decisions find them cached",
			amount(m.Items[0].Hour), amount(m.Items[1].Hour), 100*r.HitRatio),
		"  prices", fmt.Sprintf("%s, list of %s, on demand", e.Prices.Region, e.Prices.Date),
	}
}

// printCells prints what each cell decided, if there are several.
func printCells(a *kit.Run, r *simulate.Report) {
	if len(r.Cells) < 2 {
		return
	}
	t := &term.Table{
		Header: []string{"CELL", "SHARE", "DECISIONS", "ADMITTED", "REFUSED", "WITHOUT THE TABLE"},
		Right:  []int{0, 1, 2, 3, 4, 5},
	}
	for _, c := range r.Cells {
		n := func(n int) string { return a.Out.Count(int64(n)) }
		t.Row(strconv.Itoa(c.Cell), fmt.Sprintf("%.1f %%", 100*c.Share), n(c.Asked), n(c.Admitted), n(c.Refused),
			n(c.Degraded))
	}
	a.Out.Println()
	a.Out.Table(t)
}

func printTimeline(a *kit.Run, cfg *simulate.Config, r *simulate.Report) {
	a.Out.Println()
	width := time.Duration(r.Width * float64(time.Second))
	if a.Out.Terminal {
		values := make([]float64, len(r.Intervals))
		for i, in := range r.Intervals {
			values[i] = float64(in.Admitted)
		}
		a.Out.Println(a.Out.Bold("ADMITTED IN EACH " + strings.ToUpper(width.String())))
		a.Out.Chart(values, "0s", cfg.For.String())
		return
	}
	t := &term.Table{Header: []string{
		"FROM, FOR " + width.String(), "DECISIONS", "ADMITTED", "REFUSED",
		"WITHOUT THE TABLE", "CALLS",
	}, Right: []int{1, 2, 3, 4, 5}}
	for i, in := range r.Intervals {
		n := func(n int) string { return a.Out.Count(int64(n)) }
		t.Row((time.Duration(i) * width).String(), n(in.Asked), n(in.Admitted), n(in.Refused), n(in.Degraded),
			n(in.Calls))
	}
	a.Out.Table(t)
}
