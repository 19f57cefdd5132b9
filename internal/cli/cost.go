package cli

import (
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cost"
	"github.com/weirlimits/weir/internal/term"
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

func (a *app) costCmd() *cobra.Command {
	flags := &costFlags{traffic: cost.Default(), shares: make(map[string]*string)}
	cmd := &cobra.Command{
		Use:   "cost",
		Short: "What decisions over a DynamoDB table come to, in units and money",
		Long: `Estimates calls, read and write units and the bill of a DynamoDB table from a description
of the traffic, or from a run that was recorded. Shares are as 0.05 or 5%. What each
operation costs is what the driver's tests prove; --explain shows every formula. Nothing
is called.`,
		Example: `  weir cost --requests 1M/d --entities 1000 --processes 4
  weir cost --requests 500/s --cascade 50% --refused 10% --adjusts 1 --usage function --explain
  weir simulate steady -o json > run.json && weir cost --run run.json --prices prices.json`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.cost(cmd, flags) },
	}
	flags.bind(cmd)
	cmd.AddCommand(a.costPricesCmd())
	return cmd
}

func (f *costFlags) bind(cmd *cobra.Command) {
	set, t := cmd.Flags(), &f.traffic
	set.SortFlags = false
	share := func(name, usage string) { f.shares[name] = set.String(name, "0", usage) }
	set.StringVar(&f.requests, "requests", "1/s", "`AMOUNT/PERIOD` that are asked for, as 100/s, 10K/h or 1M/d")
	share("refused", "`SHARE` of the requests that is refused")
	share("refused-by-parent", "`SHARE` of the refusals that a parent makes")
	share("refused-again", "`SHARE` of the refusals that is repeated from memory, without a call")
	share("cascade", "`SHARE` of the requests that are charged to parents, too")
	set.IntVar(&t.Depth, "depth", t.Depth, "`NUMBER` of entities in the chain of these")
	set.Float64Var(&t.Adjusts, "adjusts", 0, "adjustments and rollbacks, a `NUMBER` per admitted request")
	set.Float64Var(&t.PerWrite, "callers-per-write", 1, "`NUMBER` of requests that share a write, on average")
	share("wrong-guesses", "`SHARE` of the writes that have to be made again")
	share("new-buckets", "`SHARE` of the writes that make a bucket")
	share("prefetched", "`SHARE` of the debits that prefetch has made ahead")
	set.Float64Var(&t.Entities, "entities", 1, "`NUMBER` of entities that ask")
	set.Float64Var(&t.Buckets, "buckets", 0, "`NUMBER` of buckets that are written, parents' included; 0: as entities")
	set.Float64Var(&t.Processes, "processes", 1, "`NUMBER` of processes that decide")
	set.Float64Var(&t.TTL, "cache-ttl", t.TTL, "`SECONDS` for which a process remembers limits")
	f.shares["hit-ratio"] = set.String("hit-ratio", "", "`SHARE` of look-ups that memory answers; not set: estimated")
	set.BoolVar(&t.Heartbeat, "heartbeats", false, "processes tell of themselves, as weir serve --instances auto does")
	set.StringVar(&f.usage, "usage", string(cost.NoBooking), "`WHO` books usage: off, function or process")
	set.Float64Var(&t.BatchSeconds, "batch-window", t.BatchSeconds, "`SECONDS` for which records of the stream are waited for")
	set.Float64Var(&t.Batch, "batch", t.Batch, "`NUMBER` of records that are booked at once, at most")
	set.Float64Var(&t.Shards, "stream-shards", 1, "`NUMBER` of the stream's shards")
	set.Float64Var(&t.InvokeMillis, "invoke-ms", t.InvokeMillis, "`MILLISECONDS` that the function runs for a batch")
	set.Float64Var(&t.MemoryGB, "memory-gb", t.MemoryGB, "`GB` of memory that it has")
	set.Float64Var(&t.StorageGB, "storage-gb", t.StorageGB, "`GB` that the table holds; negative: estimated")
	set.BoolVar(&t.Backup, "backup", false, "with point-in-time recovery")
	set.Float64Var(&t.Peak, "peak", t.Peak, "the busiest second, a `NUMBER` of times the average")
	f.shares["target"] = set.String("target", "70%", "`SHARE` of provisioned capacity that is to be used")
	set.StringVar(&f.run, "run", "", "`FILE` with what weir simulate -o json printed: what a decision costs, and the rate unless --requests is given")
	set.StringVar(&f.prices, "prices", "", "`FILE` with prices, as weir cost prices prints them")
	set.BoolVar(&f.explain, "explain", false, "show the formulas")
}

