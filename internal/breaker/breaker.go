// Package breaker stops calls to what does not answer, and finds out with one call at a time whether it does again.
//
//	closed → open for Cooldown + U(0, Cooldown/5) → one probe → closed, or open again
//
// The jitter is drawn anew for each opening, so that the probes of many instances spread.
package breaker

import (
	"cmp"
	"math/rand/v2"
	"sync"
	"time"
)

// Config configures a [Breaker].
type Config struct {
	// Cooldown is how long no call is made at least after the breaker opened. Defaults to 1 s.
	Cooldown time.Duration
	// Window is how far back calls are counted, to a tenth. Defaults to 10 s.
	Window time.Duration
	// Calls is how many calls within the Window it takes to open. Defaults to 10.
	Calls int
	// Ratio is the share of them that failed from which on it opens, above 0. Defaults to 0.5.
	Ratio float64
	// Silence is how long all calls may fail, Calls of them at least, before it opens, however many the Window has from
	// before. Defaults to off.
	Silence time.Duration
	// Slow is how long a call may take; one that took longer has failed, whatever it brought. Defaults to any time.
	Slow time.Duration
	// Probe is how long a probe may take; one that is not done by then is lost, and has failed. Defaults to 1 s.
	Probe time.Duration
	// Changed is called after each change of state, in order, on the goroutine that caused it, and must not call the
	// breaker. Defaults to nobody.
	Changed func(State)
	// Uniform draws from [0, 1). Defaults to the process's source.
	Uniform func() float64
	// Now tells the time, for who turns it by hand. Defaults to the machine's.
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

// State is whether calls are made.
type State uint8

// The states.
const (
	Closed   State = iota // calls are made
	Open                  // none is made
	HalfOpen              // one is under way, and its result decides
)

// String returns the state's name.
func (s State) String() string { return [...]string{"closed", "open", "half-open"}[s] }

// Result is what became of a call.
type Result uint8

// What can become of a call.
const (
	Succeeded Result = iota // there was an answer, also one that refuses
	Failed
	Unknown // it says nothing of who was called: the caller gave up, or asked for nonsense
)

// slots divide the window.
const slots = 10

// slot counts the calls of a tenth of the window.
type slot struct {
	number        int64 // since start
	calls, failed int
}

// Breaker is safe for concurrent use.
type Breaker struct {
	cfg   Config
	start time.Time

	mu    sync.Mutex
	state State
	// generation grows with each change of state. A result of an earlier one says nothing of now.
	generation uint64
	// until is when a probe may be made, of an open breaker; by when it must be done, of one that is half open.
	until time.Time
	ring  [slots]slot
	// row is how many calls have failed since the last that did not, and silent when the first of them had.
	row    int
	silent time.Time
}

// New returns a breaker that is closed.
func New(cfg Config) *Breaker {
	cfg = cfg.withDefaults()
	return &Breaker{cfg: cfg, start: cfg.Now()}
}

// Call is a call that is under way. It must be done with, once.
type Call struct {
	b          *Breaker
	generation uint64
	began      time.Time
}

// Begin reports whether a call may be made now. If so it counts from now on, and its result is awaited; if it is the
// probe, it should be given up after [Config.Probe].
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

// Done says what became of a call.
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
		b.until = now // who comes next probes
		b.change(Open)
	}
}

// State returns the state.
func (b *Breaker) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// count books a result of a closed breaker, and opens it if that was one failure too many.
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
