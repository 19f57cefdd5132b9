package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/lab/cost"
	"github.com/weirlimits/weir/internal/lab/report"
	"github.com/weirlimits/weir/internal/lab/simulate"
)

// SimulateCmd returns the command weir simulate.
func SimulateCmd(a *kit.Run) *cobra.Command {
	var about strings.Builder
	var names []string
	for _, s := range simulate.Scenarios {
		fmt.Fprintf(&about, "  %-9s %s\n", s.Name, s.About)
		names = append(names, s.Name)
	}
	cmd := kit.Func(a, kit.Spec{
		Use: "simulate [SCENARIO]", Short: "Simulate a fleet of processes on a table, in virtual time",
		Long: `Simulates, in virtual time, processes that share limits through a DynamoDB table. Reports
what was admitted compared with what the limits allow, the cost in calls, write units and
money, and how many decisions were made without the table. The simulation calls and writes
nothing. The same seed gives the same result.

Scenarios:
` + about.String() + `
The default scenario is steady. Flags override the scenario's settings.`,
		Example: `  weir simulate outage
  weir simulate hot-key --processes 5000 --max-shards 1
  weir simulate steady --limit rpm:600/min --outage 20s-30s --on-unavailable deny
  weir simulate fleet --limit rpm:40/min --prices prices.json`,
	}, func(ctx context.Context, q *simulateFlags) error { return runSimulate(ctx, a, q) })
	cmd.ValidArgs = names
	return cmd
}

// simulation is a report with its cost.
type simulation struct {
	*simulate.Report
	Cost *cost.Estimate `json:"cost"` // nil if there were no decisions
}

func runSimulate(ctx context.Context, a *kit.Run, q *simulateFlags) error {
	name := cmp.Or(q.Scenario, simulate.Scenarios[0].Name)
	prices, err := priceList(q.Prices)
	if err != nil {
		return err
	}
	cfg, ok := simulate.Named(name)
	if !ok {
		return kit.Usagef("unknown scenario %q: see weir simulate --help", name)
	}
	cfg.Seed = 1
	if err := q.apply(&cfg); err != nil {
		return kit.Usage(err)
	}
	if err := cfg.Check(); err != nil {
		return kit.Usage(err)
	}
	progress := term.NewProgress(a.Err)
	r, err := simulate.Run(ctx, cfg, func(share float64) { progress.Update("simulating", share) })
	progress.Done()
	if err != nil {
		return fmt.Errorf("simulate %s: %w", name, err)
	}
	e, err := costOf(r, prices)
	if err != nil {
		return fmt.Errorf("cost of %s: %w", name, err)
	}
	return a.Print(simulation{r, e}, func() {
		var costs report.Lines
		if e != nil {
			costs = e.Brief()
		}
		Show(a, r.Document(name, costs))
	})
}

