package cli

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
	"github.com/weirlimits/weir/internal/cost"
	"github.com/weirlimits/weir/internal/simulate"
	"github.com/weirlimits/weir/internal/term"
)

func (a *app) simulateCmd() *cobra.Command {
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
		Short: "Try a fleet of processes on a table, in virtual time",
		Long: `Simulates processes that share limits over a table in DynamoDB, in virtual time, and
reports what was admitted against what the limits allow, what it cost in calls, write
units and money, and what was answered without the table. Nothing is called or written.
The same seed has the same outcome.

Scenarios:
` + about.String() + `
Without one it is steady. Flags change what the scenario says.`,
		Example: `  weir simulate outage
  weir simulate hot-key --processes 5000 --max-shards 1
  weir simulate steady --limit rpm:600/min --outage 20s-30s --on-unavailable deny
  weir simulate fleet --limit rpm:40/min --prices prices.json`,
		ValidArgs: names,
		Args:      cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.simulate(cmd.Context(), append(args, names[0])[0], flags, prices)
		},
	}
	flags = newSimulateFlags(cmd.Flags())
	cmd.Flags().StringVar(&prices, "prices", "", "`FILE` with prices, as weir cost prices prints them")
	return cmd
}

// simulation is a report with what it comes to.
type simulation struct {
	*simulate.Report
	Cost *cost.Estimate `json:"cost"` // nil if nothing was asked
}

func (a *app) simulate(ctx context.Context, name string, flags *simulateFlags, priceFile string) error {
	prices, err := priceList(priceFile)
	if err != nil {
		return err
	}
	cfg, ok := simulate.Named(name)
	if !ok {
		return usageError{fmt.Errorf("scenario %q is not known: see weir simulate --help", name)}
	}
	cfg.Seed = 1
	if err := flags.apply(&cfg); err != nil {
		return usageError{err}
	}
	if err := cfg.Check(); err != nil {
		return usageError{err}
	}
	progress := term.NewProgress(a.err)
	r, err := simulate.Run(ctx, cfg, func(share float64) { progress.Update("simulating", share) })
	progress.Done()
	if err != nil {
		return fmt.Errorf("simulate %s: %w", name, err)
	}
	e, err := costOf(r, prices)
	if err != nil {
		return fmt.Errorf("what %s comes to: %w", name, err)
	}
	return a.print(simulation{r, e}, func() { a.printSimulation(name, &cfg, r, e) })
}

