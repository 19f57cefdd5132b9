package simulate

import (
	"math/rand/v2"
)

// arrivals are the requests, which come independently of each other and of the answers.
type arrivals struct {
	demand *rand.Rand
	zipf   *rand.Zipf // of the entities; nil: all alike
	rate   float64    // per second
}

func newArrivals(cfg *Config) arrivals {
	a := arrivals{demand: rand.New(rand.NewPCG(cfg.Seed, 1)), rate: cfg.Rate / float64(cfg.Sample)}
	if cfg.Zipf > 0 {
		a.zipf = rand.NewZipf(a.demand, cfg.Zipf, 1, uint64(cfg.Entities-1))
	}
	return a
}

// gap draws the time between two requests.
func (a *arrivals) gap() int64 { return int64(a.demand.ExpFloat64() / a.rate * 1e9) }

// arrive creates a request.
func (s *sim) arrive() {
	c := s.cells[len(s.cells)-1]
	if len(s.cells) > 1 {
		x := s.demand.Float64()
		for _, c = range s.cells {
			if x < c.below {
				break
			}
		}
	}
	p := s.processes[c.number+len(s.cells)*s.demand.IntN(c.of(s.joined(s.now)))]
	id := 0
	switch {
	case s.zipf != nil:
		id = int(s.zipf.Uint64())
	case len(s.entities) > 1:
		id = s.demand.IntN(len(s.entities))
	}
	e := &s.entities[id]
	e.asked = true
	s.asked(c)
	var ok bool
	if e.ideal, ok = s.limit.Debit(e.ideal, begin+s.now, s.cfg.Tokens*1000); ok {
		s.rep.Ideal++
	}
	p.decide(id)
}
