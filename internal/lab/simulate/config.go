package simulate

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/weirlimits/weir"
)

// Config is a scenario. [Config.Check] replaces zero values with defaults.
type Config struct {
	Seed uint64
	For  time.Duration // virtual time to simulate; defaults to 1 min

	Processes int // deciding processes; defaults to 100
	// Begin is how many of them exist from the beginning; the others join one by one between JoinFrom and JoinTo.
	// Defaults to all.
	Begin            int
	JoinFrom, JoinTo time.Duration
	// Each process's clock is off by up to this much, at most 1 s: the driver corrects larger skew.
	ClockSkew time.Duration

	Rate     float64 // decisions per second, of all processes together; defaults to 1,000
	Entities int     // entities that send requests, each with a bucket; defaults to 1
	Zipf     float64 // how unevenly they send requests: the exponent, above 1; 0: all alike
	// Sample simulates one in this many entities, with all requests for it and all processes, and scales its counts up.
	// Buckets share nothing but the breakers of the processes, so while the table answers, the sample shows what all
	// would do: see [ErrSample]. It must divide Entities, which must all send alike. Defaults to 1: all are simulated.
	Sample int
	Limit  weir.Limit // of each entity; required
	Tokens int64      // per decision; defaults to 1

	P50, P99  time.Duration // of a call, round trip: log-normal, fixed if equal; default to 5 ms and 15 ms
	Capacity  float64       // writes per second to one item before it is throttled; defaults to 1,000
	MaxShards int           // most items that a bucket may be split into; defaults to 64
	Hold      time.Duration // how long a refusal is repeated from memory; negative: never; defaults to 250 ms
	Within    time.Duration // time for a decision before on_unavailable answers; defaults to 1 s, at most 2 s

	Errors  float64 // fraction of calls that fail and are not applied
	Lost    float64 // fraction of calls that are applied but whose answer is lost
	Outages []Outage

	OnUnavailable Policy // defaults to Local
	// After which a process that has joined counts among those that divide local shares; defaults to 2 s.
	Heartbeat time.Duration

	Cells []Cell // each with its own table and share of each limit; none: a single cell with everything
}

// Policy determines the answer if the store does not answer.
type Policy string

// Policies.
const (
	Deny  Policy = "deny"  // an error
	Allow Policy = "allow" // admit
	Local Policy = "local" // decide by the process's own bucket: the limit divided by the number of processes
)

// Outage is a period in which no call to a cell's table is answered.
type Outage struct {
	From, To time.Duration
	Cell     int // counted from 1; 0: all
}

// Cell is a region with its own table.
type Cell struct {
	Share  float64 // of each limit
	Demand float64 // of the decisions
}

// Check fills in defaults. It returns a [*weir.ConfigError] for a field that is out of bounds.
func (c *Config) Check() error {
	c.fill()
	var err error
	if c.Limit, err = weir.ParseLimit(c.Limit.String()); err != nil { // the limit's bounds are checked there
		return err
	}
	for _, f := range c.checks() {
		if f.bad {
			return &weir.ConfigError{Field: f.field, Reason: f.reason}
		}
	}
	return c.checkParts()
}

// fill sets defaults.
func (c *Config) fill() {
	c.For = cmp.Or(c.For, time.Minute)
	c.Processes = cmp.Or(c.Processes, 100)
	c.Begin = cmp.Or(c.Begin, c.Processes)
	c.Rate = cmp.Or(c.Rate, 1000)
	c.Entities = cmp.Or(c.Entities, 1)
	c.Sample = cmp.Or(c.Sample, 1)
	c.Tokens = cmp.Or(c.Tokens, 1)
	c.P50 = cmp.Or(c.P50, 5*time.Millisecond)
	c.P99 = cmp.Or(c.P99, 3*c.P50)
	c.Capacity = cmp.Or(c.Capacity, 1000)
	c.MaxShards = cmp.Or(c.MaxShards, 64)
	c.Hold = cmp.Or(c.Hold, 250*time.Millisecond)
	c.Within = cmp.Or(c.Within, time.Second)
	c.OnUnavailable = cmp.Or(c.OnUnavailable, Local)
	c.Heartbeat = cmp.Or(c.Heartbeat, 2*time.Second)
	if len(c.Cells) == 0 {
		c.Cells = []Cell{{1, 1}}
	}
}

