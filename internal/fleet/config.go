package fleet

import (
	"fmt"
	"time"
)

// Config configures a worker and the budgets that it shares.
type Config struct {
	// Registry keeps the workers' records. Required. One registry holds one fleet.
	Registry Registry
	// Worker is the worker's name, for people: letters, digits and -. A random part is added to it. Defaults to
	// "worker".
	Worker string
	// Refresh is how often a worker reports and reads its shares. A share is valid for four refreshes. At least 100 ms;
	// defaults to 5 s.
	Refresh time.Duration
	// Each bounds how often reports are written: all workers together write at most one in that time, for which the
	// refresh grows with the number of workers. Only without budgets. Defaults to 0.
	Each time.Duration
	// Forget is how long a worker may be without a report before it counts as dead and its safe share goes to others. A
	// worker that was cut off only from the registry, for longer than that, and still runs, exceeds the limit by its
	// safe share. At least eight refreshes; defaults to 5 min.
	Forget time.Duration
	// Budgets are the budgets to share. With none, the fleet only counts its workers.
	Budgets []Budget
	// Demand is called for every report. It returns what the worker wants of a budget, given by its index, and what it
	// has used on average since the previous report, in thousandths of a unit per second. A want of -1 means as much as
	// possible.
	Demand func(budget int) (want, used int64)
	// Granted is called with the shares whenever they may have changed, in the order of the budgets and in thousandths
	// of a unit per second. It is called by one goroutine at a time, and must not call the member.
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

// JoinError reports that a worker could not join, because the records cannot be read or written.
type JoinError struct {
	Op  string // "write report", "read grants", …
	Err error
}

// Error says what failed, and what is needed.
func (e *JoinError) Error() string {
	return fmt.Sprintf(
		"join fleet: %s: %v (the place of the records must exist and be readable, writable and listable)", e.Op, e.Err,
	)
}

// Unwrap returns the cause.
func (e *JoinError) Unwrap() error { return e.Err }

const (
	defaultRefresh = 5 * time.Second
	minRefresh     = 100 * time.Millisecond
	defaultForget  = 5 * time.Minute
	leaseRefreshes = 4
	maxWorkerName  = 64
)

func (c *Config) check() error {
	if c.Refresh == 0 {
		c.Refresh = defaultRefresh
	}
	if c.Forget == 0 {
		c.Forget = max(defaultForget, 8*c.Refresh)
	}
	if c.Worker == "" {
		c.Worker = "worker"
	}
	switch {
	case c.Registry == nil:
		return &ConfigError{"registry", "is required"}
	case c.Refresh < minRefresh:
		return &ConfigError{"refresh", "must be at least 100ms"}
	case c.Forget < 8*c.Refresh:
		return &ConfigError{"forget", "must be at least eight refreshes"}
	case c.Each > 0 && len(c.Budgets) > 0:
		return &ConfigError{"each", "would change the lease of shares"}
	case len(c.Budgets) == 0:
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
