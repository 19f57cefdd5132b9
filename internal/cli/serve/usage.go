package serve

import (
	"context"
	"log/slog"
	"time"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/store"
)

// bookEvery is the pause between two scans of a Redis store.
const bookEvery = 10 * time.Second

// keepFlags set how long usage is kept.
type keepFlags struct {
	Hours  string `json:"keep_hours"`
	Days   string `json:"keep_days"`
	Months string `json:"keep_months"`
}

func (f *keepFlags) retention() (r store.Retention, err error) {
	for _, p := range []struct {
		flag, value string
		to          *time.Duration
	}{{"keep-hours", f.Hours, &r.Hourly}, {"keep-days", f.Days, &r.Daily}, {"keep-months", f.Months, &r.Monthly}} {
		if p.value == "" { // the store's default
			continue
		}
		if *p.to, err = kit.Kept(p.flag, p.value); err != nil {
			return r, err
		}
	}
	return r, nil
}

// usageFlags configure whether the server books the usage of a Redis store.
type usageFlags struct {
	Aggregate bool `json:"aggregate"`
	keepFlags

	at   secret.Address
	keep store.Retention
}

func (f *usageFlags) check() (err error) {
	if !f.Aggregate && f.keepFlags != (keepFlags{}) {
		return kit.Usagef("--keep-hours, --keep-days and --keep-months need --aggregate")
	}
	f.keep, err = f.retention()
	return err
}

func (f *usageFlags) open(_ context.Context, s *serving) (err error) {
	if !f.Aggregate {
		return nil
	}
	if f.at, err = s.run.StoreAlone(); err != nil {
		return err
	}
	if !stores.IsRedis(f.at) {
		return kit.Usagef("--aggregate is only for a Redis store: store %q does not need it, or weir aggregate", f.at)
	}
	return nil
}

// start books usage beside the decisions, which do not depend on it: an error is logged, and booking starts again.
//
//nolint:unparam // a step of a part may fail
func (f *usageFlags) start(_ context.Context, s *serving) error {
	if !f.Aggregate {
		return nil
	}
	s.tasks = append(s.tasks, func(ctx context.Context) error {
		again := time.NewTicker(bookEvery)
		defer again.Stop()
		for ctx.Err() == nil {
			if err := f.book(ctx, s.log); err != nil && ctx.Err() == nil {
				s.log.Error("usage is not booked: trying again", slog.Any("error", err))
			}
			select {
			case <-ctx.Done():
			case <-again.C:
			}
		}
		return nil
	})
	return nil
}

func (f *usageFlags) book(ctx context.Context, log *slog.Logger) error {
	return stores.Book(ctx, f.at, stores.Booking{
		Retention: f.keep, Log: log, Every: bookEvery,
		Started: func(what string) { log.Debug("usage", slog.String("what", what)) },
	})
}
