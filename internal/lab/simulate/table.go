package simulate

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/batch/plan"
)

// network draws what happens to calls, and what else is random in processes.
type network struct {
	dice      *rand.Rand
	p50       int64   // of a call's latency, in nanoseconds
	mu, sigma float64 // of its logarithm
}

func newNetwork(cfg *Config) network {
	n := network{
		dice: rand.New(rand.NewPCG(cfg.Seed, 2)), p50: int64(cfg.P50), mu: math.Log(float64(cfg.P50)),
	}
	n.sigma = (math.Log(float64(cfg.P99)) - n.mu) / 2.3263 // standard deviations to the 99th percentile
	return n
}

// latency draws the round-trip time of a call.
func (n *network) latency() int64 {
	if n.sigma <= 0 {
		return n.p50
	}
	return int64(min(math.Exp(n.mu+n.sigma*n.dice.NormFloat64()), float64(10*time.Second)))
}

func (n *network) chance(share float64) bool { return share > 0 && n.dice.Float64() < share }

// item is an item in the table, with the remaining capacity of its partition.
type item struct {
	attrs expr.Attributes
	seen  *plan.Item // the same, decoded

	units    float64 // writes that it accepts at once
	refilled int64
}

// takes reports whether a partition accepts a write, and counts it.
func (it *item) takes(now int64, capacity float64) bool {
	it.units = min(capacity, it.units+float64(now-it.refilled)/1e9*capacity)
	it.refilled = now
	if it.units < 1 {
		return false
	}
	it.units--
	return true
}

// item returns shard k of an entity's bucket.
func (c *cell) item(entity, k int) *item {
	shards := c.table[entity]
	for len(shards) <= k {
		shards = append(shards, &item{seen: plan.Missing, units: c.s.cfg.Capacity, refilled: c.s.now})
	}
	c.table[entity] = shards
	return shards[k]
}

// update makes a write to shard k of an entity's bucket, and calls then with what came of it once the answer arrives or
// does not.
func (c *cell) update(entity, k int, u *expr.Update, then func(got plan.Got)) {
	s := c.s
	s.called(1)
	sent, there := s.now, s.latency()/2
	s.after(there, func() {
		if s.down(c) {
			s.at(sent+callTimeout, func() { then(plan.Got{Unknown: true, Repeat: true}) })
			return
		}
		got := c.write(c.item(entity, k), u)
		s.after(there, func() { then(got) })
	})
}

// write makes a write to an item.
func (c *cell) write(it *item, u *expr.Update) plan.Got {
	s := c.s
	if s.chance(s.cfg.Errors) {
		return plan.Got{Repeat: true}
	}
	if !it.takes(s.now, s.cfg.Capacity) {
		s.count.throttled++
		return plan.Got{Repeat: true, Hot: true}
	}
	s.wrote(1)
	attrs, applied := u.Apply(it.attrs)
	if !applied {
		s.failed()
	} else {
		if len(it.attrs) == 0 {
			s.wrote(1) // the index's entry
		}
		seen, err := plan.Parse(attrs)
		if err != nil {
			panic(err) // the planner writes nothing that it cannot read
		}
		it.attrs, it.seen = attrs, seen
	}
	if s.chance(s.cfg.Lost) {
		return plan.Got{Unknown: true, Repeat: true, Applied: false}
	}
	return plan.Got{Item: it.seen, Applied: applied}
}
