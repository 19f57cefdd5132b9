package simulate

import (
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/lab/report"
)

// truth is what no process sees: the limit of an entity, over all cells, and what entities were given.
type truth struct {
	limit    clock.Params
	entities []entity
	over     int64 // the largest amount that any entity was given beyond its limit
}

// entity is the true state of an entity.
type entity struct {
	asked  bool
	level  int64 // of what was admitted, at the true time
	latest int64 // time of the latest admission
	ideal  int64 // level of a limiter with complete knowledge
}

func newTruth(cfg *Config) truth {
	return truth{limit: report.Params(cfg.Limit), entities: make([]entity, cfg.Entities/cfg.Sample)}
}

// admitted records what an entity was given by a decision, at a true time: any excess over the limit, over any stretch
// of time, shows as debt. A decision counts at the time at which its write is sent, because the write carries that
// time, not at its arrival.
func (t *truth) admitted(id int, amount, at int64) {
	e := &t.entities[id]
	e.latest = max(e.latest, at) // writes overtake each other
	reading := t.limit.Clock(begin + e.latest)
	e.level = clock.Spend(e.level, reading, amount)
	t.over = max(t.over, -t.limit.Available(e.level, reading))
}