// check is a rule for a field, and whether the field breaks it.
type check struct {
	field, reason string
	bad           bool
}

// checks are the rules for single values, applied to a configuration with its defaults.
func (c *Config) checks() []check {
	share := func(x float64) bool { return x >= 0 && x <= 1 }
	quota := c.Limit.Window != (weir.Window{})
	const most = 1_000_000
	return []check{
		{"limit", "must not be a balance: what it refuses depends on credits", c.Limit.Balance},
		{"limit", "must not be of slots: what it refuses depends on how long they are held", c.Limit.Slots != 0},
		{"cells", "cannot share a quota", quota && len(c.Cells) > 1},
		{"for", "must be positive, and at most 24 h", c.For <= 0 || c.For > 24*time.Hour},
		{"processes", "must be from 1 to 1,000,000", c.Processes < 1 || c.Processes > most},
		{"begin", "must be from 1 to the number of processes", c.Begin < 1 || c.Begin > c.Processes},
		{
			"join", "must lie within the simulated time, and must not end before it begins",
			c.JoinFrom < 0 || c.JoinTo < c.JoinFrom || c.JoinTo > c.For,
		},
		{"skew", "must be from 0 to 1s: the driver corrects larger skew", c.ClockSkew < 0 || c.ClockSkew > time.Second},
		{"rate", "must be above 0 and finite", !(c.Rate > 0) || math.IsInf(c.Rate, 0)},
		{"decisions", fmt.Sprintf("must be at most 100 million, not %.4g", c.decisions()), c.decisions() > 1e8},
		{"entities", "must be from 1 to 1,000,000", c.Entities < 1 || c.Entities > most},
		{
			"sample", "must be positive, and must divide the number of entities",
			c.Sample < 1 || c.Entities%c.Sample != 0,
		},
		{
			"sample",
			"needs equally active entities and a table that answers: it cannot be combined with zipf, outages, " +
				"errors or lost answers",
			c.Sample > 1 && (c.Zipf != 0 || c.trouble()),
		},
		{"zipf", "must be above 1, or 0", c.Zipf != 0 && !(c.Zipf > 1)},
		{"tokens", "must be positive, and at most the burst", c.Tokens < 1 || c.Tokens > c.Limit.Burst},
		{
			"latency", "must be positive and at most 10s, with a median not above the 99th percentile",
			c.P50 <= 0 || c.P99 < c.P50 || c.P99 > 10*time.Second,
		},
		{"capacity", "must be above 0", !(c.Capacity > 0)},
		{
			"max-shards", "must be a power of two from 1 to 64",
			c.MaxShards < 1 || c.MaxShards > 64 || c.MaxShards&(c.MaxShards-1) != 0,
		},
		{"within", "must be positive, and at most 2s", c.Within <= 0 || c.Within > writeTimeout},
		{"errors", "must be from 0 to 1", !share(c.Errors)},
		{"lost", "must be from 0 to 1", !share(c.Lost)},
		{
			"on-unavailable", "must be deny, allow or local",
			c.OnUnavailable != Deny && c.OnUnavailable != Allow && c.OnUnavailable != Local,
		},
		{"cells", "must not outnumber the processes at the beginning", len(c.Cells) > c.Begin},
	}
}

// decisions is how many decisions are simulated.
func (c *Config) decisions() float64 { return c.Rate * c.For.Seconds() / float64(c.Sample) }

// trouble reports whether some calls fail.
func (c *Config) trouble() bool { return len(c.Outages) > 0 || c.Errors+c.Lost > 0 }

func (c *Config) checkParts() error {
	for _, o := range c.Outages {
		if o.From < 0 || o.To <= o.From || o.Cell < 0 || o.Cell > len(c.Cells) {
			return &weir.ConfigError{Field: "outage", Reason: "must end after it begins, and its cell must exist"}
		}
	}
	shares, demand := 0.0, 0.0
	for _, l := range c.Cells {
		if !(l.Share > 0) || !(l.Demand >= 0) {
			return &weir.ConfigError{
				Field: "cells", Reason: "must each have a share above 0 and a demand of at least 0",
			}
		}
		shares, demand = shares+l.Share, demand+l.Demand
	}
	if shares > 1+1e-9 || !(demand > 0) {
		return &weir.ConfigError{
			Field: "cells", Reason: "must have shares that add up to at most 100 %, and a total demand above 0",
		}
	}
	return nil
}
