// Package breaker stops calls to a service that does not answer, and probes with one call at a time whether it has
// recovered.
//
//	closed → open for Cooldown + U(0, Cooldown/5) → one probe → closed, or open again
//
// A new jitter is drawn for each opening, so that the probes of many instances spread out.
//
// While the calls of fewer than three callers fail, it stops only theirs, however many they are: see [Key]. Whoever was
// answered in the last minute calls as before. So do others, of whom nothing is known, up to two at a time: see
// [Call.Wait]. The first answer closes it for all.
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
	// Silence returns how long all calls may fail, if there are at least Calls of them, before the breaker opens,
	// whoever makes them and however many earlier calls are in the Window. Defaults to off.
	Silence func() time.Duration
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
	Open                  // no calls are made, except of callers whose calls have not failed while few have
	HalfOpen              // as Open, but a probe is in flight, and its result decides
)

// String returns the state's name.
func (s State) String() string { return [...]string{"closed", "open", "half-open"}[s] }

// Result is the outcome of a call.
type Result uint8

// Results of a call.
const (
	Succeeded Result = iota // there was an answer, even a refusal
	Failed                  // there was none, which may have to do with who called
	Broken                  // no connection could be made, or it broke: whoever calls, the call fails
	Answered                // the answer was an error that concerns this caller alone
	Unknown                 // it shows nothing about the service: the caller gave up, or the request was invalid
)

// bad reports whether the result counts against the service.
func (r Result) bad() bool { return r == Failed || r == Broken }

// slots is the number of parts of the window.
const slots = 10

// slot counts the calls in a tenth of the window.
type slot struct {
	number int64 // counted from start
	calls  int
	failures
}

// failures counts failed calls, among them those without a connection.
type failures struct{ failed, broken int }

func (f *failures) add(o failures) { f.failed, f.broken = f.failed+o.failed, f.broken+o.broken }

// Breaker is a circuit breaker. It is safe for concurrent use.
type Breaker struct {
	cfg   Config
	start time.Time

	mu    sync.Mutex
	state State
	// generation increases when the breaker closes, and when it opens after that. Results of calls from an earlier
	// generation are ignored.
	generation uint64
	// until is when an open breaker may probe, or by when the probe of a half-open one must be done.
	until  time.Time
	probes uint64 // since it was new
	ring   [slots]slot
	// row counts the calls that have failed since the last success, and silent is the time of the first of them.
	row    int
	silent time.Time
	// spaces and roots are who has called lately. A probe begins them anew, apart from those who were answered if few
	// have failed.
	spaces, roots callers
	// tally counts them while the breaker is not closed, and trying is how many calls of others are in flight. ended is
	// closed when one of these ends, or the state changes.
	tally  tally
	trying int
	ended  chan struct{}
}

// tally is how many have called within the window, how many fail, and whether several have failed since the breaker
// opened.
type tally struct {
	spaces, failingSpaces, failingRoots int
	wideSpaces, wideRoots               bool
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
	probe      uint64 // which one it is; 0: none
	trying     bool   // of a caller of whom nothing was known, while the breaker was not closed
	wait       <-chan struct{}
}

// Wait returns what a caller of whom nothing is known may wait for if its call may not be made: that one of the two in
// flight ends. Then it may try again. It is nil if there is nothing to wait for, as when several callers have failed.
func (c Call) Wait() <-chan struct{} { return c.wait }

// Probe reports whether the call was made because nothing is known of its caller since the breaker has opened.
func (c Call) Probe() bool { return c.probe > 0 || c.trying }

// Begin reports whether a call may be made now. If so, it counts from now on, and its result must be reported with
// Done; if it is the probe, give it up after [Config.Probe]. Function who returns whose call it is, as far as is known;
// it is called only while the breaker is open.
func (b *Breaker) Begin(who func() Key) (c Call, ok bool) {
	now := b.cfg.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	c = Call{b: b, generation: b.generation, began: now}
	if b.state == Closed {
		return c, true
	}
	if b.state == HalfOpen && !now.Before(b.until) { // the probe was lost
		b.open(now)
	}
	probes := b.state == Open && !now.Before(b.until)
	if !probes && b.tally.failingSpaces >= several {
		return Call{}, false
	}
	k := who()
	switch known, fails, wide, failing := b.standing(k); {
	case known && !fails && failing < several:
	case probes:
		c.trying = !known
		b.probe(now)
		if c.probe = b.probes; known {
			b.failed(now, k) // until it is answered
		}
	case known || b.trying+failing >= several:
		if known || wide || b.trying == 0 {
			return Call{}, false
		}
		if b.ended == nil {
			b.ended = make(chan struct{})
		}
		return Call{wait: b.ended}, false
	default:
		c.trying = true
	}
	if c.trying {
		b.trying++
	}
	return c, true
}

// probe begins a probe. Whose calls have failed is forgotten, and if they are several, also who was answered before.
func (b *Breaker) probe(now time.Time) {
	since := func(failing int) time.Time {
		if failing >= several {
			return now
		}
		return now.Add(-remembered)
	}
	b.spaces.forget(since(b.tally.failingSpaces), now.Add(1))
	b.roots.forget(since(b.tally.failingRoots), now.Add(1))
	b.recount(now)
	b.probes++
	b.until = now.Add(b.cfg.Probe)
	b.change(HalfOpen)
}

