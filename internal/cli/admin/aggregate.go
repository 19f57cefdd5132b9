package admin

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/store"
)

type aggregateFlags struct {
	enable, noSplit        bool
	hourly, daily, monthly string
	every                  time.Duration
	once                   bool
}

func AggregateCmd(a *kit.Run) *cobra.Command {
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
		Args: kit.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if stores.IsRedis(a.Store) {
				for _, name := range []string{"enable-stream", "no-split"} {
					if cmd.Flags().Changed(name) {
						return kit.Usagef("--%s is only for a DynamoDB table, not for Redis", name)
					}
				}
			} else if cmd.Flags().Changed("every") || flags.once {
				return kit.Usage(errors.New("--every and --once are only for a Redis store"))
			}
			return aggregate(cmd.Context(), a, &flags)
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
				return r, kit.Usagef("--%s %q must be a duration of at least an hour, such as 2160h, or forever", p.flag, p.value)
			}
		}
	}
	return r, nil
}

func aggregate(ctx context.Context, a *kit.Run, flags *aggregateFlags) error {
	retention, err := flags.retention()
	if err != nil {
		return err
	}
	if flags.every <= 0 {
		return kit.Usagef("--every %s is not positive", flags.every)
	}
	return stores.Book(ctx, a.Store, stores.Booking{
		Retention: retention, Log: slog.New(slog.NewTextHandler(a.Err.W, nil)), Started: func(what string) { a.Err.Println(what) },
		EnableStream: flags.enable, NoSplit: flags.noSplit, Every: flags.every, Once: flags.once,
	})
}
