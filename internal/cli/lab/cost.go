// Package lab has the commands that replay, simulate, load, price and torture.
package lab

import (
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/lab/cost"
)

// costFlags are the flags of cost.
type costFlags struct {
	traffic     cost.Traffic
	requests    string
	run, prices string
	usage       string
	explain     bool
	shares      map[string]*string
}

// CostCmd returns the command weir cost.
func CostCmd(a *kit.Run) *cobra.Command {
	flags := &costFlags{traffic: cost.Default(), shares: make(map[string]*string)}
	cmd := &cobra.Command{
		Use:   "cost",
		Short: "Estimate what decisions on a DynamoDB table cost, in capacity units and money",
		Long: `Estimates the calls, read and write units and bill of a DynamoDB table from a description
of the traffic or from a recorded run. Write a share as 0.05 or 5%. The cost of each
operation is the one that the driver's tests verify; --explain shows every formula. The
command calls no service.`,
		Example: `  weir cost --requests 1M/d --entities 1000 --processes 4
  weir cost --requests 500/s --cascade 50% --refused 10% --adjusts 1 --usage function --explain
  weir simulate steady -o json > run.json && weir cost --run run.json --prices prices.json`,
		Args: kit.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return runCost(a, cmd, flags) },
	}
	flags.bind(cmd)
	cmd.AddCommand(costPricesCmd(a))
	return cmd
}

func (f *costFlags) bind(cmd *cobra.Command) {
	set, t := cmd.Flags(), &f.traffic
	set.SortFlags = false
	share := func(name, usage string) { f.shares[name] = set.String(name, "0", usage) }
	set.StringVar(&f.requests, "requests", "1/s", "requests as `AMOUNT/PERIOD`, such as 100/s, 10K/h or 1M/d")
	share("refused", "`SHARE` of requests that are refused")
	share("refused-by-parent", "`SHARE` of refusals that are due to a parent")
	share("refused-again", "`SHARE` of refusals that are repeated from memory, without a call")
	share("cascade", "`SHARE` of requests that are also charged to parents")
	set.IntVar(&t.Depth, "depth", t.Depth, "`NUMBER` of entities in the chain of these requests")
	set.Float64Var(&t.Adjusts, "adjusts", 0, "`NUMBER` of adjustments and rollbacks per admitted request")
	set.Float64Var(&t.PerWrite, "callers-per-write", 1, "average `NUMBER` of requests that share a write")
	share("wrong-guesses", "`SHARE` of writes that must be repeated")
	share("new-buckets", "`SHARE` of writes that create a bucket")
	share("prefetched", "`SHARE` of debits that prefetch has already made")
	set.Float64Var(&t.Entities, "entities", 1, "`NUMBER` of entities that send requests")
	set.Float64Var(&t.Buckets, "buckets", 0,
		"`NUMBER` of buckets that are written, including parents'; 0 means as many as entities")
	set.Float64Var(&t.Processes, "processes", 1, "`NUMBER` of processes that decide")
	set.Float64Var(&t.TTL, "cache-ttl", t.TTL, "`SECONDS` for which a process caches limits")
	f.shares["hit-ratio"] = set.String("hit-ratio", "", "`SHARE` of lookups that the cache answers (default estimated)")
	set.BoolVar(&t.Heartbeat, "heartbeats", false, "processes send heartbeats, as weir serve --instances auto does")
	set.StringVar(&f.usage, "usage", string(cost.NoBooking), "`MODE` of booking usage: off, function or process")
	set.Float64Var(&t.BatchSeconds, "batch-window", t.BatchSeconds,
		"`SECONDS` to wait for stream records before booking a batch")
	set.Float64Var(&t.Batch, "batch", t.Batch, "maximum `NUMBER` of stream records in a batch")
	set.Float64Var(&t.Shards, "stream-shards", 1, "`NUMBER` of shards of the stream")
	set.Float64Var(&t.InvokeMillis, "invoke-ms", t.InvokeMillis, "`MILLISECONDS` that the function runs for each batch")
	set.Float64Var(&t.MemoryGB, "memory-gb", t.MemoryGB, "`GB` of memory of the function")
	set.Float64Var(&t.StorageGB, "storage-gb", t.StorageGB,
		"`GB` that the table holds; a negative number means estimated")
	set.BoolVar(&t.Backup, "backup", false, "include point-in-time recovery")
	set.Float64Var(&t.Peak, "peak", t.Peak, "load of the busiest second, as a `NUMBER` of times the average")
	f.shares["target"] = set.String("target", "70%", "target utilization of provisioned capacity, as a `SHARE`")
	set.StringVar(&f.run, "run", "", "`FILE` with the output of weir simulate -o json, to take the cost of a "+
		"decision from, and the rate unless --requests is given")
	set.StringVar(&f.prices, "prices", "", "`FILE` with prices, in the format of weir cost prices")
	set.BoolVar(&f.explain, "explain", false, "show every formula")
}

