package slots_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/clock/slots"
)

const second = int64(time.Second)

// lease is what a holder knows of its slots.
type lease struct {
	slots, end int64
	until      int64 // true time at which it stops being valid
	birth      int   // of the bucket
}

// process has a clock of its own, and may be paused.
type process struct {
	skew   int64 // its clock less true time
	paused int64 // true time until which it does nothing
	// strict processes count a lease as lost once it is no longer valid. Others renew it, and accept answers, at any
	// time, like a client over HTTP whose server does not know when it was valid.
	strict bool
	leases []*lease
}

// world is one bucket, the processes that use it, and true time. Its state follows from its seed.
type world struct {
	rand  *rand.Rand
	now   int64 // true time
	skew  int64 // S
	limit slots.Limit
	held  slots.Held
	birth int
	procs []*process
	valid []*lease // and some that are no longer valid

	takes, admitted, renewed int
	most                     int64 // the limit at the last take
	longest                  int64 // heal time so far
	broken                   string
}

func newWorld(seed uint64) *world {
	w := &world{rand: rand.New(rand.NewPCG(seed, 1)), now: 60 * 24 * 3600 * second}
	w.skew = []int64{0, 2 * second}[w.rand.IntN(2)]
	w.now += w.rand.Int64N(int64(time.Hour))
	for range 1 + w.rand.IntN(6) {
		w.procs = append(w.procs, &process{strict: w.rand.IntN(2) == 0})
	}
	w.change()
	return w
}

// change gives the limit other parameters.
func (w *world) change() {
	heals := []int64{16 * second, 17 * second, 20 * second, 30 * second, 300 * second}
	w.limit = slots.Limit{Slots: 1 + w.rand.Int64N(12), Heal: heals[w.rand.IntN(len(heals))], Skew: w.skew}
	w.longest = max(w.longest, w.limit.Heal)
}

// clock returns a process's reading of true time t; it jumps now and then.
func (w *world) clock(p *process, t int64) int64 {
	if w.skew > 0 && w.rand.IntN(8) == 0 {
		p.skew = w.rand.Int64N(2*w.skew+1) - w.skew
		switch w.rand.IntN(4) { // the extremes are where the rules matter
		case 0:
			p.skew = w.skew
		case 1:
			p.skew = -w.skew
		}
	}
	return t + p.skew
}

// holding returns how many slots are valid now.
func (w *world) holding() (n int64) {
	kept := w.valid[:0]
	for _, l := range w.valid {
		if l.until > w.now {
			n += l.slots
			kept = append(kept, l)
		}
	}
	w.valid = kept
	return n
}

func (w *world) fail(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf("at %d s: ", w.now/second) + fmt.Sprintf(format, args...) +
			fmt.Sprintf(" (%+v, %+v)", w.limit, w.held)
	}
}

// call lets time pass while a request is under way. It returns when it was sent, the time by which it is decided, and
// whether its answer arrives. A store that decides by its callers' clocks may apply what one decided some time before, if
// the bucket has not changed since.
func (w *world) call(p *process) (sent, at int64, answered bool) {
	sent, at = w.now, w.clock(p, w.now)
	switch w.rand.IntN(16) {
	case 0:
		w.now += w.rand.Int64N(w.limit.Heal)
	case 1, 2, 3:
		w.now += w.rand.Int64N(second)
	}
	if w.rand.IntN(2) == 0 {
		at = w.clock(p, w.now)
	}
	return sent, at, w.rand.IntN(12) > 0
}

func (w *world) take(p *process) {
	sent, at, answered := w.call(p)
	k := 1 + w.rand.Int64N(3)
	w.takes++
	if !answered && w.rand.IntN(2) == 0 {
		return // the request was lost, not the answer
	}
	held, ok := w.limit.Take(w.held, at, k)
	if !ok {
		return
	}
	w.admitted++
	w.set(held)
	w.bound(k)
	if !answered {
		return
	}
	l := &lease{slots: k, end: held.End, until: sent + w.limit.Valid(held.End, at), birth: w.birth}
	if d := l.until - sent; d < w.limit.Heal-2*w.skew {
		w.fail("a lease is valid for %d s only", d/second)
	}
	p.leases = append(p.leases, l)
	w.valid = append(w.valid, l)
}