// Done reports the result of a call, and whose it was.
func (c Call) Done(k Key, r Result) {
	b, now := c.b, c.b.cfg.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.generation != b.generation {
		return
	}
	if b.state == Closed {
		b.count(now, k, r)
		return
	}
	if c.trying {
		b.trying--
		b.wake()
	}
	decides := b.state == HalfOpen && c.probe == b.probes
	switch {
	case r == Unknown && !decides:
	case r.bad(), now.Sub(c.began) >= b.cfg.Probe:
		if b.failed(now, k); decides {
			b.open(now)
		}
	case r == Unknown:
		b.until = now // the next call probes
		b.change(Open)
	default:
		b.ring, b.row = [slots]slot{}, 0
		b.spaces.forget(now.Add(-remembered), now.Add(1))
		b.roots.forget(now.Add(-remembered), now.Add(1))
		b.called(now, k, false)
		b.change(Closed)
	}
}

// State returns the state.
func (b *Breaker) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// count records a result while the breaker is closed, and opens it if there are too many failures.
func (b *Breaker) count(now time.Time, k Key, r Result) {
	if r == Answered {
		b.row = 0
	}
	if r != Succeeded && !r.bad() {
		return
	}
	width := max(1, b.cfg.Window/slots)
	number := int64(now.Sub(b.start) / width)
	s := &b.ring[number%slots]
	if s.number != number {
		*s = slot{number: number}
	}
	s.calls++
	b.called(now, k, r.bad())
	if r == Succeeded {
		b.row = 0
		return
	}
	one := failures{failed: 1}
	if r == Broken {
		one.broken = 1
	}
	s.add(one)
	if b.row++; b.row == 1 {
		b.silent = now
	}
	silent := b.cfg.Silence != nil && b.row >= b.cfg.Calls && now.Sub(b.silent) >= b.cfg.Silence()
	calls, sum := 0, failures{}
	for _, s := range b.ring {
		if number-s.number < slots {
			calls += s.calls
			sum.add(s.failures)
		}
	}
	least := b.cfg.Ratio * float64(calls)
	most := calls >= b.cfg.Calls && float64(sum.failed) >= least
	if !silent && !most {
		return
	}
	since := now.Add(-b.cfg.Window)
	if silent || float64(sum.broken) >= least || b.unrelated(since) {
		b.spaces.forget(now.Add(-remembered), since)
		b.roots.forget(now.Add(-remembered), since)
		b.trying, b.tally = 0, tally{}
		b.recount(now)
		b.open(now)
	}
}

// called records a call.
func (b *Breaker) called(now time.Time, k Key, failed bool) {
	b.spaces.called(k.Space, now, failed)
	b.roots.called(k.Root, now, failed)
}

// several is the number of unrelated callers whose calls fail at which the service counts as failed although others
// still succeed.
const several = 3

// remembered is how long it is remembered who was answered: longer than the window, for callers that pause.
const remembered = time.Minute

// unrelated reports whether those whose last call has failed are unrelated: all who have called, or several of them and
// at least half.
func (b *Breaker) unrelated(since time.Time) bool {
	failing, all := b.tenants().count(since)
	return failing == all || failing >= several && 2*failing >= all
}

// tenants are the namespaces that have called, or the roots if all of them are in one namespace.
func (b *Breaker) tenants() *callers {
	if _, n := b.spaces.count(b.cfg.Now().Add(-b.cfg.Window)); n > 1 {
		return &b.spaces
	}
	return &b.roots
}

// standing reports whether a caller is known, whether its calls fail, whether several callers' have since the breaker
// opened, and how many callers' do. If all calls are in one namespace, callers are its roots.
func (b *Breaker) standing(k Key) (known, fails, wide bool, failing int) {
	known, fails = b.spaces.find(k.Space)
	if fails && b.tally.spaces == 1 {
		known, fails = b.roots.find(k.Root)
		return known, fails, b.tally.wideRoots, b.tally.failingRoots
	}
	return known, fails, b.tally.wideSpaces, b.tally.failingSpaces
}

// failed records a call that failed while the breaker is not closed.
func (b *Breaker) failed(now time.Time, k Key) {
	b.called(now, k, true)
	b.recount(now)
}

// recount counts who has called lately.
func (b *Breaker) recount(now time.Time) {
	t := &b.tally
	_, t.spaces = b.spaces.count(now.Add(-b.cfg.Window))
	t.failingSpaces, _ = b.spaces.count(time.Time{})
	t.failingRoots, _ = b.roots.count(time.Time{})
	t.wideSpaces = t.wideSpaces || t.failingSpaces >= several
	t.wideRoots = t.wideRoots || t.failingRoots >= several
}

// open begins the time without probes.
func (b *Breaker) open(now time.Time) {
	b.until = now.Add(b.cfg.Cooldown + time.Duration(b.cfg.Uniform()*float64(b.cfg.Cooldown)/5))
	b.change(Open)
}

func (b *Breaker) change(s State) {
	if s == Closed || b.state == Closed {
		b.generation++
	}
	b.state = s
	b.wake()
	b.cfg.Changed(s)
}

// wake lets those try again who wait for a call to end.
func (b *Breaker) wake() {
	if b.ended != nil {
		close(b.ended)
		b.ended = nil
	}
}
