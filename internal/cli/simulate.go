package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/simulate"
	"github.com/weirlimits/weir/internal/term"
)

func (a *app) simulateCmd() *cobra.Command {
	var about strings.Builder
	var names []string
	for _, s := range simulate.Scenarios {
		fmt.Fprintf(&about, "  %-9s %s\n", s.Name, s.About)
		names = append(names, s.Name)
	}
	var flags *simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate [SCENARIO]",
		Short: "Try a fleet of processes on a table, in virtual time",
		Long: `Simulates processes that share limits over a table in DynamoDB, in virtual time, and
reports what was admitted against what the limits allow, what it cost in calls and
write units, and what was answered without the table. Nothing is called or written.
The same seed has the same outcome.

Scenarios:
` + about.String() + `
Without one it is steady. Flags change what the scenario says.`,
		Example: `  weir simulate outage
  weir simulate hot-key --processes 5000 --max-shards 1
  weir simulate steady --limit rpm:600/min --outage 20s-30s --on-unavailable deny`,
		ValidArgs: names,
		Args:      cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.simulate(cmd.Context(), append(args, names[0])[0], flags)
		},
	}
	flags = newSimulateFlags(cmd.Flags())
	return cmd
}

func (a *app) simulate(ctx context.Context, name string, flags *simulateFlags) error {
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
	return a.print(r, func() { a.printSimulation(name, &cfg, r) })
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

func (a *app) printSimulation(name string, cfg *simulate.Config, r *simulate.Report) {
	count := func(n int) string { return a.out.Count(int64(n)) }
	of := func(n, all int) string {
		return fmt.Sprintf("%s (%.2f %%)", count(n), 100*float64(n)/float64(max(all, 1)))
	}
	pairs := []string{
		"scenario", fmt.Sprintf("%s, seed %d", name, r.Seed),
		"fleet", fmt.Sprintf("%s processes, %s in virtual time", count(r.Processes), cfg.For),
		"limit", fmt.Sprintf("%s of each of %s entities, which allows %s tokens", r.Limit, count(r.Entities), a.out.Count(int64(r.Allowed))),
		"decisions", count(r.Asked),
		"admitted", of(r.Admitted, r.Asked) + ", of " + count(r.Ideal) + " without any delay",
		"refused", of(r.Refused, r.Asked),
	}
	if r.Failed > 0 {
		pairs = append(pairs, "failed", of(r.Failed, r.Asked))
	}
	over := "nothing, over any stretch of time"
	if r.Over > 0 {
		over = fmt.Sprintf("%s tokens at most (%.1f %% of the burst)", a.out.Count(int64(r.Over+0.999)), 100*r.OverPart)
	}
	pairs = append(pairs, "beyond the limit", over)
	if r.Degraded > 0 {
		pairs = append(pairs, "without the table", of(r.Degraded, r.Asked)+", "+count(r.DegradedAdmitted)+" of them admitted")
	}
	if r.Recovered >= 0 {
		pairs = append(pairs, "recovered", fmt.Sprintf("%.2f s after the outage", r.Recovered))
	}
	pairs = append(pairs,
		"calls", fmt.Sprintf("%s: %.3f per decision, %.3f per admission", count(r.Calls), r.PerAsked, r.PerAdmit),
		"  in vain", count(r.InVain)+", whose condition failed")
	if r.Throttled > 0 {
		pairs = append(pairs, "  throttled", count(r.Throttled))
	}
	if r.Splits > 0 {
		pairs = append(pairs, "splits", count(r.Splits))
	}
	pairs = append(pairs,
		"write units", fmt.Sprintf("%s: %.3f per decision", count(r.Units), r.UnitsAsked),
		"a decision took", fmt.Sprintf("%.1f ms (half of them), %.1f ms (99 %%), %.1f ms at most", r.P50, r.P99, r.Max))
	a.out.Pairs(pairs...)
	if len(r.Cells) > 1 {
		t := &term.Table{Header: []string{"CELL", "SHARE", "DECISIONS", "ADMITTED", "REFUSED", "WITHOUT THE TABLE"}, Right: []int{0, 1, 2, 3, 4, 5}}
		for _, c := range r.Cells {
			t.Row(strconv.Itoa(c.Cell), fmt.Sprintf("%.1f %%", 100*c.Share), count(c.Asked), count(c.Admitted), count(c.Refused), count(c.Degraded))
		}
		a.out.Println()
		a.out.Table(t)
	}
	a.printTimeline(cfg, r)
}

func (a *app) printTimeline(cfg *simulate.Config, r *simulate.Report) {
	a.out.Println()
	width := time.Duration(r.Width * float64(time.Second))
	if a.out.Terminal {
		values := make([]float64, len(r.Intervals))
		for i, in := range r.Intervals {
			values[i] = float64(in.Admitted)
		}
		a.out.Println(a.out.Bold("ADMITTED IN EACH " + strings.ToUpper(width.String())))
		a.out.Chart(values, "0s", cfg.For.String())
		return
	}
	t := &term.Table{Header: []string{"FROM, FOR " + width.String(), "DECISIONS", "ADMITTED", "REFUSED", "WITHOUT THE TABLE", "CALLS"}, Right: []int{1, 2, 3, 4, 5}}
	for i, in := range r.Intervals {
		n := func(n int) string { return a.out.Count(int64(n)) }
		t.Row((time.Duration(i) * width).String(), n(in.Asked), n(in.Admitted), n(in.Refused), n(in.Degraded), n(in.Calls))
	}
	a.out.Table(t)
}
