package simulate

import (
	"math"
	"time"

	"github.com/weirlimits/weir/internal/lab/report"
)

// Report is the result of a scenario.
type Report struct {
	Fleet
	Decisions
	Calling

	P50 float64 `json:"p50_ms"` // of a decision
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`

	// Recovered is how long after the end of the last outage the last process that had stopped calling the store called
	// it successfully again, in seconds; -1: no outage ended.
	Recovered float64 `json:"recovered_seconds"`

	Cells     []CellReport `json:"cells"`
	Width     float64      `json:"interval_seconds"`
	Intervals []Interval   `json:"intervals"`
}

// Fleet is what was simulated.
type Fleet struct {
	Seed      uint64  `json:"seed"`
	Seconds   float64 `json:"seconds"`
	Processes int     `json:"processes"`
	Entities  int     `json:"entities"` // that sent requests
	Sample    int     `json:"sample"`   // one in so many was simulated; all counts are scaled to all
	Limit     string  `json:"limit"`
}

// Decisions are how requests were decided.
type Decisions struct {
	Asked    int `json:"asked"` // decisions
	Admitted int `json:"admitted"`
	Refused  int `json:"refused"`
	Failed   int `json:"failed"` // answered with an error, by on_unavailable
	// Ideal is how many a limiter with complete knowledge and no delay would have admitted.
	Ideal int `json:"ideal"`
	// Allowed is the most tokens that the limits of all requesting entities give over the whole time.
	Allowed float64 `json:"allowed_tokens"`
	Tokens  float64 `json:"admitted_tokens"`
	// Over is the largest excess of any entity's admissions over its limit, in tokens, over any stretch of time.
	Over     float64 `json:"over_tokens"`
	OverPart float64 `json:"over_of_burst"` // the same as a fraction of the burst

	Degraded         int `json:"degraded"` // answered without the store
	DegradedAdmitted int `json:"degraded_admitted"`
}

// Calling is what the processes called.
type Calling struct {
	Calls      int     `json:"calls"`
	InVain     int     `json:"calls_in_vain"` // their condition failed
	Throttled  int     `json:"calls_throttled"`
	Units      int     `json:"write_units"`
	Splits     int     `json:"splits"`
	PerAsked   float64 `json:"calls_per_decision"`
	PerAdmit   float64 `json:"calls_per_admission"`
	UnitsAsked float64 `json:"write_units_per_decision"`
	// HitRatio is the fraction of decisions for which a process would have the entity's limits, at most a minute old,
	// if the scenario continued long enough. Reading limits is not simulated.
	HitRatio float64 `json:"hit_ratio"`
}

// CellReport is the result of a cell's decisions.
type CellReport struct {
	Cell     int     `json:"cell"` // counted from 1
	Share    float64 `json:"share"`
	Asked    int     `json:"asked"`
	Admitted int     `json:"admitted"`
	Refused  int     `json:"refused"`
	Degraded int     `json:"degraded"`
}

// Interval is what was requested in a stretch of time, and what was answered in it.
type Interval struct {
	Asked    int `json:"asked"`
	Admitted int `json:"admitted"`
	Refused  int `json:"refused"`
	Degraded int `json:"degraded"`
	Calls    int `json:"calls"`
	InVain   int `json:"calls_in_vain"`
	Units    int `json:"write_units"`
}

// maxIntervals is the largest number of intervals in a report.
const maxIntervals = 60

// recorder counts what happens in a simulation.
type recorder struct {
	count  counts
	rep    *Report
	took   report.Histogram
	width  int64 // of an interval
	outage int64 // when the last outage that ends does so; 0: none
	backAt int64 // when a process last called successfully for the first time since the outage
}

// counts are the calls to the tables.
type counts struct{ calls, units, inVain, throttled, splits int }

func newRecorder(cfg *Config) recorder {
	width := report.Width(cfg.For, 0, maxIntervals)
	r := recorder{took: report.Fine(), width: int64(width), rep: &Report{
		Fleet: Fleet{
			Seed: cfg.Seed, Seconds: cfg.For.Seconds(), Processes: cfg.Processes, Sample: cfg.Sample,
			Limit: cfg.Limit.String(),
		},
		Recovered: -1,
		Width:     width.Seconds(), Intervals: make([]Interval, (cfg.For+width-1)/width),
		Cells: make([]CellReport, len(cfg.Cells)),
	}}
	for i := range cfg.Cells {
		r.rep.Cells[i] = CellReport{Cell: i + 1, Share: cfg.Cells[i].Share}
	}
	for _, o := range cfg.Outages {
		if o.To < cfg.For {
			r.outage = max(r.outage, int64(o.To))
		}
	}
	return r
}

// interval returns the current interval. Answers after the end count in the last.
func (s *sim) interval() *Interval {
	return &s.rep.Intervals[min(int(s.now/s.width), len(s.rep.Intervals)-1)]
}

func (s *sim) called(n int) {
	s.count.calls += n
	s.interval().Calls += n
}

func (s *sim) wrote(units int) {
	s.count.units += units
	s.interval().Units += units
}

func (s *sim) failed() {
	s.count.inVain++
	s.interval().InVain++
}

func (s *sim) asked(c *cell) {
	s.rep.Asked++
	c.rep.Asked++
	s.interval().Asked++
}

// record counts an answer.
func (s *sim) record(p *process, j *job, allowed, degraded bool) {
	in, c := s.interval(), p.cell.rep
	switch {
	case allowed:
		s.rep.Admitted++
		c.Admitted++
		in.Admitted++
	case degraded && s.cfg.OnUnavailable == Deny:
		s.rep.Failed++
	default:
		s.rep.Refused++
		c.Refused++
		in.Refused++
	}
	if degraded {
		s.rep.Degraded++
		c.Degraded++
		in.Degraded++
		if allowed {
			s.rep.DegradedAdmitted++
		}
	}
	s.took.Record(time.Duration(s.now - j.began))
}

func (s *sim) report() *Report {
	r, cfg := s.rep, &s.cfg
	for i := range s.entities {
		if s.entities[i].asked {
			r.Entities++
		}
	}
	r.Calls, r.InVain, r.Throttled = s.count.calls, s.count.inVain, s.count.throttled
	r.Units, r.Splits = s.count.units, s.count.splits
	r.times(cfg.Sample)
	r.HitRatio = s.hits()
	issued := s.limit.Clock(begin+int64(cfg.For)) - s.limit.Clock(begin)
	r.Allowed = float64(r.Entities) * float64(s.limit.Burst+issued) / 1000
	r.Tokens = float64(r.Admitted) * float64(cfg.Tokens)
	r.Over = float64(max(0, s.over)) / 1000
	r.OverPart = r.Over / float64(cfg.Limit.Burst)
	if r.Asked > 0 {
		r.PerAsked, r.UnitsAsked = float64(r.Calls)/float64(r.Asked), float64(r.Units)/float64(r.Asked)
	}
	if r.Admitted > 0 {
		r.PerAdmit = float64(r.Calls) / float64(r.Admitted)
	}
	times := s.took.Times()
	r.P50, r.P99, r.Max = times.P50, times.P99, times.Max
	if s.outage > 0 {
		r.Recovered = float64(max(0, s.backAt-s.outage)) / 1e9
	}
	return r
}

// times multiplies all counts by n.
func (r *Report) times(n int) {
	all := []*int{
		&r.Entities, &r.Asked, &r.Admitted, &r.Refused, &r.Failed, &r.Ideal, &r.Degraded, &r.DegradedAdmitted,
		&r.Calls, &r.InVain, &r.Throttled, &r.Units, &r.Splits,
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		all = append(all, &c.Asked, &c.Admitted, &c.Refused, &c.Degraded)
	}
	for i := range r.Intervals {
		in := &r.Intervals[i]
		all = append(all, &in.Asked, &in.Admitted, &in.Refused, &in.Degraded, &in.Calls, &in.InVain, &in.Units)
	}
	for _, count := range all {
		*count *= n
	}
}

// remembered is how long a process keeps an entity's limits: the limiter's default.
const remembered = time.Minute

// hits returns the fraction of limit look-ups that processes answer from memory. A process that looks up an entity
// keeps it for a while; the next request for it after that, 1/rate later on average, looks it up again.
func (s *sim) hits() (hits float64) {
	cfg := &s.cfg
	of := func(rate float64) (sum float64) { // over the decisions of an entity with this rate of requests
		below := 0.0
		for _, c := range s.cells {
			demand := c.below - below
			below = c.below
			known := rate * demand / float64(c.of(cfg.Processes)) * remembered.Seconds()
			sum += demand * known / (1 + known)
		}
		return sum
	}
	if cfg.Zipf == 0 {
		return of(cfg.Rate / float64(cfg.Entities))
	}
	weight := func(k int) float64 { return math.Pow(float64(1+k), -cfg.Zipf) } // as in rand.Zipf
	all := 0.0
	for k := range cfg.Entities {
		all += weight(k)
	}
	for k := range cfg.Entities {
		share := weight(k) / all
		hits += share * of(share*cfg.Rate)
	}
	return hits
}
