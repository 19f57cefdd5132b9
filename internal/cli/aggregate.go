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
		Short: "Book usage of a DynamoDB table or of a Redis, until it is interrupted",
		Long: `Books hours, days and months of usage. Any number of processes may do so at the same time; what
one that dies has not counted the others count, and nothing is counted twice.

Of a DynamoDB table it reads the stream, and splits buckets that are written to more often than
one item can be. Where the table was deployed with an aggregator function there is nothing to run.

Of a Redis it looks at all buckets, every ten seconds or so.`,
		Example: `  weir aggregate --store 'dynamodb://weir?region=eu-central-1' --enable-stream
  weir aggregate --store 'dynamodb://weir?region=eu-central-1' --keep-hours 720h --keep-days forever
  weir aggregate --store redis://redis.internal:6379/0 --keep-hours 48h`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if namesRedis(a.store) {
				for _, name := range []string{"enable-stream", "no-split"} {
					if cmd.Flags().Changed(name) {
						return usageError{fmt.Errorf("--%s does not go with a Redis: it is about a DynamoDB table", name)}
					}
				}
				return a.aggregateRedis(cmd.Context(), &flags)
			}
			if cmd.Flags().Changed("every") || flags.once {
				return usageError{errors.New("--every and --once go with a Redis alone")}
			}
			return a.aggregate(cmd.Context(), &flags)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&flags.enable, "enable-stream", false, "turn the table's stream on, if it is off")
	f.BoolVar(&flags.noSplit, "no-split", false, "only warn of hot buckets")
	f.StringVar(&flags.hourly, "keep-hours", "", "keep hours for `DURATION`, or forever (default 2160h; in Redis 168h)")
	f.StringVar(&flags.daily, "keep-days", "", "keep days for `DURATION`, or forever (default 17520h; in Redis 2160h)")
	f.StringVar(&flags.monthly, "keep-months", "", "keep months for `DURATION`, or forever (default forever)")
	f.DurationVar(&flags.every, "every", 10*time.Second, "how long to wait between two looks at the buckets in Redis, at least; `DURATION`")
	f.BoolVar(&flags.once, "once", false, "look at the buckets in Redis once, and end: for jobs that are started at least every half hour")
	return cmd
}

func (f *aggregateFlags) retention() (r store.Retention, err error) {
	for _, p := range []struct {
		flag, value string
		to          *time.Duration
	}{{"keep-hours", f.hourly, &r.Hourly}, {"keep-days", f.daily, &r.Daily}, {"keep-months", f.monthly, &r.Monthly}} {
		switch p.value {
		case "": // the store's
		case "forever":
			*p.to = -1
		default:
			if *p.to, err = time.ParseDuration(p.value); err != nil || *p.to < time.Hour {
				return r, usageError{fmt.Errorf("--%s %q is neither a time of an hour or more, such as 2160h, nor forever", p.flag, p.value)}
			}
		}
	}
	return r, nil
}
