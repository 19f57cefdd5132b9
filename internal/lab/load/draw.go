package load

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

	group, resource int
}

// drawer generates calls. It must be used by one goroutine only.
type drawer struct {
	p     *Plan
	pcg   *rand.PCG
	rnd   *rand.Rand
	zipfs []*rand.Zipf // by group; nil without zipf
}

func newDrawer(p *Plan) *drawer {
	d := &drawer{p: p, pcg: rand.NewPCG(0, 0), zipfs: make([]*rand.Zipf, len(p.groups))}
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

// nth generates the n-th call of an open loop.
func (d *drawer) nth(n uint64, at time.Duration, c *Call) {
	d.pcg.Seed(d.p.Seed, streamCall|n)
	d.draw(-1, at, c)
}

// draw generates the next call of a user; -1: of any user.
func (d *drawer) draw(user int, at time.Duration, c *Call) {
	p := d.p
	k := pick(p.weights, d.rnd)
	kind := &p.kinds[k]
	c.group = -1
	for _, s := range p.spikes {
		if s.from <= at && at < s.to {
			c.group = s.group
			break
		}
	}
	if c.group < 0 {
		c.group = pick(p.shares, d.rnd)
	}
	g := &p.groups[c.group]
	n := 0
	switch {
	case g.Pick == "own" && user >= 0:
		n = user % len(g.ids)
	case g.Pick == "zipf":
		n = int(d.zipfs[c.group].Uint64())
	case len(g.ids) > 1:
		n = d.rnd.IntN(len(g.ids))
	}
	c.resource = 0
	if len(p.Scenario.Resources) > 1 {
		c.resource = d.rnd.IntN(len(p.Scenario.Resources))
	}
	c.Op, c.Entity, c.Resource = kind.Op, g.ids[n], p.Scenario.Resources[c.resource]
	c.Tokens, c.Adjust = p.fixed[k], nil
	if c.Tokens == nil {
		c.Tokens = d.tokens(kind.Tokens, nil)
	}
	if len(kind.Adjust) > 0 {
		c.Adjust = d.tokens(kind.Adjust, c.Tokens)
	}
}

// tokens draws amounts, minus those in less, in the order of their names.
func (d *drawer) tokens(ranges map[string]Range, less weir.Tokens) weir.Tokens {
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