// parse fills the traffic in.
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
			return nil, usageError{fmt.Errorf("--requests %q is not AMOUNT/PERIOD, as in 10K/h", f.requests)}
		}
		t.Requests = float64(l.Amount) / l.Period.Seconds()
		t.Hits = -1 // the run's are of its own rate
	}
	t.Booking = cost.Booking(f.usage)
	for name, to := range map[string]*float64{
		"refused": &t.Refused, "refused-by-parent": &t.ByParent, "refused-again": &t.FromMem, "cascade": &t.Cascade, "wrong-guesses": &t.InVain,
		"new-buckets": &t.New, "prefetched": &t.Ahead, "hit-ratio": &t.Hits, "target": &t.Target,
	} {
		text := *f.shares[name]
		if text == "" || run != nil && !cmd.Flags().Changed(name) {
			continue
		}
		if *to, err = parseShare(text); err != nil {
			return nil, usageError{fmt.Errorf("--%s: %w", name, err)}
		}
	}
	if err := t.Check(); err != nil {
		return nil, usageError{err}
	}
	return run, nil
}

// priceList reads the prices of a file, or those that come with the command.
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

func (a *app) cost(cmd *cobra.Command, flags *costFlags) error {
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
	return a.print(e, func() { a.printCost(e, flags.explain) })
}

func (a *app) costPricesCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "prices",
		Short:   "Print the price list, to be edited",
		Example: "  weir cost prices > prices.json",
		Args:    args(),
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.W.Write(cost.DefaultPrices)
			return err
		},
	}
}

func (a *app) printCost(e *cost.Estimate, explain bool) {
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
	row(t, "", "together", figure(e.Total.Count), figure(e.Total.Calls), figure(e.Total.Read), figure(e.Total.Write))
	row(t, "", "for a request", "1", figure(e.PerRequest.Calls), figure(e.PerRequest.Read), figure(e.PerRequest.Write))
	a.out.Table(t)
	a.out.Println()

	m := &e.Money
	t = &term.Table{Header: []string{e.Prices.Currency, "AN HOUR", "A MONTH"}, Right: []int{1, 2}}
	if explain {
		t.Header = append(t.Header, "FORMULA")
	}
	for _, i := range m.Items {
		row(t, i.Formula, i.Name, amount(i.Hour), amount(i.Month))
	}
	row(t, fmt.Sprintf("a month has %g hours", e.Prices.Hours), "together", amount(m.Hour), amount(m.Month))
	a.out.Table(t)
	a.out.Println()
	pairs := []string{
		"a million requests", amount(m.PerMillion),
		"provisioned", fmt.Sprintf("%s a month, with %s WCU and %s RCU for a peak of %g times the average",
			amount(m.Provisioned), figure(m.WriteCapacity), figure(m.ReadCapacity), e.Traffic.Peak),
		"autoscaled", amount(m.Following) + " a month, if capacity follows the load",
		"break-even", fmt.Sprintf("where %.1f %% of provisioned capacity is used; at %g %%, up to a peak of %.1f", 100*m.BreakEven, 100*e.Traffic.Target, m.BreakEvenPeak),
		"prices", fmt.Sprintf("%s, list of %s, without taxes and free amounts", e.Prices.Region, e.Prices.Date),
	}
	a.out.Pairs(pairs...)
}

// figure writes a number to four digits where it is small, to whole ones where it is large.
func figure(v float64) string {
	if math.Abs(v) >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.4g", v), ".0")
}

// amount writes money: to hundredths, and to two digits where it is less.
func amount(v float64) string {
	if v == 0 || math.Abs(v) >= 0.1 {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.2g", v)
}
