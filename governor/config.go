package governor

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/clock"
)

// Unlimited is the rate that means no limit.
var Unlimited = math.Inf(1)

// Config configures a governor. Rates are in capacity units per second and need not be whole. A rate is positive or
// [Unlimited]. A rate of 0 is an error, unless both rates of a level are 0: then there is no budget at that level.
type Config struct {
	// ReadUnits and WriteUnits limit all calls together. They are also the limits of tables without limits of their
	// own.
	ReadUnits, WriteUnits float64
	// Tables are limits of individual tables, by name. See [Discover].
	Tables map[string]Limits

	// Burst is how much a budget holds, as the time in which its rate issues that amount. Defaults to 2 s; with a
	// Coordinator to 50 ms, which is then also the maximum.
	Burst time.Duration
	// Start is how much a budget holds at first, expressed like Burst. At most Burst; defaults to the lesser of 1 s and
	// Burst. With a Coordinator, budgets start empty.
	Start time.Duration
	// MaxWait is the longest time that a call waits for its budgets. A call that would have to wait longer fails at
	// once with a [*WaitError]. Defaults to as long as its context allows.
	MaxWait time.Duration

	// Coordinator makes the limits apply to all processes with the same coordinator together. Defaults to none.
	Coordinator Coordinator
	// Worker names this process for people: letters, digits and -. A random part is added. Defaults to "worker".
	Worker string
	// Refresh is how often a process reports and reads its share, which is valid for four refreshes. At least 100 ms;
	// defaults to 5 s.
	Refresh time.Duration
	// Forget is how long a process may be without a report before its safe share goes to others; if it still runs, cut
	// off from the coordinator only, it exceeds the limit by that share. At least eight refreshes; defaults to 5 min.
	Forget time.Duration
}

// Limits are the limits of a table or index.
type Limits struct {
	ReadUnits, WriteUnits float64
	// Indexes are limits of the table's global secondary indexes, by name. The consumption of these indexes does not
	// count against the table's own limits; that of other indexes does.
	Indexes map[string]Limits
}

// ConfigError reports which field of a [Config], or which argument, is wrong.
type ConfigError struct {
	Field  string // "ReadUnits", "Tables[orders].WriteUnits", …
	Reason string
	Err    error // the cause, if any
}

// Error names the field and what is wrong with it.
func (e *ConfigError) Error() string { return fmt.Sprintf("governor: %s %s", e.Field, e.Reason) }

// Unwrap returns the cause.
func (e *ConfigError) Unwrap() error { return e.Err }

const (
	defaultBurst = 2 * time.Second
	defaultStart = time.Second
	fleetBurst   = 50 * time.Millisecond
	milli        = 1000
)

// check fills in the defaults and returns all errors.
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
	c.Burst = cmp.Or(c.Burst, min(defaultBurst, most))
	if c.Burst < time.Millisecond || c.Burst > most {
		wrong("Burst", "must be from 1ms to %v", most)
	}
	c.Start = cmp.Or(c.Start, min(defaultStart, c.Burst))
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

// rateParams returns the parameters of a bucket that issues rate thousandths per second.
func rateParams(rate int64, burst time.Duration) clock.Params {
	held := int64(float64(rate) * burst.Seconds())
	return clock.Params{Amount: rate, Period: int64(time.Second), Burst: max(1, held)}
}