// parse sets the traffic from the flags and returns the recorded run, if one is given.
func (f *costFlags) parse(cmd *cobra.Command) (run *cost.Run, err error) {
	t := &f.traffic
	if f.run != "" {
		text, err := os.ReadFile(f.run)
		if err != nil {
			return nil, fmt.Errorf("read the run: %w", err)
		}
		if run, err = cost.ReadRun(text); err != nil {
			return nil, err
		}
		*t = run.Traffic(*t)
	}
	if run == nil || cmd.Flags().Changed("requests") {
		l, err := weir.ParseLimit("requests:" + f.requests)
		if err != nil {
			return nil, kit.Usagef("--requests %q is not AMOUNT/PERIOD, such as 10K/h", f.requests)
		}
		t.Requests = float64(l.Amount) / l.Period.Seconds()
		t.Hits = -1 // the run's hit ratio holds only for its own rate
	}
	t.Booking = cost.Booking(f.usage)
	for name, to := range map[string]*float64{
		"refused": &t.Refused, "refused-by-parent": &t.ByParent, "refused-again": &t.FromMem, "cascade": &t.Cascade,
		"wrong-guesses": &t.InVain,
		"new-buckets":   &t.New, "prefetched": &t.Ahead, "hit-ratio": &t.Hits, "target": &t.Target,
	} {
		text := *f.shares[name]
		if text == "" || run != nil && !cmd.Flags().Changed(name) {
			continue
		}
		if *to, err = parseShare(text); err != nil {
			return nil, kit.Usagef("--%s: %w", name, err)
		}
	}
	if err := t.Check(); err != nil {
		return nil, kit.Usage(err)
	}
	return run, nil
}

// priceList returns the prices in a file, or the built-in ones.
func priceList(file string) (cost.Prices, error) {
	text := cost.DefaultPrices
	if file != "" {
		var err error
		if text, err = os.ReadFile(file); err != nil {
			return cost.Prices{}, fmt.Errorf("read prices: %w", err)
		}
	}
	return cost.ReadPrices(text)
}

func runCost(a *kit.Run, cmd *cobra.Command, flags *costFlags) error {
	run, err := flags.parse(cmd)
	if err != nil {
		return err
	}
	prices, err := priceList(flags.prices)
	if err != nil {
		return err
	}
	e, err := flags.traffic.Of(prices, run)
	if err != nil {
		return err
	}
	return a.Print(e, func() { printCost(a, e, flags.explain) })
}

func costPricesCmd(a *kit.Run) *cobra.Command {
	return &cobra.Command{
		Use:     "prices",
		Short:   "Print the price list, as a file to edit",
		Example: "  weir cost prices > prices.json",
		Args:    kit.Args(),
		RunE: func(*cobra.Command, []string) error {
			_, err := a.Out.W.Write(cost.DefaultPrices)
			return err
		},
	}
}

func printCost(a *kit.Run, e *cost.Estimate, explain bool) {
	t := &term.Table{Header: []string{"EACH HOUR", "TIMES", "CALLS", "RCU", "WCU"}, Right: []int{1, 2, 3, 4}}
	row := func(t *term.Table, formula string, cells ...string) {
		if explain {
			cells = append(cells, formula)
		}
		t.Row(cells...)
	}
	if explain {
		t.Header = append(t.Header, "FORMULA")
	}
	for _, p := range e.Parts {
		row(t, p.Formula, p.Name, figure(p.Count), figure(p.Calls), figure(p.Read), figure(p.Write))
	}
	row(t, "", "total", figure(e.Total.Count), figure(e.Total.Calls), figure(e.Total.Read), figure(e.Total.Write))
	row(t, "", "per request", "1", figure(e.PerRequest.Calls), figure(e.PerRequest.Read), figure(e.PerRequest.Write))
	a.Out.Table(t)
	a.Out.Println()

	m := &e.Money
	t = &term.Table{Header: []string{e.Prices.Currency, "AN HOUR", "A MONTH"}, Right: []int{1, 2}}
	if explain {
		t.Header = append(t.Header, "FORMULA")
	}
	for _, i := range m.Items {
		row(t, i.Formula, i.Name, amount(i.Hour), amount(i.Month))
	}
	row(t, fmt.Sprintf("a month has %g hours", e.Prices.Hours), "total", amount(m.Hour), amount(m.Month))
	a.Out.Table(t)
	a.Out.Println()
	pairs := []string{
		"per million requests", amount(m.PerMillion),
		"provisioned", fmt.Sprintf("%s a month, with %s WCU and %s RCU for a peak of %g times the average",
			amount(m.Provisioned), figure(m.WriteCapacity), figure(m.ReadCapacity), e.Traffic.Peak),
		"autoscaled", amount(m.Following) + " a month, if capacity follows the load",
		"break-even", fmt.Sprintf("at %.1f %% use of provisioned capacity; with %g %% use, up to a peak of %.1f",
			100*m.BreakEven, 100*e.Traffic.Target, m.BreakEvenPeak),
		"prices", fmt.Sprintf("%s, list of %s, without taxes and free tiers", e.Prices.Region, e.Prices.Date),
	}
	a.Out.Pairs(pairs...)
}

// figure formats a number to four digits, or as a whole number from 1000 on.
func figure(v float64) string {
	if math.Abs(v) >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.4g", v), ".0")
}

// amount formats money with two decimals, or with two significant digits below 0.1.
func amount(v float64) string {
	if v == 0 || math.Abs(v) >= 0.1 {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.2g", v)
}
