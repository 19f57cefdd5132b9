// Package lab has the commands that replay, simulate, load, price and torture.
package lab

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/lab/cost"
)

//go:embed fields.txt
var fields string

var _ = api.Describe("lab", fields)

// costFlags describe the traffic, in place of what a recorded run or the default has. What is nil or empty stays.
type costFlags struct {
	costRequests
	costFleet
	costBooking
	costTable

	Run     string `json:"run"`
	Table   string `json:"from_table"`
	Days    int    `json:"days" default:"7" range:"1..90"`
	Prices  string `json:"prices"`
	Explain bool   `json:"explain"`
}

// costRequests describe what is requested.
type costRequests struct {
	Rate     string   `json:"requests"`
	Refused  *float64 `json:"refused" range:"0..1"`
	ByParent *float64 `json:"refused_by_parent" range:"0..1"`
	FromMem  *float64 `json:"refused_again" range:"0..1"`
	Cascade  *float64 `json:"cascade" range:"0..1"`
	Depth    *int     `json:"depth"`
	Groups   *float64 `json:"groups"`
	Adjusts  *float64 `json:"adjusts"`
	Limit    string   `json:"limit"`
	PerWrite *float64 `json:"callers_per_write"`
	InVain   *float64 `json:"wrong_guesses" range:"0..1"`
	New      *float64 `json:"new_buckets" range:"0..1"`
	Ahead    *float64 `json:"prefetched" range:"0..1"`
}

// costFleet describe who requests and decides.
type costFleet struct {
	Entities  *float64 `json:"entities"`
	Buckets   *float64 `json:"buckets"`
	Processes *float64 `json:"processes"`
	TTL       *float64 `json:"cache_ttl"`
	Hits      *float64 `json:"hit_ratio" range:"0..1"`
	Heartbeat *bool    `json:"heartbeats"`
	Poll      *float64 `json:"poll"`
}

// costBooking describe how usage is booked.
type costBooking struct {
	Booking      *cost.Booking `json:"usage" values:"off,function,process"`
	Windows      *string       `json:"windows"`
	BatchSeconds *float64      `json:"batch_window"`
	Batch        *float64      `json:"batch"`
	Shards       *float64      `json:"stream_shards"`
	InvokeMillis *float64      `json:"invoke_ms"`
	MemoryGB     *float64      `json:"memory_gb"`
}

// costTable describe the table.
type costTable struct {
	StorageGB *float64 `json:"storage_gb"`
	Backup    *bool    `json:"backup"`
	Peak      *float64 `json:"peak"`
	Floor     *float64 `json:"floor"`
	Target    *float64 `json:"target" range:"0..1"`
}

// CostCmd returns the command weir cost.
func CostCmd(a *kit.Run) *cobra.Command {
	var flags *pflag.FlagSet
	var traffic []string
	cmd := kit.Func(a, kit.Spec{
		Use: "cost", Short: "Estimate what decisions on a DynamoDB table cost, in capacity units and money",
		Long: `Estimates the calls, read and write units and bill of a DynamoDB table from a description
of the traffic or from a recorded run. Write a share as 0.05 or 5%. The cost of each
operation is the one that the driver's tests verify; --explain shows every formula. The
command calls no service. How often processes that share a bucket write in vain is simulated,
as by weir simulate.

With --from-table, it prices instead what CloudWatch counted of a table in the last days, and
reads that from AWS: the caller needs cloudwatch:GetMetricData and dynamodb:DescribeTable.`,
		Example: `  weir cost --requests 1M/d --entities 1000 --processes 4
  weir cost --requests 500/s --cascade 50% --refused 10% --adjusts 1 --usage function --explain
  weir simulate steady -o json > run.json && weir cost --run run.json --prices prices.json
  weir cost --from-table 'dynamodb://limits?region=eu-central-1' --days 30`,
	}, func(ctx context.Context, q *costFlags) error {
		i := slices.IndexFunc(traffic, flags.Changed)
		switch {
		case flags.Changed("from-table") && q.Table == "", flags.Changed("run") && q.Run == "":
			return kit.Usagef("--from-table and --run must not be empty: leave out what is not meant")
		case q.Table == "" && flags.Changed("days"):
			return kit.Usagef("--days needs --from-table")
		case q.Table == "":
			return runCost(ctx, a, q)
		case i >= 0:
			return kit.Usagef("--%s cannot be used with --from-table, which measures the traffic", traffic[i])
		}
		return runMeasured(ctx, a, q)
	})
	flags, traffic = cmd.Flags(), ofTraffic(cmd.Flags())
	cmd.AddCommand(costPricesCmd(a))
	return cmd
}

// parse returns the traffic, and the recorded run if one is given.
func (q *costFlags) parse(ctx context.Context) (t cost.Traffic, run *cost.Run, err error) {
	t = cost.Default()
	kit.Override(&t, q)
	if q.Run != "" {
		text, err := os.ReadFile(q.Run)
		if err != nil {
			return t, nil, fmt.Errorf("read the run: %w", err)
		}
		if run, err = cost.ReadRun(text); err != nil {
			return t, nil, err
		}
		t = run.Traffic(t)
	}
	if q.Rate != "" {
		l, err := weir.ParseLimit("requests:" + q.Rate)
		if err != nil || l.Period == 0 {
			return t, nil, kit.Usagef("--requests %q is not AMOUNT/PERIOD, such as 10K/h", q.Rate)
		}
		t.Requests = float64(l.Amount) / l.Period.Seconds()
		t.Hits = -1 // the run's hit ratio holds only for its own rate
	}
	if q.Booking != nil && *q.Booking == cost.Process {
		t.BatchSeconds = 2 // of weir aggregate; the default is that of the function
	}
	kit.Override(&t, q) // flags also override what the run has
	if err := t.Check(); err != nil {
		return t, nil, kit.Usage(err)
	}
	if run == nil && q.InVain == nil && q.PerWrite == nil {
		err = contend(ctx, &t, q.Limit)
	}
	return t, run, err
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

func runCost(ctx context.Context, a *kit.Run, q *costFlags) error {
	traffic, run, err := q.parse(ctx)
	if err != nil {
		return err
	}
	prices, err := priceList(q.Prices)
	if err != nil {
		return err
	}
	e, err := traffic.Of(prices, run)
	if err != nil {
		return err
	}
	return a.Print(e, func() { Show(a, e.Document(q.Explain)) })
}

func costPricesCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{
		Use: "prices", Short: "Print the price list, as a file to edit", Example: "  weir cost prices > prices.json",
	}, func(context.Context, *struct{}) error {
		_, err := a.Out.W.Write(cost.DefaultPrices)
		return err
	})
}
