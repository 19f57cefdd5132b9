package simulate

import (
	"fmt"
	"math"
	"time"

	"github.com/weirlimits/weir"
)

// Config is a scenario. The zero value of a field means what [Config.Check] puts there.
type Config struct {
	Seed uint64
	For  time.Duration // how long, in virtual time; defaults to 1 min

	Processes int // that decide; defaults to 100
	// Begin is how many of them are there from the beginning; the others join one by one between JoinFrom and JoinTo.
	// Defaults to all.
	Begin            int
	JoinFrom, JoinTo time.Duration
	ClockSkew        time.Duration // each process's clock is off by up to so much, at most 1 s: more the driver corrects

	Rate     float64 // decisions a second, of all processes together; defaults to 1,000
	Entities int     // who asks, each with a bucket; defaults to 1
	Zipf     float64 // how uneven they ask: the exponent, above 1; 0: all alike
	// Sample has one of so many entities simulated, with what is asked of it and all processes, and counts it for so many.
	// Buckets share nothing but the breakers of the processes, so that it tells what all would do while the table answers:
	// see [ErrSample]. It divides Entities, who ask all alike. Defaults to 1: all are simulated.
	Sample int
	Limit  weir.Limit // of each entity; required
	Tokens int64      // of a decision; defaults to 1

	P50, P99  time.Duration // of a call, there and back: log-normal, fixed when alike; default to 5 ms and 15 ms
	Capacity  float64       // writes that one item takes a second before it is throttled; defaults to 1,000
	MaxShards int           // into how many items a bucket may be split; defaults to 64
	Hold      time.Duration // for how long a refusal is repeated from memory; negative: never; defaults to 250 ms
	Within    time.Duration // in which a decision is made, or on_unavailable answers; defaults to 1 s, at most 2 s

	Errors  float64 // the share of calls that fail and are not applied
	Lost    float64 // the share of calls that are applied, and whose answer is lost
	Outages []Outage

	OnUnavailable Policy        // defaults to local
	Heartbeat     time.Duration // after which a process that has joined counts as one of those that share what is local; defaults to 2 s

	Cells []Cell // each with a table of its own and its share of each limit; none: one, with all
}

// Policy is what is answered when the store does not.
type Policy string

// The policies.
const (
	Deny  Policy = "deny"  // an error
	Allow Policy = "allow" // yes
	Local Policy = "local" // by a bucket of the process: the limit's share by the number of processes
)

// Outage is when no call to a cell's table is answered.
type Outage struct {
	From, To time.Duration
	Cell     int // from 1; 0: all
}

// Cell is a region with its own table.
type Cell struct {
	Share  float64 // of each limit
	Demand float64 // of the decisions
}

// Check fills in the defaults. It returns a [*weir.ConfigError] for what is out of bounds.
func (c *Config) Check() error {
	or(&c.For, time.Minute)
	or(&c.Processes, 100)
	or(&c.Begin, c.Processes)
	or(&c.Rate, 1000)
	or(&c.Entities, 1)
	or(&c.Sample, 1)
	or(&c.Tokens, 1)
	or(&c.P50, 5*time.Millisecond)
	or(&c.P99, 3*c.P50)
	or(&c.Capacity, 1000)
	or(&c.MaxShards, 64)
	or(&c.Hold, 250*time.Millisecond)
	or(&c.Within, time.Second)
	or(&c.OnUnavailable, Local)
	or(&c.Heartbeat, 2*time.Second)
	if len(c.Cells) == 0 {
		c.Cells = []Cell{{1, 1}}
	}
	var err error
	if c.Limit, err = weir.ParseLimit(c.Limit.String()); err != nil { // its bounds are there
		return err
	}
	share := func(x float64) bool { return x >= 0 && x <= 1 }
	const most = 1_000_000
	for _, f := range []struct {
		field, reason string
		bad           bool
	}{
		{"for", "must be positive, and at most 24 h", c.For <= 0 || c.For > 24*time.Hour},
		{"processes", "must be from 1 to 1,000,000", c.Processes < 1 || c.Processes > most},
		{"begin", "must be from 1 to the number of processes", c.Begin < 1 || c.Begin > c.Processes},
		{"join", "must lie within the time that is simulated, its end not before its beginning", c.JoinFrom < 0 || c.JoinTo < c.JoinFrom || c.JoinTo > c.For},
		{"skew", "must be from 0 to 1s: the driver corrects more", c.ClockSkew < 0 || c.ClockSkew > time.Second},
		{"rate", "must be above 0", !(c.Rate > 0) || math.IsInf(c.Rate, 0)},
		{"decisions", fmt.Sprintf("are %.0f: 100 million at most", c.decisions()), c.decisions() > 1e8},
		{"entities", "must be from 1 to 1,000,000", c.Entities < 1 || c.Entities > most},
		{"sample", "must be positive, and divide the number of entities", c.Sample < 1 || c.Entities%c.Sample != 0},
		{"sample", "is of entities that ask alike of a table that answers: not with zipf, outages, errors or lost answers", c.Sample > 1 && (c.Zipf != 0 || c.trouble())},
		{"zipf", "must be above 1, or 0", c.Zipf != 0 && !(c.Zipf > 1)},
		{"tokens", "must be positive, and at most the burst", c.Tokens < 1 || c.Tokens > c.Limit.Burst},
		{"latency", "must be positive, the median not above the 99th percentile, at most 10s", c.P50 <= 0 || c.P99 < c.P50 || c.P99 > 10*time.Second},
		{"capacity", "must be above 0", !(c.Capacity > 0)},
		{"max-shards", "must be a power of two from 1 to 64", c.MaxShards < 1 || c.MaxShards > 64 || c.MaxShards&(c.MaxShards-1) != 0},
		{"within", "must be positive, and at most 2s", c.Within <= 0 || c.Within > writeTimeout},
		{"errors", "must be from 0 to 1", !share(c.Errors)},
		{"lost", "must be from 0 to 1", !share(c.Lost)},
		{"on-unavailable", "must be deny, allow or local", c.OnUnavailable != Deny && c.OnUnavailable != Allow && c.OnUnavailable != Local},
		{"cells", "are at most as many as the processes there at the beginning", len(c.Cells) > c.Begin},
	} {
		if f.bad {
			return &weir.ConfigError{Field: f.field, Reason: f.reason}
		}
	}
	return c.checkParts()
}

// decisions is how many are simulated.
func (c *Config) decisions() float64 { return c.Rate * c.For.Seconds() / float64(c.Sample) }

// trouble reports whether some calls fail.
func (c *Config) trouble() bool { return len(c.Outages) > 0 || c.Errors+c.Lost > 0 }

func (c *Config) checkParts() error {
	for _, o := range c.Outages {
		if o.From < 0 || o.To <= o.From || o.Cell < 0 || o.Cell > len(c.Cells) {
			return &weir.ConfigError{Field: "outage", Reason: "must end after it begins, in a cell that there is"}
		}
	}
	shares, demand := 0.0, 0.0
	for _, l := range c.Cells {
		if !(l.Share > 0) || !(l.Demand >= 0) {
			return &weir.ConfigError{Field: "cells", Reason: "must have a share above 0, and a demand that is not negative"}
		}
		shares, demand = shares+l.Share, demand+l.Demand
	}
	if shares > 1+1e-9 || !(demand > 0) {
		return &weir.ConfigError{Field: "cells", Reason: "must have shares of at most 100 % together, and some demand"}
	}
	return nil
}

func or[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