// renew renews most leases of a process with one request.
func (w *world) renew(p *process) {
	sent, at, answered := w.call(p)
	applied := answered || w.rand.IntN(2) == 0
	for _, l := range p.leases {
		if p.strict && l.until <= sent || w.rand.IntN(6) == 0 || !applied {
			continue
		}
		was, before := l.until, w.held.At(at, w.skew).Total()
		held, ok := w.held, false
		if l.birth == w.birth {
			held, ok = w.limit.Renew(w.held, at, l.slots, l.end)
		}
		switch {
		case !ok && l.birth == w.birth && w.now < was-2*w.skew:
			w.fail("a lease that is valid for %d s cannot be renewed", (was-w.now)/second)
		case ok && held.Total() != before:
			w.fail("a renewal changes what is held from %d to %d", before, held.Total())
		}
		w.set(held)
		if !ok || !answered || p.strict && was <= w.now {
			continue
		}
		w.renewed++
		l.end, l.until = held.End, max(was, sent+w.limit.Valid(held.End, at))
		if was <= w.now && l.until > w.now {
			w.valid = append(slices.DeleteFunc(w.valid, func(v *lease) bool { return v == l }), l)
			w.bound(0)
		}
	}
}

// set sets what the bucket keeps.
func (w *world) set(h slots.Held) {
	if w.held = h; h.Cur < 0 || h.Prev < 0 {
		w.fail("less than nothing is held")
	}
}

// bound checks I7 with k slots more than the leases that are valid now. A lowered limit applies from the next take on.
func (w *world) bound(k int64) {
	n := w.holding() + k
	if k > 0 {
		w.most = w.limit.Slots
	}
	if n > w.most {
		w.fail("%d slots are valid", n)
	}
}

// release gives back a lease, valid or not, perhaps without effect or answer. It is never repeated.
func (w *world) release(p *process) {
	if len(p.leases) == 0 {
		return
	}
	i := w.rand.IntN(len(p.leases))
	l := p.leases[i]
	p.leases = append(p.leases[:i], p.leases[i+1:]...)
	l.until = min(l.until, w.now)
	_, at, answered := w.call(p)
	if l.birth == w.birth && (answered || w.rand.IntN(2) == 0) {
		w.set(w.limit.Release(w.held, at, l.slots, l.end))
	}
}

// crash ends a process: nobody gives its slots back. They no longer count as valid.
func (w *world) crash(p *process) {
	for _, l := range p.leases {
		l.until = min(l.until, w.now)
	}
	p.leases = nil
}

// expire evicts the bucket if it is full, by a clock of its own.
func (w *world) expire(p *process) {
	if w.held.At(w.clock(p, w.now), w.skew).Total() == 0 {
		w.held, w.birth = slots.Held{}, w.birth+1
	}
}

func (w *world) step() {
	switch w.rand.IntN(4) {
	case 0:
		w.now += w.rand.Int64N(second)
	case 1:
		w.now += w.rand.Int64N(1 + w.limit.Heal/8)
	}
	p := w.procs[w.rand.IntN(len(w.procs))]
	if p.paused > w.now {
		return
	}
	switch n := w.rand.IntN(400); {
	case n == 0:
		w.change()
	case n == 1:
		w.crash(p)
	case n == 2:
		p.paused = w.now + w.rand.Int64N(3*w.limit.Heal)
	case n == 3:
		w.expire(p)
	case n < 200:
		w.take(p)
	case n < 300:
		w.renew(p)
	default:
		w.release(p)
	}
}

// run runs a world, and checks I8 at its end.
func run(seed uint64, steps int) *world {
	w := newWorld(seed)
	for range steps {
		if w.step(); w.broken != "" {
			return w
		}
	}
	for _, p := range w.procs {
		w.crash(p)
	}
	p := w.procs[0]
	w.now += 2*w.longest + 2*w.skew
	if _, ok := w.limit.Take(w.held, w.clock(p, w.now), w.limit.Slots); !ok {
		w.fail("not all slots are free 2 T + 2 S after the last holder is gone")
	}
	return w
}

// TestInvariants is I7, I8 and I9, over a million takes and more.
func TestInvariants(t *testing.T) {
	t.Parallel()
	const worlds, steps = 3000, 2000
	var takes, admitted, renewed int
	for seed := range uint64(worlds) {
		w := run(seed, steps)
		if w.broken != "" {
			t.Fatalf("world %d, %s", seed, w.broken)
		}
		takes, admitted, renewed = takes+w.takes, admitted+w.admitted, renewed+w.renewed
	}
	t.Logf("%d takes, %d admitted, %d renewals", takes, admitted, renewed)
	if takes < 1_000_000 || admitted < takes/5 || renewed < 100_000 {
		t.Errorf("%d takes, %d admitted, %d renewals: too few to be worth anything", takes, admitted, renewed)
	}
}
