package serve

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

// aggregateFlags configure how usage is booked.
type aggregateFlags struct {
	EnableStream bool     `json:"enable_stream"`
	NoSplit      bool     `json:"no_split"`
	Windows      string   `json:"windows"`
	Without      []string `json:"without"`
	keepFlags
	Every *time.Duration `json:"every"`
	Once  bool           `json:"once"`
}

// AggregateCmd returns the command that books usage.
func AggregateCmd(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "aggregate", Short: "Book usage of a DynamoDB table or a Redis store until interrupted",
		Long: `Books usage by hour, day and month. Any number of processes can run at the same time: if one
dies, the others count what it has not, and nothing is counted twice.

For a DynamoDB table it reads the stream, and splits buckets that are written more often than one
item allows. If the table was deployed with an aggregator function, you do not need to run it.

For a Redis store it scans all buckets about every ten seconds. weir serve --aggregate does the
same, without a process of its own.`,
		Example: `  weir aggregate --store 'dynamodb://weir?region=eu-central-1' --enable-stream
  weir aggregate --store 'dynamodb://weir?region=eu-central-1' --keep-hours 720h --keep-days forever
  weir aggregate --store 'dynamodb://weir?region=eu-central-1' --windows daily,monthly --without health
  weir aggregate --store redis://redis.internal:6379/0 --keep-hours 48h`,
	}, func(ctx context.Context, q *aggregateFlags) error { return aggregate(ctx, r, q) })
}

// maxPoll is the longest interval at which a table's stream is read. Others take over from a dead reader after three.
const maxPoll = 5 * time.Minute

func aggregate(ctx context.Context, a *kit.Run, q *aggregateFlags) error {
	at, err := a.StoreAlone()
	if err != nil {
		return err
	}
	every := bookEvery
	switch redis := stores.IsRedis(at); {
	case redis && q.EnableStream:
		return kit.Usage(errors.New("--enable-stream is only for a DynamoDB table, not for Redis"))
	case redis && q.NoSplit:
		return kit.Usage(errors.New("--no-split is only for a DynamoDB table, not for Redis"))
	case redis && (q.Windows != "" || len(q.Without) > 0):
		return kit.Usage(errors.New(
			"--windows and --without are only for a DynamoDB table, whose writes are billed; for Redis, --keep-hours",
		))
	case !redis && q.Once:
		return kit.Usage(errors.New("--once is only for a Redis store"))
	case q.Every != nil && *q.Every <= 0:
		return kit.Usagef("--every %s is not positive", *q.Every)
	case !redis && q.Every != nil && *q.Every > maxPoll:
		return kit.Usagef("--every %s is more than %s, the longest for a table", *q.Every, maxPoll)
	case q.Every != nil:
		every = *q.Every
	case !redis:
		every = 0 // the reader's default
	}
	retention, err := q.retention()
	if err != nil {
		return err
	}
	windows, err := store.ParseWindows(q.Windows)
	if err != nil {
		return kit.Usagef("--windows: %w", err)
	}
	return stores.Book(ctx, at, stores.Booking{
		Retention: retention, Windows: windows, Without: q.Without, Log: slog.New(slog.NewTextHandler(a.Err.W, nil)),
		Started:      func(what string) { a.Err.Println(what) },
		EnableStream: q.EnableStream, NoSplit: q.NoSplit, Every: every, Once: q.Once,
	})
}
