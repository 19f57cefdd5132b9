// Package holds renews what the leases of a process hold of limits of slots, ends the contexts of leases that lose it,
// and takes it again after an outage.
//
// A slot that is not renewed comes back by itself; see the arithmetic in internal/clock/slots. All leases of a process
// renew their slots of one limit with one write in each heal time of the limit, at a moment that differs by process and
// bucket. What is given back before that moment is never renewed.
package holds

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/policy/held"
	"github.com/weirlimits/weir/store"
)

// Config configures [Holds].
type Config struct {
	Settle  func(context.Context, store.Settle) (store.Outcome, error) // of the store
	Outage  *outage.Fallback                                           // nil for a store that always answers
	Timeout time.Duration                                              // of a call
	Max     time.Duration                                              // how long a lease is renewed
	Wall    func(time.Time) time.Time                                  // what the machine's clock showed; nil: the same
}

// Holds are what the leases of a process hold. It is safe for concurrent use.
type Holds struct {
	cfg    Config
	ctx    context.Context //nolint:containedctx // of calls, until Close
	cancel context.CancelFunc
	behind atomic.Int64 // slots that have to be taken again

	local sync.Mutex // see Decide

	mu      sync.Mutex
	limits  map[key]*limit
	watched map[*state]struct{} // leases with contexts
	clocks  clocks
	closed  bool
	running sync.WaitGroup
}

type key struct {
	store.Bucket
	limit string
}

// limit is a limit of slots of which leases hold some, or did lately. Holds.mu guards it.
type limit struct {
	key     key
	slots   []*slot
	held    int64         // the sum of their amounts, and what leases took along that have left without a hold
	phase   float64       // when to renew: 0 to 1
	timer   *time.Timer   // looks after the slots
	wakes   time.Time     // when timer does; zero: never
	again   time.Time     // before which the store is not called
	calling chan struct{} // has room for one: who calls the store for this limit
	taking  *taking       // by a call whose outcome is not known
	recent  durations
}

// slot is what a lease holds of a limit. Holds.mu guards it.
type slot struct {
	*state
	in     *limit
	at     int // in in.slots; -1: not looked after
	epoch  uint64
	of     *store.Limit
	amount int64
	hold   store.Hold // none if it has to be taken first
	sent   moment     // of the request that brought the hold
	failed bool       // the store did not answer to the last renewal
	behind bool       // not held in the store, although the lease goes on
}

// New returns holds without leases.
func New(cfg Config) *Holds {
	if cfg.Wall == nil {
		cfg.Wall = func(at time.Time) time.Time { return at }
	}
	h := &Holds{cfg: cfg, limits: make(map[key]*limit), watched: make(map[*state]struct{})}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// Close ends all renewals, and the contexts of leases.
func (h *Holds) Close() {
	h.mu.Lock()
	h.closed = true
	for _, l := range h.limits {
		if l.timer != nil {
			l.timer.Stop()
		}
	}
	for st := range h.watched {
		h.unwatch(st, store.ErrClosed)
	}
	h.mu.Unlock()
	h.cancel()
	h.running.Wait()
}

// list makes a slot be looked after from now on.
func (h *Holds) list(s *slot, b store.Bucket, now time.Time) {
	k := key{b, s.of.Name}
	l := h.limits[k]
	if l == nil {
		l = &limit{key: k, phase: rand.Float64(), calling: make(chan struct{}, 1)}
		h.limits[k] = l
	}
	s.in, s.at = l, len(l.slots)
	l.slots, l.held = append(l.slots, s), l.held+s.amount
	h.setBehind(s, s.hold.Birth == 0)
	h.wake(l, s.next(now))
}

// unlist ends that.
func (h *Holds) unlist(s *slot) {
	if s.at < 0 {
		return
	}
	l := s.in
	h.setBehind(s, false)
	end := len(l.slots) - 1
	last := l.slots[end]
	l.slots[s.at], last.at = last, s.at
	l.slots[end] = nil
	l.slots, l.held, s.at = l.slots[:end], l.held-s.amount, -1
}

// count keeps counting a slot that nobody looks after any more as held, for two heal times.
func (h *Holds) count(s *slot) {
	l, n := s.in, s.amount
	l.held += n
	time.AfterFunc(2*s.of.Heal, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		l.held -= n
		h.drop(l)
	})
}

// drop forgets a limit of which nothing is held any more, and that is not looked after.
func (h *Holds) drop(l *limit) {
	if len(l.slots) == 0 && l.held == 0 && l.wakes.IsZero() && h.limits[l.key] == l {
		delete(h.limits, l.key)
	}
}

