package governor

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/clock"
)

// Direction distinguishes reads from writes.
type Direction int

// The directions.
const (
	Read Direction = iota
	Write
)

// String returns "read" or "write".
func (d Direction) String() string {
	if d == Write {
		return "write"
	}
	return "read"
}

// budget is a rate and the calls that wait for it. Amounts are in thousandths of a unit, times in nanoseconds since the
// governor was created.
type budget struct {
	scope

	rank    uint64        // the order in which calls lock and wait: narrow budgets before wide ones
	limit   int64         // configured; guarded by mu
	hold    time.Duration // what it holds, as time at its rate
	jitter  bool          // whether to begin out of step with other processes
	implied bool          // not configured: calls do not wait for it until DynamoDB throttles the table
	lowered atomic.Bool   // there is a ceiling

	mu     sync.Mutex
	params clock.Params
	level  int64
	share  int64 // of the limit; 0 if closed until there is one
	opened bool

	throttle
	line

	meter meter
}

// scope is what a budget limits.
type scope struct {
	table, index string // "" for the account
	dir          Direction
}

// name returns the name of a scope's budget in a fleet.
func (s scope) name() string {
	n := "account"
	if s.table != "" {
		n = "table/" + s.table
	}
	if s.index != "" {
		n += "/index/" + s.index
	}
	return n + " " + s.dir.String()
}

// throttle is set by throttling: see feedback.go.
type throttle struct {
	ceiling, step   int64 // 0 if there is none
	cutAt, raisedAt int64
}

// line is where calls wait for a budget, one after another.
type line struct {
	turn   bool // a call holds the turn: only it debits, others queue
	queue  []*waiter
	queued int64 // what the calls in the queue will debit
	poke   chan struct{}
}

// waiter is a call in a budget's queue.
type waiter struct {
	amount int64
	ready  chan struct{} // closed when it has the turn
}

func newBudget(limit int64, hold, start time.Duration) *budget {
	b := &budget{limit: limit, share: limit, hold: hold, opened: true, line: line{poke: make(chan struct{}, 1)}}
	b.params = rateParams(limit, hold)
	b.level = b.params.Burst - min(b.params.Burst, rateParams(limit, start).Burst)
	return b
}

// newShared returns a budget that is closed until it gets a share.
func newShared(limit int64, hold time.Duration) *budget {
	b := newBudget(limit, hold, hold)
	b.params = clock.Params{Amount: 1, Period: int64(clock.MaxPeriod), Burst: 1}
	b.level, b.share, b.opened, b.jitter = 1, 0, false, true
	return b
}

// rate returns the amount issued per second. The lock is held, as in all methods below unless stated otherwise.
func (b *budget) rate() int64 {
	if b.ceiling > 0 {
		return min(b.share, b.ceiling)
	}
	return b.share
}

func (b *budget) available(now int64) int64 { return b.params.Available(b.level, b.params.Clock(now)) }

// follow makes the bucket issue the rate. It keeps what is available, cut to the new burst: a change never adds tokens.
func (b *budget) follow(now int64) {
	b.lowered.Store(b.ceiling > 0)
	left := b.available(now)
	p := clock.Params{Amount: 1, Period: int64(clock.MaxPeriod), Burst: 1} // closed: one a year
	if rate := b.rate(); rate > 0 {
		p = rateParams(rate, b.hold)
		if !b.opened && b.jitter {
			left -= rand.Int64N(milli)
		}
		b.opened = true
	}
	b.params = p
	b.level = p.Clock(now) + p.Burst - min(left, p.Burst)
	b.wake()
}

// wake makes the call that has the turn check again.
func (b *budget) wake() {
	if !b.turn {
		return
	}
	select {
	case b.poke <- struct{}{}:
	default:
	}
}

// free reports whether a debit of a fits now without overtaking a waiter.
func (b *budget) free(now, a int64) bool {
	b.raise(now)
	return !b.turn && b.share > 0 && b.params.Fits(b.level, b.params.Clock(now), a)
}

func (b *budget) debit(now, a int64) { b.level = clock.Spend(b.level, b.params.Clock(now), a) }

// wait returns how long until what was debited is covered, 0 if it is already; false if that is not known.
func (b *budget) wait(now, more int64) (time.Duration, bool) {
	if b.share == 0 {
		return 0, false
	}
	level := b.level
	if more > 0 {
		level = clock.Spend(level, b.params.Clock(now), more)
	}
	return time.Duration(max(0, b.params.At(level, 0)-now)), true
}

// settle corrects a debit to what the call cost.
func (b *budget) settle(now, estimate, cost int64, reported bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case cost > estimate:
		b.debit(now, cost-estimate)
	case cost < estimate:
		b.level = clock.Credit(b.level, estimate-cost)
		b.wake()
	}
	b.meter.add(now, cost)
	if !reported {
		b.meter.estimated += cost
	}
}

// setShare sets the part of the limit that this process may use. It takes the lock.
func (b *budget) setShare(now, share int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if share = min(share, b.limit); share != b.share {
		b.share = share
		b.follow(now)
	}
}

// setLimit changes the limit. It takes the lock. In a fleet the share follows later, unless it is too high.
func (b *budget) setLimit(now, limit int64, fleet bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if limit == b.limit {
		return
	}
	share := limit
	if fleet {
		share = min(share, b.share)
	}
	b.limit, b.share = limit, share
	if b.ceiling > 0 {
		b.step = max(b.step, b.share/50)
	}
	b.follow(now)
}
