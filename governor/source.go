package governor

import (
	"context"
	"slices"
	"time"
)

// Rates are rates to change to. A rate of 0 stays as it is.
type Rates struct {
	// ReadUnits and WriteUnits are those of all calls together.
	ReadUnits, WriteUnits float64
	// Tables are rates of tables and indexes that have limits of their own in the [Config].
	Tables map[string]Limits
}

// Source returns the rates that apply now.
type Source func(context.Context) (Rates, error)

// Discovered is a [Source] of what [Discover] returns now: the rates follow the provisioned throughput, the on-demand
// maximum and the warm throughput of tables.
func Discovered(client TableDescriber, share float64, tables ...string) Source {
	return func(ctx context.Context) (Rates, error) {
		limits, err := Discover(ctx, client, share, tables...)
		return Rates{Tables: limits}, err
	}
}

// Hours are rates that apply from a time of day on.
type Hours struct {
	From  time.Duration // since midnight by the clock on the wall: 22 * time.Hour
	Rates Rates
}

// Daily is a [Source] of rates that change with the time of day in a location. Each hours apply until the next ones
// begin, the last until the first of the next day. It returns a [*ConfigError] if there are none, or if one does not
// begin within a day.
func Daily(in *time.Location, hours ...Hours) (Source, error) {
	hours = slices.SortedFunc(slices.Values(hours), func(a, b Hours) int { return int(a.From - b.From) })
	if len(hours) == 0 || hours[0].From < 0 || hours[len(hours)-1].From >= 24*time.Hour {
		return nil, &ConfigError{Field: "hours", Reason: "must begin from 0h to before 24h, and there must be some"}
	}
	return func(context.Context) (Rates, error) {
		now := time.Now().In(in)
		day := time.Duration(now.Hour())*time.Hour + time.Duration(now.Minute())*time.Minute +
			time.Duration(now.Second())*time.Second
		applies := hours[len(hours)-1]
		for _, h := range hours {
			if h.From <= day {
				applies = h
			}
		}
		return applies.Rates, nil
	}, nil
}