// setBehind records whether a listed slot has to be taken again.
func (h *Holds) setBehind(s *slot, behind bool) {
	switch {
	case behind && !s.behind:
		h.behind.Add(1)
	case !behind && s.behind:
		h.behind.Add(-1)
	}
	s.behind = behind
}

// early is by how much a slot ends before others may have it, because timers and goroutines may be late.
const early = 100 * time.Millisecond

// left returns how long a slot stays valid: by the monotonic clock or the machine's, whichever shows less.
func (s *slot) left(now time.Time) time.Duration {
	if s.hold.Birth == 0 {
		return 0
	}
	return s.hold.Valid - early - s.holds.since(s.sent, now)
}

// due returns when a slot is renewed: in the part of its last heal time in which all clocks have reached the next
// cohort, and a quarter before its end at the latest, so that the call can be repeated.
func (s *slot) due() time.Time {
	heal := s.of.Heal
	return s.end().Add(-heal/4 - time.Duration(s.in.phase*float64(heal)*3/8))
}

func (s *slot) end() time.Time { return s.sent.at.Add(s.hold.Valid - early) }

// next returns when to look after a slot again.
func (s *slot) next(now time.Time) time.Time {
	end := s.end()
	switch {
	case s.behind:
		return s.in.again
	case s.gone(now):
		return end
	}
	next := s.due()
	if next.Before(s.in.again) {
		next = s.in.again
	}
	if end.Before(next) {
		return end
	}
	return next
}

// wake makes a limit be looked after at a time, at the latest.
func (h *Holds) wake(l *limit, at time.Time) {
	switch {
	case h.closed || !l.wakes.IsZero() && !at.Before(l.wakes):
		return
	case l.timer == nil:
		l.timer = time.AfterFunc(time.Until(at), func() { h.look(l) })
	default:
		l.timer.Reset(time.Until(at))
	}
	l.wakes = at
}

// look looks after the slots of a limit.
func (h *Holds) look(l *limit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.running.Add(1)
	defer h.running.Done()
	l.wakes = time.Time{}
	now := time.Now()
	for _, s := range slices.Clone(l.slots) {
		s.check(now)
	}
	if l.calls(now) {
		h.wakeNext(l, true) // a slot may be lost meanwhile
		h.mu.Unlock()
		l.calling <- struct{}{}
		h.call(l)
		<-l.calling
		h.mu.Lock()
	}
	h.wakeNext(l, false)
	h.drop(l)
}

// wakeNext makes a limit be looked after again when its slots need it, or while the store is called, when one may be
// lost.
func (h *Holds) wakeNext(l *limit, calls bool) {
	now := time.Now()
	for _, s := range l.slots {
		switch {
		case !calls:
			h.wake(l, s.next(now))
		case s.left(now) > 0:
			h.wake(l, s.end())
		}
	}
}

// calls reports whether it is time to call the store.
func (l *limit) calls(now time.Time) bool {
	return !now.Before(l.again) && slices.ContainsFunc(l.slots, func(s *slot) bool {
		return s.behind || !s.gone(now) && !now.Before(s.due())
	})
}

// check records whether a slot is lost, or has to be taken again.
func (s *slot) check(now time.Time) {
	if s.owner != nil && s.at >= 0 && !now.Before(s.due()) {
		s.disown()
	}
	switch {
	case s.at < 0 || s.left(now) > 0:
	case s.GoesOn && (s.failed || s.behind) && !s.gone(now):
		s.hold = store.Hold{}
		s.holds.setBehind(s, true)
	default:
		s.lose()
	}
}

// lose ends the lease's context.
func (s *slot) lose() {
	s.holds.unlist(s)
	s.lost, s.hold = true, store.Hold{}
	s.holds.unwatch(s.state, held.ErrSlotLost)
}

// Decide begins a decision over what this process holds, and returns what ends it. There is one at a time.
func (h *Holds) Decide() (end func()) {
	h.local.Lock()
	return h.local.Unlock
}

// Held returns how many millislots of a limit this process holds.
func (h *Holds) Held(b store.Bucket, limit string) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.limits[key{b, limit}]; l != nil {
		return l.held
	}
	return 0
}

// Typical returns for how long slots of a limit were held lately in this process: the median, at least a second.
func (h *Holds) Typical(b store.Bucket, limit string) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.limits[key{b, limit}]; l != nil {
		return max(time.Second, l.recent.median())
	}
	return time.Second
}
