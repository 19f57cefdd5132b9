package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/store"
)

type aggregateFlags struct {
	enable, noSplit        bool
	hourly, daily, monthly string
	every                  time.Duration
	once                   bool
}

func (a *app) aggregateCmd() *cobra.Command {
	var flags aggregateFlags
	cmd := &cobra.Command{
		Use:   "aggregate",
		Short: "Book usage of a DynamoDB table or a Redis store until interrupted",
		Long: `Books usage by hour, day and month. Any number of processes can run at the same time: if one
dies, the others count what it has not, and nothing is counted twice.

For a DynamoDB table it reads the stream, and splits buckets that are written more often than one
item allows. If the table was deployed with an aggregator function, you do not need to run it.

For a Redis store it scans all buckets about every ten seconds.`,
		Example: `  weir aggregate --store 'dynamodb://weir?region=eu-central-1' --enable-stream
  weir aggregate --store 'dynamodb://weir?region=eu-central-1' --keep-hours 720h --keep-days forever
  weir aggregate --store redis://redis.internal:6379/0 --keep-hours 48h`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if namesRedis(a.store) {
				for _, name := range []string{"enable-stream", "no-split"} {
					if cmd.Flags().Changed(name) {
						return usageError{fmt.Errorf("--%s is only for a DynamoDB table, not for Redis", name)}
					}
				}
				return a.aggregateRedis(cmd.Context(), &flags)
			}
			if cmd.Flags().Changed("every") || flags.once {
				return usageError{errors.New("--every and --once are only for a Redis store")}
			}
			return a.aggregate(cmd.Context(), &flags)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&flags.enable, "enable-stream", false, "turn on the table's stream if it is off")
	f.BoolVar(&flags.noSplit, "no-split", false, "warn about hot buckets, but do not split them")
	f.StringVar(&flags.hourly, "keep-hours", "", "how long to keep hours of usage: a `DURATION` or forever (default 2160h; in Redis 168h)")
	f.StringVar(&flags.daily, "keep-days", "", "how long to keep days of usage: a `DURATION` or forever (default 17520h; in Redis 2160h)")
	f.StringVar(&flags.monthly, "keep-months", "", "how long to keep months of usage: a `DURATION` or forever (default forever)")
	f.DurationVar(&flags.every, "every", 10*time.Second, "minimum `DURATION` between two scans of the buckets in Redis")
	f.BoolVar(&flags.once, "once", false, "scan the buckets in Redis once and exit, for jobs that run at least every half hour")
	return cmd
}

func (f *aggregateFlags) retention() (r store.Retention, err error) {
	for _, p := range []struct {
		flag, value string
		to          *time.Duration
	}{{"keep-hours", f.hourly, &r.Hourly}, {"keep-days", f.daily, &r.Daily}, {"keep-months", f.monthly, &r.Monthly}} {
		switch p.value {
		case "": // the store's default
		case "forever":
			*p.to = -1
		default:
			if *p.to, err = time.ParseDuration(p.value); err != nil || *p.to < time.Hour {
				return r, usageError{fmt.Errorf("--%s %q must be a duration of at least an hour, such as 2160h, or forever", p.flag, p.value)}
			}
		}
	}
	return r, nil
}
