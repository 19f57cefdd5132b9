package simulate

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/outage/breaker"
	"github.com/weirlimits/weir/internal/outage/share"
	"github.com/weirlimits/weir/store"
)

// begin is the start of every simulation, in nanoseconds since clock.Epoch: a whole number of days.
const begin = int64(800 * 24 * time.Hour)

// sim is the state of a simulation.
type sim struct {
	cfg       Config
	agenda    agenda
	now       int64 // since begin
	demand    *rand.Rand
	dice      *rand.Rand
	zipf      *rand.Zipf
	mu, sigma float64 // of a call's latency in nanoseconds

	cells     []*cell
	processes []*process
	shares    *share.Shares // for outages; each process has its own buckets in it: see process.own
	rate      float64       // decisions per second
	truth     clock.Params  // the limit of an entity, over all cells
	entities  []entity

	count  counts
	rules  plan.Rules
	births uint64
	rep    *Report
	took   histogram
	over   int64 // the largest amount that any entity was given beyond its limit

	trouble bool  // some calls fail
	width   int64 // of an interval
	outage  int64 // when the last outage that ends does so; 0: none
	backAt  int64 // when a process last called successfully for the first time since the outage
}

// cell is a table and the processes that use it.
type cell struct {
	s      *sim
	number int // counted from 0
	params clock.Params
	limit  store.Limit     // the same, for the shares
	table  map[int][]*item // by entity and shard
	view   *plan.View
	rep    *CellReport
	below  float64 // cumulative demand of the cells up to and including this one, as a fraction
}

// entity is the true state of an entity, which no process sees.
type entity struct {
	asked  bool
	level  int64 // of what was admitted, at the true time
	latest int64 // time of the latest admission
	ideal  int64 // level of a limiter with complete knowledge
}

// counts are the calls to the tables.
type counts struct{ calls, units, inVain, throttled, splits int }

// ErrSample reports that a sample of the entities does not tell what all would do, because something was answered
// without the table: then what a process learns from calls for one bucket affects the others.
var ErrSample = errors.New(
	"part of the sample was answered without the table, which depends on the other entities: simulate all of them",
)

// Run simulates a scenario. It returns an error if the configuration is invalid, if ctx ends, or [ErrSample].
func Run(ctx context.Context, cfg Config, progress func(share float64)) (*Report, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	s := newSim(cfg)
	next := s.interarrival()
	for step := 0; ; step++ {
		if step%(1<<14) == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if progress != nil {
				progress(min(1, float64(s.now)/float64(cfg.For)))
			}
		}
		if more := len(s.agenda.events) > 0; next <= int64(cfg.For) && (!more || next <= s.agenda.events[0].at) {
			s.now = next
			s.arrive()
			next += s.interarrival()
		} else if more {
			e := s.agenda.next()
			s.now = e.at
			e.do()
		} else {
			r := s.report()
			if cfg.Sample > 1 && r.Degraded > 0 {
				return nil, ErrSample
			}
			return r, nil
		}
	}
}

func newSim(cfg Config) *sim {
	s := &sim{
		cfg: cfg, demand: rand.New(rand.NewPCG(cfg.Seed, 1)), dice: rand.New(rand.NewPCG(cfg.Seed, 2)),
		entities: make([]entity, cfg.Entities/cfg.Sample),
		rules:    plan.Rules{Guard: guardShare, RejectionTTL: cfg.Hold},
	}
	if cfg.Zipf > 0 {
		s.zipf = rand.NewZipf(s.demand, cfg.Zipf, 1, uint64(cfg.Entities-1))
	}
	s.mu = math.Log(float64(cfg.P50))
	s.sigma = (math.Log(float64(cfg.P99)) - s.mu) / 2.3263 // standard deviations to the 99th percentile
	s.truth = clock.Params{
		Amount: cfg.Limit.Amount * 1000, Period: int64(cfg.Limit.Period), Burst: cfg.Limit.Burst * 1000,
	}
	s.trouble = cfg.trouble()
	s.rate = cfg.Rate / float64(cfg.Sample)
	s.shares = share.New(math.MaxInt) // never out of room
	for _, o := range cfg.Outages {
		if o.To < cfg.For {
			s.outage = max(s.outage, int64(o.To))
		}
	}
	s.newReport()
	demand := 0.0
	for _, c := range cfg.Cells {
		demand += c.Demand
	}
	below := 0.0
	for i, share := range cfg.Cells {
		below += share.Demand / demand
		s.cells = append(s.cells, s.newCell(i, share.Share, below))
	}
	for i := range cfg.Processes {
		p := &process{s: s, number: i, cell: s.cells[i%len(s.cells)], buckets: make(map[int]*memory)}
		if cfg.ClockSkew > 0 {
			p.skew = s.dice.Int64N(2*int64(cfg.ClockSkew)+1) - int64(cfg.ClockSkew)
		}
		p.breaker = breaker.New(breaker.Config{ // as in the limiter
			Cooldown: time.Second, Window: 2 * time.Second, Calls: 10, Silence: 4 * cfg.Within,
			Slow: cfg.Within, Probe: time.Duration(callTimeout), Now: s.time, Uniform: s.dice.Float64,
			Changed: func(st breaker.State) {
				if st == breaker.Closed && !p.back && s.now >= s.outage && s.outage > 0 {
					p.back, s.backAt = true, s.now
				}
			},
		})
		s.processes = append(s.processes, p)
	}
	return s
}

