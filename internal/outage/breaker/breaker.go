// Package breaker stops calls to a service that does not answer, and probes with one call at a time whether it has
// recovered.
//
//	closed → open for Cooldown + U(0, Cooldown/5) → one probe → closed, or open again
//
// A new jitter is drawn for each opening, so that the probes of many instances spread out.
package breaker

import (
	"cmp"
	"math/rand/v2"
	"sync"
	"time"
)

// Config configures a [Breaker].
type Config struct {
	// Cooldown is the minimum time without calls after the breaker opens. Defaults to 1 s.
	Cooldown time.Duration
	// Window is how far back calls are counted, to within a tenth of it. Defaults to 10 s.
	Window time.Duration
	// Calls is the minimum number of calls within the Window for the breaker to open. Defaults to 10.
	Calls int
	// Ratio is the fraction of failed calls at which the breaker opens, above 0. Defaults to 0.5.
	Ratio float64
	// Silence is how long all calls may fail, if there are at least Calls of them, before the breaker opens, no matter
	// how many earlier calls are in the Window. Defaults to off.
	Silence time.Duration
	// Slow is how long a call may take; a slower call counts as failed, whatever its result. Defaults to no limit.
	Slow time.Duration
	// Probe is how long a probe may take; after that it counts as lost and failed. Defaults to 1 s.
	Probe time.Duration
	// Changed is called after each change of state, in order, on the goroutine that caused it. It must not call the
	// breaker. Defaults to nil.
	Changed func(State)
	// Uniform draws from [0, 1). Defaults to [rand.Float64].
	Uniform func() float64
	// Now returns the time. Defaults to [time.Now].
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	c.Cooldown = cmp.Or(c.Cooldown, time.Second)
	c.Window = cmp.Or(c.Window, 10*time.Second)
	c.Calls = cmp.Or(c.Calls, 10)
	c.Ratio = cmp.Or(c.Ratio, 0.5)
	c.Probe = cmp.Or(c.Probe, time.Second)
	if c.Changed == nil {
		c.Changed = func(State) {}
	}
	if c.Uniform == nil {
		c.Uniform = rand.Float64
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// State determines whether calls are made.
type State uint8

// States of a breaker.
const (
	Closed   State = iota // calls are made
	Open                  // no calls are made
	HalfOpen              // one call is in flight, and its result decides
)

// String returns the state's name.
func (s State) String() string { return [...]string{"closed", "open", "half-open"}[s] }

// Result is the outcome of a call.
type Result uint8

// Results of a call.
const (
	Succeeded Result = iota // there was an answer, even a refusal
	Failed
	Unknown // it shows nothing about the service: the caller gave up, or the request was invalid
)

// slots is the number of parts of the window.
const slots = 10

// slot counts the calls in a tenth of the window.
type slot struct {
	number        int64 // counted from start
	calls, failed int
}

// Breaker is a circuit breaker. It is safe for concurrent use.
type Breaker struct {
	cfg   Config
	start time.Time

	mu    sync.Mutex
	state State
	// generation increases with each change of state. Results of calls from an earlier generation are ignored.
	generation uint64
	// until is when an open breaker may probe, or by when the probe of a half-open one must be done.
	until time.Time
	ring  [slots]slot
	// row is how many calls have failed since the last success, and silent the time of the first of those failures.
	row    int
	silent time.Time
}

// New returns a closed breaker.
func New(cfg Config) *Breaker {
	cfg = cfg.withDefaults()
	return &Breaker{cfg: cfg, start: cfg.Now()}
}

// Call is a call in flight. Call Done exactly once.
type Call struct {
	b          *Breaker
	generation uint64
	began      time.Time
}

// Begin reports whether a call may be made now. If so, it counts from now on, and its result must be reported with
// Done; if it is the probe, give it up after [Config.Probe].
func (b *Breaker) Begin() (c Call, ok bool) {
	now := b.cfg.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == HalfOpen && !now.Before(b.until) {
		b.open(now) // the probe was lost
	}
	switch {
	case b.state == HalfOpen, b.state == Open && now.Before(b.until):
		return Call{}, false
	case b.state == Open:
		b.until = now.Add(b.cfg.Probe)
		b.change(HalfOpen)
	}
	return Call{b, b.generation, now}, true
}

// Done reports the result of a call.
func (c Call) Done(r Result) {
	b, now := c.b, c.b.cfg.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.generation != b.generation {
		return
	}
	took := now.Sub(c.began)
	if r == Succeeded && b.cfg.Slow > 0 && took > b.cfg.Slow {
		r = Failed
	}
	if b.state == Closed {
		b.count(now, r)
		return
	}
	switch { // it was the probe
	case r == Failed, took >= b.cfg.Probe:
		b.open(now)
	case r == Succeeded:
		b.ring, b.row = [slots]slot{}, 0
		b.change(Closed)
	default:
		b.until = now // the next call probes
		b.change(Open)
	}
}

// State returns the state.
func (b *Breaker) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// count records a result while the breaker is closed, and opens it if there are too many failures.
func (b *Breaker) count(now time.Time, r Result) {
	if r == Unknown {
		return
	}
	width := max(1, b.cfg.Window/slots)
	number := int64(now.Sub(b.start) / width)
	s := &b.ring[number%slots]
	if s.number != number {
		*s = slot{number: number}
	}
	s.calls++
	if r == Succeeded {
		b.row = 0
		return
	}
	s.failed++
	if b.row++; b.row == 1 {
		b.silent = now
	}
	if b.cfg.Silence > 0 && b.row >= b.cfg.Calls && now.Sub(b.silent) >= b.cfg.Silence {
		b.open(now)
		return
	}
	calls, failed := 0, 0
	for _, s := range b.ring {
		if number-s.number < slots {
			calls, failed = calls+s.calls, failed+s.failed
		}
	}
	if calls >= b.cfg.Calls && float64(failed) >= b.cfg.Ratio*float64(calls) {
		b.open(now)
	}
}

func (b *Breaker) open(now time.Time) {
	b.until = now.Add(b.cfg.Cooldown + time.Duration(b.cfg.Uniform()*float64(b.cfg.Cooldown)/5))
	b.change(Open)
}

func (b *Breaker) change(s State) {
	b.state = s
	b.generation++
	b.cfg.Changed(s)
}
