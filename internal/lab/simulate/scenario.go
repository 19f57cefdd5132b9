package simulate

import (
	"time"

	"github.com/weirlimits/weir"
)

// Scenario is a named configuration.
type Scenario struct {
	Name, About string
	Config      Config
}

// Scenarios are the scenarios built into the command. The first is the default.
var Scenarios = []Scenario{
	{"steady", "100 processes, 1,000 entities of which a few make most calls", Config{
		Processes: 100, Entities: 1000, Zipf: 1.2, Rate: 2000, Limit: weir.PerMinute("rpm", 6000),
	}},
	{"hot-key", "1,000 processes, one entity, far more decisions than one item accepts writes", Config{
		Processes: 1000, Rate: 10_000, Limit: weir.PerSecond("rps", 20_000),
	}},
	{"overload", "100 processes, one entity that requests three times its limit, and more writes than one item " +
		"accepts", Config{
		Processes: 100, Rate: 3000, Limit: weir.PerSecond("rps", 1000),
	}},
	{"fleet", "100,000 processes, 100,000 equally active entities, one in 100 of which is simulated", Config{
		Processes: 100_000, Entities: 100_000, Sample: 100, Rate: 100_000,
		Limit: weir.PerMinute("rpm", 50).WithBurst(10),
	}},
	{"outage", "100 processes, a table that does not answer for half a minute", Config{
		Processes: 100, Rate: 750, Limit: weir.PerSecond("rps", 700), For: 90 * time.Second,
		Outages: []Outage{{From: 20 * time.Second, To: 50 * time.Second}},
	}},
	{"faults", "50 processes, 2 % of the calls fail and 1 % of the answers are lost", Config{
		Processes: 50, Rate: 600, Limit: weir.PerSecond("rps", 500), Errors: 0.02, Lost: 0.01,
	}},
	{"skew", "100 processes whose clocks are half a second off", Config{
		Processes: 100, Rate: 750, Limit: weir.PerSecond("rps", 500), ClockSkew: 500 * time.Millisecond,
	}},
	{"join", "a fleet that grows from 10 processes to 200 while the table does not answer", Config{
		Processes: 200, Begin: 10, JoinFrom: 20 * time.Second, JoinTo: 30 * time.Second,
		Rate: 750, Limit: weir.PerSecond("rps", 700), For: 90 * time.Second,
		Outages: []Outage{{From: 15 * time.Second, To: 50 * time.Second}},
	}},
	{"cells", "three cells with equal shares and unequal demand, one of which is cut off from its table", Config{
		Processes: 90, Rate: 1200, Limit: weir.PerSecond("rps", 1500),
		Cells:   []Cell{{1. / 3, 0.6}, {1. / 3, 0.3}, {1. / 3, 0.1}},
		Outages: []Outage{{From: 20 * time.Second, To: 40 * time.Second, Cell: 2}},
	}},
}

// Named returns the configuration of the scenario with the given name.
func Named(name string) (Config, bool) {
	for _, s := range Scenarios {
		if s.Name == name {
			return s.Config, true
		}
	}
	return Config{}, false
}
