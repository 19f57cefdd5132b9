package rates

import (
	"cmp"
	"fmt"
	"time"

	"github.com/weirlimits/weir/internal/fleet"
)

// Config configures a worker and the budgets that it shares.
type Config struct {
	// Registry keeps the workers' records. Required. One registry holds one fleet.
	Registry fleet.Registry
	// Worker is the worker's name, for people: letters, digits and -. A random part is added to it. Defaults to
	// "worker".
	Worker string
	// Refresh is how often a worker reports and reads its shares. A share is valid for four refreshes. At least 100 ms;
	// defaults to 5 s.
	Refresh time.Duration
	// Forget is how long a worker may be without a report before it counts as dead and its safe share goes to others. A
	// worker that was cut off only from the registry, for longer than that, and still runs, exceeds the limit by its
	// safe share. At least eight refreshes; defaults to 5 min.
	Forget time.Duration
	// Budgets are the budgets to share.
	Budgets []Budget
	// Demand is called for every report. It returns what the worker wants of a budget, given by its index, and what it
	// has used on average since the previous report, in thousandths of a unit per second. A want of -1 means as much as
	// possible.
	Demand func(budget int) (want, used int64)
	// Granted is called with the shares whenever they may have changed, in the order of the budgets and in thousandths
	// of a unit per second. It is called by one goroutine at a time, and must not call the worker.
	Granted func(shares []int64)
}

// Budget is a rate that the workers of a fleet share. If they state different limits, the lowest applies.
type Budget struct {
	Name  string
	Limit int64 // thousandths of a unit per second
}

// ConfigError reports which field of a [Config] is wrong.
type ConfigError struct {
	Field, Reason string
}

// Error names the field and what is wrong with it.
func (e *ConfigError) Error() string { return fmt.Sprintf("fleet: %s %s", e.Field, e.Reason) }

const (
	defaultRefresh = 5 * time.Second
	minRefresh     = 100 * time.Millisecond
	defaultForget  = 5 * time.Minute
	leaseRefreshes = 4
	maxWorkerName  = 64
)

func (c *Config) check() error {
	c.Refresh = cmp.Or(c.Refresh, defaultRefresh)
	c.Forget = cmp.Or(c.Forget, max(defaultForget, 8*c.Refresh))
	c.Worker = cmp.Or(c.Worker, "worker")
	switch {
	case c.Registry == nil:
		return &ConfigError{"registry", "is required"}
	case c.Refresh < minRefresh:
		return &ConfigError{"refresh", "must be at least 100ms"}
	case c.Forget < 8*c.Refresh:
		return &ConfigError{"forget", "must be at least eight refreshes"}
	case c.Demand == nil || c.Granted == nil:
		return &ConfigError{"demand and granted", "are required"}
	case len(c.Worker) > maxWorkerName:
		return &ConfigError{"worker", fmt.Sprintf("must have at most %d bytes", maxWorkerName)}
	}
	for _, r := range c.Worker {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' {
			return &ConfigError{"worker", fmt.Sprintf("may hold letters, digits and -, not %q", r)}
		}
	}
	for _, b := range c.Budgets {
		if b.Limit <= 0 {
			return &ConfigError{"budget " + b.Name, "must have a positive limit"}
		}
	}
	return nil
}
