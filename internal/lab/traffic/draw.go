package traffic

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirlimits/weir"
)

// Call is one call: what an entity requests.
type Call struct {
	Op       Op
	Entity   string
	Resource string
	Tokens   weir.Tokens // read-only
	// Adjust is the amount by which an acquired lease is adjusted; nil: not at all.
	Adjust weir.Tokens
	// Hold is for how long an acquired lease keeps its slots before it gives them back; 0: it gives nothing back.
	Hold time.Duration
	// Wait is for how long the call may wait to be admitted.
	Wait time.Duration

	GroupAt    int `json:"-"` // index in the scenario's entities
	ResourceAt int `json:"-"` // index in its resources
}

// Drawer generates calls. It must be used by one goroutine only.
type Drawer struct {
	p     *Plan
	user  int // -1: any
	pcg   *rand.PCG
	rnd   *rand.Rand
	zipfs []*rand.Zipf // by group; nil without zipf
}

// Drawer returns a drawer of the calls of an open loop.
func (p *Plan) Drawer() *Drawer {
	d := &Drawer{p: p, user: -1, pcg: rand.NewPCG(0, 0), zipfs: make([]*rand.Zipf, len(p.groups))}
	d.rnd = rand.New(d.pcg)
	for i, g := range p.groups {
		if g.Pick == "zipf" {
			d.zipfs[i] = rand.NewZipf(d.rnd, g.Exponent, 1, uint64(len(g.ids)-1))
		}
	}
	return d
}

// Independent streams of random numbers.
const (
	streamCall = 1 << 62 // for the n-th call of an open loop
	streamUser = 1 << 61 // for a user of a closed loop
)

// User returns a drawer of the calls of a user of a closed loop.
func (p *Plan) User(user int) *Drawer {
	d := p.Drawer()
	d.user = user
	d.pcg.Seed(p.Seed, streamUser|uint64(user))
	return d
}

// Nth generates the n-th call of an open loop.
func (d *Drawer) Nth(n uint64, at time.Duration, c *Call) {
	d.pcg.Seed(d.p.Seed, streamCall|n)
	d.Next(at, c)
}

// Pause draws the time between two calls of a user.
func (d *Drawer) Pause() time.Duration { return d.p.Scenario.Wait.wait(d.rnd) }

// Begin draws the time before a user's first call, so that users do not start together.
func (d *Drawer) Begin() time.Duration { return time.Duration(d.rnd.Float64() * float64(d.Pause())) }

// Next generates the next call, made at a time.
func (d *Drawer) Next(at time.Duration, c *Call) {
	p := d.p
	k := pick(p.weights, d.rnd)
	kind := &p.Scenario.Calls[k]
	c.GroupAt = -1
	for _, s := range p.spikes {
		if s.from <= at && at < s.to {
			c.GroupAt = s.group
			break
		}
	}
	if c.GroupAt < 0 {
		c.GroupAt = pick(p.shares, d.rnd)
	}
	g := &p.groups[c.GroupAt]
	n := 0
	switch {
	case g.Pick == "own" && d.user >= 0:
		n = d.user % len(g.ids)
	case g.Pick == "zipf":
		n = int(d.zipfs[c.GroupAt].Uint64())
	case len(g.ids) > 1:
		n = d.rnd.IntN(len(g.ids))
	}
	c.ResourceAt = 0
	if len(p.Scenario.Resources) > 1 {
		c.ResourceAt = d.rnd.IntN(len(p.Scenario.Resources))
	}
	c.Op, c.Entity, c.Resource = kind.Op, g.ids[n], p.Scenario.Resources[c.ResourceAt]
	c.Tokens, c.Adjust = p.fixed[k], nil
	if c.Tokens == nil {
		c.Tokens = d.tokens(kind.Tokens, nil)
	}
	if len(kind.Adjust) > 0 {
		c.Adjust = d.tokens(kind.Adjust, c.Tokens)
	}
	c.Hold, c.Wait = 0, time.Duration(kind.Wait)
	if kind.Hold.To > 0 {
		c.Hold = kind.Hold.wait(d.rnd)
	}
}

// tokens draws amounts, minus those in less, in the order of their names.
func (d *Drawer) tokens(ranges map[string]Range, less weir.Tokens) weir.Tokens {
	var room [8]string
	names := room[:0]
	for name := range ranges {
		names = append(names, name)
	}
	slices.Sort(names)
	t := make(weir.Tokens, len(names))
	for _, name := range names {
		t[name] = ranges[name].whole(d.rnd) - less[name]
	}
	return t
}

// pick draws an index from cumulative shares.
func pick(sums []float64, rnd *rand.Rand) int {
	if len(sums) == 1 {
		return 0
	}
	x := rnd.Float64()
	for i, sum := range sums {
		if x < sum {
			return i
		}
	}
	return len(sums) - 1
}