// newCell returns a cell with a share of each limit.
func (s *sim) newCell(i int, share, below float64) *cell {
	p := s.truth
	p.Amount, p.Burst = max(1, int64(share*float64(p.Amount))), max(1, int64(share*float64(p.Burst)))
	c := &cell{
		s: s, number: i, params: p, table: make(map[int][]*item), below: below, rep: &s.rep.Cells[i],
		limit: store.Limit{Name: s.cfg.Limit.Name, Amount: p.Amount, Period: s.cfg.Limit.Period, Burst: p.Burst},
	}
	var err error
	if c.view, err = plan.NewView([]store.Charge{{Limit: &c.limit}}); err != nil {
		panic(err) // Config.Check has checked the limit
	}
	return c
}

func (s *sim) at(t int64, do func())    { s.agenda.add(max(t, s.now), do) }
func (s *sim) after(d int64, do func()) { s.at(s.now+d, do) }

func (s *sim) interarrival() int64 { return int64(s.demand.ExpFloat64() / s.rate * 1e9) }

// latency draws the round-trip time of a call.
func (s *sim) latency() int64 {
	if s.sigma <= 0 {
		return int64(s.cfg.P50)
	}
	return int64(min(math.Exp(s.mu+s.sigma*s.dice.NormFloat64()), float64(10*time.Second)))
}

func (s *sim) chance(share float64) bool { return share > 0 && s.dice.Float64() < share }

// down reports whether a cell's table is in an outage.
func (s *sim) down(c *cell) bool {
	for _, o := range s.cfg.Outages {
		if (o.Cell == 0 || o.Cell == c.number+1) && s.now >= int64(o.From) && s.now < int64(o.To) {
			return true
		}
	}
	return false
}

// joined returns how many processes exist at a time.
func (s *sim) joined(at int64) int {
	late := s.cfg.Processes - s.cfg.Begin
	switch from, to := int64(s.cfg.JoinFrom), int64(s.cfg.JoinTo); {
	case late == 0 || at < from:
		return s.cfg.Begin
	case at >= to:
		return s.cfg.Processes
	default:
		return s.cfg.Begin + int(float64(late)*float64(at-from)/float64(to-from))
	}
}

// joinedAt returns when a process starts.
func (s *sim) joinedAt(number int) int64 {
	late := s.cfg.Processes - s.cfg.Begin
	if number < s.cfg.Begin {
		return 0
	}
	return int64(s.cfg.JoinFrom) + int64(
		float64(s.cfg.JoinTo-s.cfg.JoinFrom)*float64(number-s.cfg.Begin+1)/float64(late),
	)
}

// of returns how many of the first n processes belong to the cell.
func (c *cell) of(n int) int { return (n - c.number + len(c.s.cells) - 1) / len(c.s.cells) }

// healthy returns how many of a cell's processes are known to exist.
func (s *sim) healthy(c *cell) int { return max(1, c.of(s.joined(s.now-int64(s.cfg.Heartbeat)))) }

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
	if e.ideal, ok = s.truth.Debit(e.ideal, begin+s.now, s.cfg.Tokens*1000); ok {
		s.rep.Ideal++
	}
	p.decide(id)
}

// admitted records what an entity was given by a decision, at a true time: any excess over the limit, over any stretch
// of time, shows as debt. A decision counts at the time at which its write is sent, because the write carries that
// time, not at its arrival.
func (c *cell) admitted(id int, amount, at int64) {
	s := c.s
	e := &s.entities[id]
	e.latest = max(e.latest, at) // writes overtake each other
	reading := s.truth.Clock(begin + e.latest)
	e.level = clock.Spend(e.level, reading, amount)
	s.over = max(s.over, -s.truth.Available(e.level, reading))
}
