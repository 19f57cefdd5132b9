package traffic

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Settings override the scenario where they are set.
type Settings struct {
	Loop    Loop    `json:"loop,omitempty"`
	Rate    float64 `json:"rate,omitempty"`
	Users   int     `json:"users,omitempty"`
	Shape   string  `json:"shape,omitempty"` // "none": no shape
	For     Span    `json:"for,omitempty"`
	WarmUp  *Span   `json:"warm_up,omitempty"`
	Wait    *Range  `json:"wait,omitempty"`
	Seed    uint64  `json:"seed"`
	Callers int     `json:"callers,omitempty"`
}

// Plan is a scenario ready to run.
type Plan struct {
	Scenario Scenario // with the settings applied
	Seed     uint64
	Callers  int // most calls in flight at once in an open loop

	curve    curve
	schedule *schedule
	groups   []group
	shares   []float64 // cumulative, up to 1
	weights  []float64
	spikes   []spike
	fixed    []map[string]int64 // tokens of kinds whose amounts never differ
}

// group is a group with its ids.
type group struct {
	*Group
	ids []string
}

// spike is a period in which one group makes all calls.
type spike struct {
	from, to time.Duration
	group    int
}

const defaultCallers = 4096

// NewPlan applies settings to a scenario. Errors name what does not go together.
func NewPlan(sc *Scenario, set Settings) (*Plan, error) {
	p := &Plan{Scenario: *sc, Seed: set.Seed, Callers: cmp.Or(set.Callers, defaultCallers)}
	s := &p.Scenario
	if set.Users > 0 && set.Rate == 0 && s.Rate > 0 {
		s.Rate *= float64(set.Users) / float64(s.Users)
	}
	s.Loop, s.Rate = cmp.Or(set.Loop, s.Loop), cmp.Or(set.Rate, s.Rate)
	s.Users, s.For = cmp.Or(set.Users, s.Users), cmp.Or(set.For, s.For)
	if set.Shape != "" {
		s.Shape = set.Shape
	}
	if s.Shape == "none" {
		s.Shape = ""
	}
	if set.WarmUp != nil {
		s.WarmUp = *set.WarmUp
	}
	if set.Wait != nil {
		s.Wait = *set.Wait
	}
	if set.Rate > 0 {
		s.Bursts = nil
	}
	if set.Rate > 0 && s.Loop == Closed {
		return nil, errors.New("a rate needs an open loop: add --loop open, or set the number of users instead")
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if p.Callers < 1 || p.Callers > MaxUsers {
		return nil, fmt.Errorf("callers must be from 1 to %d", MaxUsers)
	}
	length := time.Duration(s.For)
	users := float64(s.Users)
	p.curve = flat(users, length)
	if s.Shape != "" {
		p.curve = shaped(s.Shapes[s.Shape], length)
	}
	if s.Loop == Open {
		if s.Rate == 0 && s.Bursts == nil {
			if s.Wait.mean() <= 0 {
				return nil, errors.New("an open loop needs a rate if its users do not wait between calls: add --rate")
			}
			s.Rate = users / s.Wait.mean()
		}
		p.schedule = scheduleOf(p.curve, s.Rate/users, s.Bursts, length)
		if p.schedule.total == 0 {
			return nil, fmt.Errorf("no call is due within %v: raise --for", length)
		}
	}
	p.draws()
	return p, nil
}

// draws prepares the data from which calls are drawn.
func (p *Plan) draws() {
	s := &p.Scenario
	sum := 0.0
	for i := range s.Entities {
		g := group{Group: &s.Entities[i]}
		count := max(1, g.Count)
		if g.Pick == "own" {
			count = p.MostUsers()
		}
		for n := range count {
			id := g.ID
			if g.many() {
				id = fmt.Sprintf(g.ID, n)
			}
			g.ids = append(g.ids, id)
		}
		p.groups = append(p.groups, g)
		sum += g.Share
		p.shares = append(p.shares, sum)
		if g.Spikes != nil {
			p.spikes = append(p.spikes, spikesOf(g.Spikes, i, p.Seed, time.Duration(s.For))...)
		}
	}
	weight := 0
	for i := range s.Calls {
		weight += s.Calls[i].Weight
		p.weights = append(p.weights, float64(weight))
		p.fixed = append(p.fixed, fixedOf(s.Calls[i].Tokens))
	}
	for i := range p.shares {
		p.shares[i] /= sum
	}
	for i := range p.weights {
		p.weights[i] /= float64(weight)
	}
}

// MostUsers is the largest number of users at any time.
func (p *Plan) MostUsers() int {
	most := 0.0
	for i := range p.curve {
		most = max(most, p.curve[i].a, p.curve[i].b)
	}
	return max(1, int(most))
}

// fixedOf returns the tokens if none of them is drawn, otherwise nil.
func fixedOf(ranges map[string]Range) map[string]int64 {
	tokens := make(map[string]int64, len(ranges))
	for name, r := range ranges {
		if r.From != r.To {
			return nil
		}
		tokens[name] = int64(r.From)
	}
	return tokens
}

// spikesOf draws the times of spikes.
func spikesOf(s *Spikes, group int, seed uint64, length time.Duration) (all []spike) {
	rnd := rand.New(rand.NewPCG(seed, 0x5b1ce<<8|uint64(group)))
	for at := time.Duration(0); ; {
		at += time.Duration(rnd.ExpFloat64() / s.PerMinute * float64(time.Minute))
		if at >= length {
			return all
		}
		all = append(all, spike{at, at + time.Duration(s.For), group})
		at += time.Duration(s.For)
	}
}

// Buckets is how many pairs of an entity and a resource there are.
func (p *Plan) Buckets() (n int) {
	for i := range p.groups {
		n += len(p.groups[i].ids)
	}
	return n * len(p.Scenario.Resources)
}

// Calls is how many calls are due in an open loop; 0 for a closed loop.
func (p *Plan) Calls() uint64 {
	if p.schedule == nil {
		return 0
	}
	return p.schedule.total
}

// Due is when the n-th call of an open loop is due, counted from 0.
func (p *Plan) Due(n uint64) time.Duration { return p.schedule.at(n) }

// AtOnce is how many calls are due at once: those of a burst, or 0.
func (p *Plan) AtOnce() int {
	if p.schedule == nil || p.schedule.bursts == nil {
		return 0
	}
	return p.schedule.bursts.Calls
}

// Users is the number of users at a time.
func (p *Plan) Users(at time.Duration) float64 { return p.curve.at(at) }

// Length is how long the plan takes, without a warm-up.
func (p *Plan) Length() time.Duration { return time.Duration(p.Scenario.For) }

// WarmUp returns a plan for the warm-up before the run, with a constant number of users. Its calls differ from the
// run's.
func (p *Plan) WarmUp() *Plan {
	w := *p
	w.Scenario.For, w.Scenario.WarmUp = p.Scenario.WarmUp, 0
	users := max(1, p.curve.at(0))
	w.curve, w.spikes = flat(users, w.Length()), nil
	w.Seed = ^p.Seed
	if p.schedule != nil {
		each := p.schedule.each
		if b := p.Scenario.Bursts; b != nil {
			each = float64(b.Calls) / time.Duration(b.Every).Seconds() / users
		}
		w.schedule = scheduleOf(w.curve, each, nil, w.Length())
	}
	return &w
}
