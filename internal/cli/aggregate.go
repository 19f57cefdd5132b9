package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/store"
)

type aggregateFlags struct {
	enable, noSplit        bool
	hourly, daily, monthly string
}

func (a *app) aggregateCmd() *cobra.Command {
	var flags aggregateFlags
	cmd := &cobra.Command{
		Use:   "aggregate",
		Short: "Book usage from the stream of a DynamoDB table, until it is interrupted",
		Long: `Reads the stream of a DynamoDB table and books hours, days and months of usage from it; splits
buckets that are written to more often than one item can be. Any number of processes share
the stream; one that dies leaves its part to the others, and nothing is counted twice.

Where the table was deployed with an aggregator function there is nothing to run.`,
		Example: `  weir aggregate --store 'dynamodb://weir?region=eu-central-1' --enable-stream
  weir aggregate --store 'dynamodb://weir?region=eu-central-1' --keep-hours 720h --keep-days forever`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.aggregate(cmd.Context(), &flags)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&flags.enable, "enable-stream", false, "turn the table's stream on, if it is off")
	f.BoolVar(&flags.noSplit, "no-split", false, "only warn of hot buckets")
	f.StringVar(&flags.hourly, "keep-hours", "2160h", "keep hours for `DURATION`, or forever")
	f.StringVar(&flags.daily, "keep-days", "17520h", "keep days for `DURATION`, or forever")
	f.StringVar(&flags.monthly, "keep-months", "forever", "keep months for `DURATION`, or forever")
	return cmd
}

func (f *aggregateFlags) retention() (r store.Retention, err error) {
	for _, p := range []struct {
		flag, value string
		to          *time.Duration
	}{{"keep-hours", f.hourly, &r.Hourly}, {"keep-days", f.daily, &r.Daily}, {"keep-months", f.monthly, &r.Monthly}} {
		if p.value == "forever" {
			*p.to = -1
		} else if *p.to, err = time.ParseDuration(p.value); err != nil || *p.to < time.Hour {
			return r, usageError{fmt.Errorf("--%s %q is neither a time of an hour or more, such as 2160h, nor forever", p.flag, p.value)}
		}
	}
	return r, nil
}
