package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/lab/cost"
	"github.com/weirlimits/weir/internal/lab/simulate"
)

// SimulateCmd returns the command weir simulate.
func SimulateCmd(a *kit.Run) *cobra.Command {
	var about strings.Builder
	var names []string
	var prices string
	for _, s := range simulate.Scenarios {
		fmt.Fprintf(&about, "  %-9s %s\n", s.Name, s.About)
		names = append(names, s.Name)
	}
	var flags *simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate [SCENARIO]",
		Short: "Simulate a fleet of processes on a table, in virtual time",
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
		ValidArgs: names,
		Args:      cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runSimulate(cmd.Context(), a, append(args, names[0])[0], flags, prices)
		},
	}
	flags = newSimulateFlags(cmd.Flags())
	cmd.Flags().StringVar(&prices, "prices", "", "`FILE` with prices, in the format of weir cost prices")
	return cmd
}

// simulation is a report with its cost.
type simulation struct {
	*simulate.Report
	Cost *cost.Estimate `json:"cost"` // nil if there were no decisions
}

func runSimulate(ctx context.Context, a *kit.Run, name string, flags *simulateFlags, priceFile string) error {
	prices, err := priceList(priceFile)
	if err != nil {
		return err
	}
	cfg, ok := simulate.Named(name)
	if !ok {
		return kit.Usagef("unknown scenario %q: see weir simulate --help", name)
	}
	cfg.Seed = 1
	if err := flags.apply(&cfg); err != nil {
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
	return a.Print(simulation{r, e}, func() { printSimulation(a, name, &cfg, r, e) })
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

// simulateFlags override settings of a scenario.
type simulateFlags struct {
	set    *pflag.FlagSet
	change []func(*simulate.Config) error // in the same order as names
	names  []string
}

func (f *simulateFlags) when(name string, change func(*simulate.Config) error) {
	f.names, f.change = append(f.names, name), append(f.change, change)
}

func (f *simulateFlags) apply(cfg *simulate.Config) error {
	for i, name := range f.names {
		if !f.set.Changed(name) {
			continue
		}
		if err := f.change[i](cfg); err != nil {
			return fmt.Errorf("--%s: %w", name, err)
		}
	}
	return nil
}

// flagOf defines a flag that sets a field.
func flagOf[T any](
	f *simulateFlags, define func(p *T, name string, value T, usage string), name, usage string,
	field func(*simulate.Config) *T,
) {
	var value, none T
	v := &value
	define(v, name, none, usage) // a zero default is not shown: the scenario sets it
	f.when(name, func(c *simulate.Config) error { *field(c) = *v; return nil })
}

// textOf defines a flag whose text is parsed.
func textOf(f *simulateFlags, name, usage string, parse func(c *simulate.Config, text string) error) {
	text := f.set.String(name, "", usage)
	f.when(name, func(c *simulate.Config) error { return parse(c, *text) })
}

func newSimulateFlags(set *pflag.FlagSet) *simulateFlags {
	f := &simulateFlags{set: set}
	set.SortFlags = false
	flagOf(f, set.DurationVar, "for", "`DURATION` to simulate (default 1m)",
		func(c *simulate.Config) *time.Duration { return &c.For })
	flagOf(f, set.Uint64Var, "seed", "`NUMBER` that seeds all random choices (default 1)",
		func(c *simulate.Config) *uint64 { return &c.Seed })
	flagOf(f, set.IntVar, "processes", "`NUMBER` of processes that decide",
		func(c *simulate.Config) *int { return &c.Processes })
	textOf(f, "join", "start with N processes, and let the others join between two times: `N@FROM-TO`", parseJoin)
	flagOf(f, set.DurationVar, "skew", "maximum error of each process's clock, a `DURATION` of at most 1s",
		func(c *simulate.Config) *time.Duration { return &c.ClockSkew })
	flagOf(f, set.Float64Var, "rate", "`NUMBER` of decisions per second, of all processes together",
		func(c *simulate.Config) *float64 { return &c.Rate })
	flagOf(f, set.IntVar, "entities", "`NUMBER` of entities that send requests, each with a bucket",
		func(c *simulate.Config) *int { return &c.Entities })
	flagOf(f, set.IntVar, "sample", "simulate one in `NUMBER` entities, and count it that many times (default 1)",
		func(c *simulate.Config) *int { return &c.Sample })
	flagOf(f, set.Float64Var, "zipf", "Zipf `EXPONENT` above 1 for how unevenly entities send requests; 0 means evenly",
		func(c *simulate.Config) *float64 { return &c.Zipf })
	textOf(f, "limit", "`LIMIT` of each entity, such as rpm:600/min:100",
		func(c *simulate.Config, text string) (err error) {
			c.Limit, err = weir.ParseLimit(text)
			return err
		})
	flagOf(f, set.Int64Var, "tokens", "`NUMBER` of tokens per decision (default 1)",
		func(c *simulate.Config) *int64 { return &c.Tokens })
	textOf(f, "latency", "round-trip time of a call, as `P50[,P99]`; a single value is constant (default 5ms,15ms)",
		parseLatency)
	flagOf(f, set.Float64Var, "capacity", "`NUMBER` of writes per second that one item accepts before it is "+
		"throttled (default 1000)", func(c *simulate.Config) *float64 { return &c.Capacity })
	flagOf(f, set.IntVar, "max-shards", "maximum `NUMBER` of items that a bucket is split into (default 64)",
		func(c *simulate.Config) *int { return &c.MaxShards })
	flagOf(f, set.DurationVar, "rejection-ttl", "`DURATION` for which a refusal is repeated from memory; negative "+
		"means never (default 250ms)", func(c *simulate.Config) *time.Duration { return &c.Hold })
	flagOf(f, set.DurationVar, "decide-within", "`DURATION` after which --on-unavailable answers instead of the "+
		"table (default 1s)", func(c *simulate.Config) *time.Duration { return &c.Within })
	textOf(f, "on-unavailable", "`ANSWER` when the table gives none: local, deny or allow (default local)",
		func(c *simulate.Config, text string) error {
			c.OnUnavailable = simulate.Policy(text)
			return nil
		})
	textOf(f, "errors", "`SHARE` of calls that fail, such as 2%",
		func(c *simulate.Config, text string) (err error) { c.Errors, err = parseShare(text); return err })
	textOf(f, "lost", "`SHARE` of calls whose answer is lost, such as 1%",
		func(c *simulate.Config, text string) (err error) { c.Lost, err = parseShare(text); return err })
	outages := set.StringArray("outage", nil,
		"time in which the table does not answer, as `FROM-TO[@CELL]`, such as 20s-50s; none for no outage; repeatable")
	f.when("outage", func(c *simulate.Config) error { return parseOutages(c, *outages) })
	textOf(f, "cells", "`SHARE/DEMAND,…` of each cell in percent, such as 50/90,50/10; each cell has a table of its "+
		"own and its share of each limit", parseCells)
	return f
}

func parseSpan(text string) (from, to time.Duration, err error) {
	a, b, ok := strings.Cut(text, "-")
	if !ok {
		return 0, 0, fmt.Errorf("%q is not FROM-TO, such as 20s-50s", text)
	}
	if from, err = time.ParseDuration(a); err == nil {
		to, err = time.ParseDuration(b)
	}
	return from, to, err
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
	if c.P50, err = time.ParseDuration(p50); err == nil {
		c.P99, err = time.ParseDuration(p99)
	}
	return err
}

func parseShare(text string) (float64, error) {
	n, percent := strings.CutSuffix(text, "%")
	x, err := strconv.ParseFloat(n, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a share such as 2%%", text)
	}
	if percent {
		x /= 100
	}
	return x, nil
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
