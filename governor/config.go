package governor

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirlimits/weir/governor/fleet"
	"github.com/weirlimits/weir/internal/bucket"
)

// Unlimited is the rate of what is not limited.
var Unlimited = math.Inf(1)

// Config says what a governor allows. Rates are in capacity units a second; they need not be whole. A rate is positive or
// [Unlimited]; 0 is an error unless the rate beside it is 0 too: then there is no budget at that level.
type Config struct {
	// ReadUnits and WriteUnits are what all calls together may consume. A table without limits of its own has these.
	ReadUnits, WriteUnits float64
	// Tables are limits of single tables, by name. See [Discover].
	Tables map[string]Limits

	// Burst is how much a budget holds, as the time in which its rate issues that. Defaults to 2 s, with a
	// Coordinator to 50 ms, which is then the most.
	Burst time.Duration
	// Start is what a budget holds at first, likewise. At most Burst; defaults to 1 s or Burst, what is less. With a
	// Coordinator budgets start empty.
	Start time.Duration
	// MaxWait is how long a call waits for its budgets. One that would wait longer fails at once with a [*WaitError].
	// Defaults to as long as its context allows.
	MaxWait time.Duration

	// Coordinator makes the limits those of all processes that name the same one. Defaults to none.
	Coordinator fleet.Coordinator
	// Worker, Refresh and Forget are those of [fleet.Config].
	Worker          string
	Refresh, Forget time.Duration
}

// Limits are those of a table or index.
type Limits struct {
	ReadUnits, WriteUnits float64
	// Indexes are limits of a table's global secondary indexes, by name. What calls consume of these does not count
	// for the table's own limits; that of other indexes does.
	Indexes map[string]Limits
}

// ConfigError says which field of a [Config] or which argument is wrong.
type ConfigError struct {
	Field  string // "ReadUnits", "Tables[orders].WriteUnits", …
	Reason string
	Err    error // the cause, if there is one
}

// Error names the field.
func (e *ConfigError) Error() string { return fmt.Sprintf("governor: %s %s", e.Field, e.Reason) }

// Unwrap returns the cause.
func (e *ConfigError) Unwrap() error { return e.Err }

const (
	defaultBurst = 2 * time.Second
	defaultStart = time.Second
	fleetBurst   = 50 * time.Millisecond
	milli        = 1000
)

// check fills in the defaults and returns everything that is wrong.
func (c *Config) check() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, &ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	if c.ReadUnits != 0 || c.WriteUnits != 0 || len(c.Tables) == 0 {
		checkRate(wrong, "ReadUnits", c.ReadUnits)
		checkRate(wrong, "WriteUnits", c.WriteUnits)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tables)) {
		t, field := c.Tables[name], "Tables["+name+"]"
		if name == "" || strings.ContainsRune(name, '/') {
			wrong(field, "is not the name of a table")
		}
		checkRate(wrong, field+".ReadUnits", t.ReadUnits)
		checkRate(wrong, field+".WriteUnits", t.WriteUnits)
		for _, x := range slices.Sorted(maps.Keys(t.Indexes)) {
			checkRate(wrong, field+".Indexes["+x+"].ReadUnits", t.Indexes[x].ReadUnits)
			checkRate(wrong, field+".Indexes["+x+"].WriteUnits", t.Indexes[x].WriteUnits)
			if t.Indexes[x].Indexes != nil {
				wrong(field+".Indexes["+x+"].Indexes", "must be empty: an index has none")
			}
		}
	}
	most := time.Minute
	if c.Coordinator != nil {
		most = fleetBurst
		if c.Start != 0 {
			wrong("Start", "must be 0 with a Coordinator: budgets start empty")
		}
	}
	if c.Burst == 0 {
		c.Burst = min(defaultBurst, most)
	}
	if c.Burst < time.Millisecond || c.Burst > most {
		wrong("Burst", "must be from 1ms to %v", most)
	}
	if c.Start == 0 {
		c.Start = min(defaultStart, c.Burst)
	}
	if c.Start < 0 || c.Start > c.Burst {
		wrong("Start", "must be from 0 to Burst")
	}
	if c.MaxWait < 0 {
		wrong("MaxWait", "must not be negative")
	}
	return errors.Join(errs...)
}

func checkRate(wrong func(string, string, ...any), field string, units float64) {
	switch {
	case math.IsInf(units, 1):
	case units > 0 && units*milli < 1:
		wrong(field, "must be at least 0.001")
	case !(units > 0): // also NaN
		wrong(field, "must be positive, or governor.Unlimited")
	case units*milli > math.MaxInt64/2 || rateParams(int64(units*milli), time.Second).Check() != nil:
		wrong(field, "must be at most 4,000,000")
	}
}

// rateParams are a bucket's that issues so many thousandths a second.
func rateParams(rate int64, burst time.Duration) bucket.Params {
	held := int64(float64(rate) * burst.Seconds())
	return bucket.Params{Amount: rate, Period: int64(time.Second), Burst: max(1, held)}
}
