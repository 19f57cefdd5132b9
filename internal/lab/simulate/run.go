package simulate

import (
	"context"
	"errors"
	"math"
	"slices"
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
	agenda
	arrivals
	network
	truth
	recorder

	cfg       Config
	cells     []*cell
	processes []*process
	shares    *share.Shares // for outages; each process has its own buckets in it: see process.own
	rules     plan.Rules
	births    uint64
	trouble   bool // some calls fail
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

// ErrSample reports that a sample of the entities does not show what all would do, because something was answered
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
	next := s.gap()
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
			next += s.gap()
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
		cfg: cfg, arrivals: newArrivals(&cfg), network: newNetwork(&cfg), truth: newTruth(&cfg),
		recorder: newRecorder(&cfg),
		rules:    plan.Rules{Guard: guardShare, RejectionTTL: cfg.Hold},
		shares:   share.New(math.MaxInt), // never out of room
		trouble:  cfg.trouble(),
	}
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
			Cooldown: time.Second, Window: 2 * time.Second, Calls: 10,
			Silence: func() time.Duration { return 4 * cfg.Within },
			Probe:   time.Duration(callTimeout), Now: s.time, Uniform: s.dice.Float64,
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
	p := s.limit
	p.Amount, p.Burst = max(1, int64(share*float64(p.Amount))), max(1, int64(share*float64(p.Burst)))
	c := &cell{
		s: s, number: i, params: p, table: make(map[int][]*item), below: below, rep: &s.rep.Cells[i],
		limit: store.Limit{
			Name: s.cfg.Limit.Name, Amount: p.Amount, Period: s.cfg.Limit.Period, Burst: p.Burst,
			Window: s.cfg.Limit.Window,
		},
	}
	var err error
	if c.view, err = plan.NewView([]store.Charge{{Limit: &c.limit}}); err != nil {
		panic(err) // Config.Check has checked the limit
	}
	return c
}

// down reports whether a cell's table is in an outage.
func (s *sim) down(c *cell) bool {
	return slices.ContainsFunc(s.cfg.Outages, func(o Outage) bool {
		return (o.Cell == 0 || o.Cell == c.number+1) && s.now >= int64(o.From) && s.now < int64(o.To)
	})
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