// costOf returns what weir cost --run says of a report.
func costOf(r *simulate.Report, prices cost.Prices) (*cost.Estimate, error) {
	if r.Asked == 0 {
		return nil, nil //nolint:nilnil // nothing costs nothing
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

// simulateFlags change a scenario where they are set.
type simulateFlags struct {
	set    *pflag.FlagSet
	change []func(*simulate.Config) error // in the order of names
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

// flagOf has a flag set a field.
func flagOf[T any](f *simulateFlags, define func(p *T, name string, value T, usage string), name, usage string, field func(*simulate.Config) *T) {
	var value, none T
	v := &value
	define(v, name, none, usage)
	f.set.Lookup(name).DefValue = "" // it is the scenario's
	f.when(name, func(c *simulate.Config) error { *field(c) = *v; return nil })
}

// textOf has a flag set what its text says.
func textOf(f *simulateFlags, name, usage string, parse func(c *simulate.Config, text string) error) {
	text := f.set.String(name, "", usage)
	f.when(name, func(c *simulate.Config) error { return parse(c, *text) })
}

func newSimulateFlags(set *pflag.FlagSet) *simulateFlags {
	f := &simulateFlags{set: set}
	set.SortFlags = false
	flagOf(f, set.DurationVar, "for", "`TIME` that is simulated (1m)", func(c *simulate.Config) *time.Duration { return &c.For })
	flagOf(f, set.Uint64Var, "seed", "`NUMBER` from which all that is random is drawn (1)", func(c *simulate.Config) *uint64 { return &c.Seed })
	flagOf(f, set.IntVar, "processes", "`NUMBER` of processes that decide", func(c *simulate.Config) *int { return &c.Processes })
	textOf(f, "join", "`N@FROM-TO`: begin with N processes, the others join from then to then", parseJoin)
	flagOf(f, set.DurationVar, "skew", "each process's clock is off by up to this `TIME`, at most 1s", func(c *simulate.Config) *time.Duration { return &c.ClockSkew })
	flagOf(f, set.Float64Var, "rate", "decisions a second, `NUMBER` of all processes together", func(c *simulate.Config) *float64 { return &c.Rate })
	flagOf(f, set.IntVar, "entities", "`NUMBER` of entities that ask, each with a bucket", func(c *simulate.Config) *int { return &c.Entities })
	flagOf(f, set.IntVar, "sample", "one of this `NUMBER` of entities is simulated, and counted for so many (1)", func(c *simulate.Config) *int { return &c.Sample })
	flagOf(f, set.Float64Var, "zipf", "`EXPONENT`, above 1, of how unevenly they ask; 0: all alike", func(c *simulate.Config) *float64 { return &c.Zipf })
	textOf(f, "limit", "`LIMIT` of each entity, as rpm:600/min:100", func(c *simulate.Config, text string) (err error) {
		c.Limit, err = weir.ParseLimit(text)
		return err
	})
	flagOf(f, set.Int64Var, "tokens", "`NUMBER` of tokens that a decision asks for (1)", func(c *simulate.Config) *int64 { return &c.Tokens })
	textOf(f, "latency", "`P50[,P99]` of a call there and back (5ms,15ms); one alone: always", parseLatency)
	flagOf(f, set.Float64Var, "capacity", "writes a second, a `NUMBER` that one item takes before it is throttled (1000)", func(c *simulate.Config) *float64 { return &c.Capacity })
	flagOf(f, set.IntVar, "max-shards", "`NUMBER` of items that a bucket may be split into (64)", func(c *simulate.Config) *int { return &c.MaxShards })
	flagOf(f, set.DurationVar, "rejection-ttl", "`TIME` for which a refusal is repeated from memory (250ms); negative: never", func(c *simulate.Config) *time.Duration { return &c.Hold })
	flagOf(f, set.DurationVar, "decide-within", "`TIME` in which a decision is made, or --on-unavailable answers (1s)", func(c *simulate.Config) *time.Duration { return &c.Within })
	textOf(f, "on-unavailable", "`ANSWER` where the table gives none: local, deny or allow (local)", func(c *simulate.Config, text string) error {
		c.OnUnavailable = simulate.Policy(text)
		return nil
	})
	textOf(f, "errors", "`SHARE` of calls that fail, as 2%", func(c *simulate.Config, text string) (err error) { c.Errors, err = parseShare(text); return err })
	textOf(f, "lost", "`SHARE` of calls whose answer is lost, as 1%", func(c *simulate.Config, text string) (err error) { c.Lost, err = parseShare(text); return err })
	outages := set.StringArray("outage", nil, "`FROM-TO[@CELL]`: the table answers nobody, as 20s-50s; can be repeated; none: never")
	f.when("outage", func(c *simulate.Config) error { return parseOutages(c, *outages) })
	textOf(f, "cells", "`SHARE/DEMAND,…` of each cell in percent, as 50/90,50/10: each has a table, and its share of each limit", parseCells)
	return f
}

func parseSpan(text string) (from, to time.Duration, err error) {
	a, b, ok := strings.Cut(text, "-")
	if !ok {
		return 0, 0, fmt.Errorf("%q is not FROM-TO, as in 20s-50s", text)
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
		return fmt.Errorf("%q is not N@FROM-TO, as in 10@20s-30s", text)
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
		return 0, fmt.Errorf("%q is not a share, as in 2%%", text)
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
				return fmt.Errorf("%q: the cell is a number from 1", text)
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
			return fmt.Errorf("%q is not SHARE/DEMAND, as in 50/90", part)
		}
		c.Cells = append(c.Cells, simulate.Cell{Share: s / 100, Demand: d / 100})
	}
	return nil
}