// costOf returns the same estimate as weir cost --run with the report.
func costOf(r *simulate.Report, prices cost.Prices) (*cost.Estimate, error) {
	if r.Asked == 0 {
		return nil, nil //nolint:nilnil // without decisions there is no cost
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	run, err := cost.ReadRun(text)
	if err != nil {
		return nil, err
	}
	return run.Traffic(cost.Default()).Of(prices, run)
}

// simulateFlags override settings of a scenario. What is nil or empty stays as it is.
type simulateFlags struct {
	scenarioName
	simulateFleet
	simulateLoad
	simulateTable

	Prices string `json:"prices"`
}

// simulateFleet override the processes.
type simulateFleet struct {
	For       *time.Duration `json:"for" range:"1ns..24h"`
	Seed      *uint64        `json:"seed"`
	Processes *int           `json:"processes" range:"1..1000000"`
	Join      string         `json:"join"`
	ClockSkew *time.Duration `json:"skew"`
}

// simulateLoad override what is requested.
type simulateLoad struct {
	Rate     *float64    `json:"rate" range:"0.000001.."`
	Entities *int        `json:"entities" range:"1..1000000"`
	Sample   *int        `json:"sample" range:"1.."`
	Zipf     *float64    `json:"zipf"`
	Limit    *weir.Limit `json:"limit"`
	Tokens   *int64      `json:"tokens" range:"1.."`
}

// simulateTable override the table and its faults.
type simulateTable struct {
	Latency       string         `json:"latency"`
	Capacity      *float64       `json:"capacity" range:"0.000001.."`
	MaxShards     *int           `json:"max_shards" range:"1..64"`
	Hold          *time.Duration `json:"rejection_ttl" range:"0s..1m"`
	Within        *time.Duration `json:"decide_within" range:"1ns..2s"`
	OnUnavailable *string        `json:"on_unavailable"`
	Errors        *float64       `json:"errors" range:"0..1"`
	Lost          *float64       `json:"lost" range:"0..1"`
	Outage        []string       `json:"outage"`
	Parts         string         `json:"cells"`
}

func (q *simulateFlags) apply(cfg *simulate.Config) error {
	kit.Override(cfg, q)
	if q.Hold != nil {
		cfg.Hold = cmp.Or(*q.Hold, -1) // 0 turns it off
	}
	for _, f := range []struct {
		flag, text string
		parse      func(c *simulate.Config, text string) error
	}{{"join", q.Join, parseJoin}, {"latency", q.Latency, parseLatency}, {"cells", q.Parts, parseCells}} {
		if f.text != "" {
			if err := f.parse(cfg, f.text); err != nil {
				return fmt.Errorf("--%s: %w", f.flag, err)
			}
		}
	}
	if len(q.Outage) > 0 {
		if err := parseOutages(cfg, q.Outage); err != nil {
			return fmt.Errorf("--outage: %w", err)
		}
	}
	return nil
}

func parseSpan(text string) (from, to time.Duration, err error) {
	a, b, ok := strings.Cut(text, "-")
	if !ok {
		return 0, 0, fmt.Errorf("%q is not FROM-TO, such as 20s-50s", text)
	}
	if from, err = parseDuration(a); err == nil {
		to, err = parseDuration(b)
	}
	return from, to, err
}

func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 20s", text)
	}
	return d, nil
}

func parseJoin(c *simulate.Config, text string) error {
	n, span, ok := strings.Cut(text, "@")
	begin, err := strconv.Atoi(n)
	if !ok || err != nil {
		return fmt.Errorf("%q is not N@FROM-TO, such as 10@20s-30s", text)
	}
	c.Begin = begin
	c.JoinFrom, c.JoinTo, err = parseSpan(span)
	return err
}

func parseLatency(c *simulate.Config, text string) (err error) {
	p50, p99, both := strings.Cut(text, ",")
	if !both {
		p99 = p50
	}
	if c.P50, err = parseDuration(p50); err == nil {
		c.P99, err = parseDuration(p99)
	}
	if err == nil && min(c.P50, c.P99) <= 0 {
		return fmt.Errorf("%q must be positive", text)
	}
	return err
}

func parseOutages(c *simulate.Config, texts []string) (err error) {
	c.Outages = nil
	for _, text := range texts {
		if text == "none" {
			continue
		}
		span, cell, ok := strings.Cut(text, "@")
		var o simulate.Outage
		if ok {
			if o.Cell, err = strconv.Atoi(cell); err != nil || o.Cell < 1 {
				return fmt.Errorf("%q: the cell must be a number from 1", text)
			}
		}
		if o.From, o.To, err = parseSpan(span); err != nil {
			return err
		}
		c.Outages = append(c.Outages, o)
	}
	return nil
}

func parseCells(c *simulate.Config, text string) error {
	c.Cells = nil
	for part := range strings.SplitSeq(text, ",") {
		share, demand, ok := strings.Cut(part, "/")
		s, err := strconv.ParseFloat(share, 64)
		d, err2 := strconv.ParseFloat(demand, 64)
		if !ok || err != nil || err2 != nil {
			return fmt.Errorf("%q is not SHARE/DEMAND, such as 50/90", part)
		}
		c.Cells = append(c.Cells, simulate.Cell{Share: s / 100, Demand: d / 100})
	}
	return nil
}
