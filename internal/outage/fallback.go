// Package outage decides what to do while the store does not answer: whether to call it, and what to admit from this
// process's share of the limits meanwhile.
package outage

import (
	"context"
	"errors"
	"hash/maphash"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/outage/breaker"
	"github.com/weirlimits/weir/internal/outage/share"
	"github.com/weirlimits/weir/store"
)

// Cause is the reason why the store did not make a decision.
type Cause string

// The reasons why the store did not make a decision.
const (
	CauseNone    Cause = ""        // it made it
	CauseTimeout Cause = "timeout" // it did not answer in time
	CauseError   Cause = "error"   // it failed
	CauseOpen    Cause = "open"    // it was not called
)

// CauseOf returns the cause of an error; CauseNone of nil.
func CauseOf(err error) Cause {
	switch {
	case err == nil:
		return CauseNone
	case errors.Is(err, ErrOpen):
		return CauseOpen
	case errors.Is(err, context.DeadlineExceeded):
		return CauseTimeout
	}
	return CauseError
}

// ErrOpen reports that the store was not called.
var ErrOpen = &store.Error{
	Op: "take", Err: errors.New("the store was not called because it has not answered lately"),
	Hint: "the store is called once every Config.Cooldown until it answers",
}

// Config configures a [Fallback].
type Config struct {
	Entries      int                                                        // buckets for which shares are kept
	Instances    func() int                                                 // that share the limits; nil: one
	LocalMax     int                                                        // percent of the limits that they all admit
	Settle       func(context.Context, store.Settle) (store.Outcome, error) // of the store
	Keep         bool                                                       // keep shares from the start; see Want
	Cooldown     time.Duration                                              // negative: the store is always called
	DecideWithin func() time.Duration                                       // of a decision, now
	StoreTimeout time.Duration                                              // of a call
	Changed      func(state string)                                         // called when the breaker changes; optional
	Held         func(b store.Bucket, limit string) int64                   // see share.Shares; optional
}

// Fallback answers without the store. A nil Fallback is that of a store in the process, which always answers. It is
// safe for concurrent use.
type Fallback struct {
	cfg     Config
	now     func() time.Time // by which shares issue tokens; setting the machine's clock does not change it
	seed    maphash.Seed
	breaker *breaker.Breaker // nil if the store is always called
	shares  *share.Shares
	debts   debts
	wanted  atomic.Bool
	begins  atomic.Bool // the store has decided nothing yet, so what other processes have spent is unknown

	lastAnswer atomic.Int64 // when the store has last decided, in nanoseconds since loaded

	openings, admitted, refused atomic.Uint64
	timedOut, failed, notCalled atomic.Uint64
}

// New returns a fallback. Until the store answers for the first time, shares begin with one token.
func New(cfg Config) *Fallback {
	start := time.Now()
	f := &Fallback{cfg: cfg, seed: maphash.MakeSeed(), shares: share.New(cfg.Entries)}
	f.now = func() time.Time { return start.Add(time.Since(start)) }
	f.shares.Held = cfg.Held
	f.debts.of = make(map[store.Bucket]*debt)
	f.shares.Begin(start)
	f.shares.Away(start)
	f.begins.Store(true)
	f.lastAnswer.Store(math.MinInt64)
	f.wanted.Store(cfg.Keep)
	if cfg.Cooldown < 0 {
		return f
	}
	stopped := false // a failed probe is not a new opening
	f.breaker = breaker.New(breaker.Config{
		Cooldown: cfg.Cooldown, Window: 2 * time.Second, Calls: 10, Probe: cfg.StoreTimeout,
		Silence: func() time.Duration { return 4 * cfg.DecideWithin() },
		Changed: func(s breaker.State) {
			if s == breaker.Open && !stopped {
				f.openings.Add(1)
			}
			stopped = s != breaker.Closed
			if cfg.Changed != nil {
				cfg.Changed(s.String())
			}
		},
	})
	return f
}

// Down reports whether the store is not called, or only probed.
func (f *Fallback) Down() bool {
	return f != nil && f.breaker != nil && f.breaker.State() != breaker.Closed
}

// Without counts a decision without the store. If a call failed, the store was away when it began, unless the failure
// concerns one key.
func (f *Fallback) Without(c Cause, of store.Extent) {
	if f != nil && c != CauseOpen && of != store.ExtentKey {
		f.shares.Away(f.now().Add(-f.cfg.DecideWithin()))
	}
	switch {
	case f == nil:
	case c == CauseTimeout:
		f.timedOut.Add(1)
	case c == CauseOpen:
		f.notCalled.Add(1)
	default:
		f.failed.Add(1)
	}
}

// Want keeps shares warm from now on.
func (f *Fallback) Want() {
	if f != nil && !f.wanted.Load() {
		f.wanted.Store(true)
	}
}

// Warm charges to the shares what the store has decided.
func (f *Fallback) Warm(debits []store.Debit, out *store.Outcome) {
	if f == nil {
		return
	}
	if f.begins.Load() && f.begins.CompareAndSwap(true, false) {
		f.shares.Begin(time.Time{})
	}
	if !f.wanted.Load() {
		return
	}
	f.answered(debits)
	if n := len(out.Levels); n > 0 { // a settle may return fewer
		for i := range debits {
			n -= len(debits[i].Charges)
		}
		if n != 0 {
			return
		}
	}
	f.shares.Warm(debits, out, f.parts(), f.now())
}

// Take decides over shares of one n-th of the limits, and owes the store what it admits, apart from charges in shadow
// that do not fit. The store failed to the given extent: for these buckets alone, or for others, too. If there is no
// room for the shares, ok is false.
func (f *Fallback) Take(debits []store.Debit, of store.Extent) (out store.Outcome, n int, ok bool) {
	f.Want()
	n = f.parts()
	if of == store.ExtentKey {
		f.shares.AwayFrom(debits, f.now().Add(-f.cfg.DecideWithin()))
	}
	if out, ok = f.shares.Take(debits, n, f.now()); !ok {
		return out, n, false
	}
	if !out.Allowed {
		f.refused.Add(1)
		return out, n, true
	}
	f.owe(debits, out.Levels)
	return out, n, true
}

// Settle changes what a lease of a share holds, which was debited at since. If the share is elsewhere, in another
// process or one that has ended, nothing is given back: it may have been already. The levels show only what a limit's
// MaxDebt left out; there is one for each charge.
func (f *Fallback) Settle(debits []store.Debit, since time.Time, elsewhere bool) store.Outcome {
	out := store.Outcome{Allowed: true, At: time.Now()}
	if f == nil { // the lease comes from a process with another store
		return out
	}
	out.At = f.now()
	if elsewhere {
		debits = added(debits)
	}
	changed := f.shares.Settle(debits, f.parts(), since, out.At)
	f.owe(changed, nil)
	for i := range debits {
		for j, c := range debits[i].Charges {
			level := store.Level{Limit: c.Limit}
			if c.Amount > 0 {
				level.Left = c.Amount - changed[i].Charges[j].Amount
			}
			out.Levels = append(out.Levels, level)
		}
	}
	return out
}

// added returns the debits with 0 in place of negative amounts.
func added(debits []store.Debit) []store.Debit {
	all := slices.Clone(debits)
	for i := range all {
		all[i].Charges = slices.Clone(all[i].Charges)
		for j := range all[i].Charges {
			c := &all[i].Charges[j]
			c.Amount = max(0, c.Amount)
		}
	}
	return all
}

// instances returns how many processes share the limits.
func (f *Fallback) instances() int {
	if f.cfg.Instances == nil {
		return 1
	}
	return max(1, f.cfg.Instances())
}

// parts returns into how many parts the limits are divided: one for each process, and as many more as nobody may use.
func (f *Fallback) parts() int { return (f.instances()*100 + f.cfg.LocalMax - 1) / f.cfg.LocalMax }

// Stats describes what happens while the store does not answer.
type Stats struct {
	Breaker                     string // closed, open or half-open; "" if the store is always called
	Openings                    uint64
	TimedOut, Failed, NotCalled uint64 // decisions without the store, by cause
	Shares, Instances           int
	Admitted, Refused           uint64 // tokens admitted from shares, and requests refused by them
	Owing                       int    // buckets with tokens admitted and not yet charged
	Charged, Lost               uint64 // tokens
}

// Stats returns statistics since the start.
func (f *Fallback) Stats() Stats {
	if f == nil {
		return Stats{Instances: 1}
	}
	st := Stats{
		Openings: f.openings.Load(),
		TimedOut: f.timedOut.Load(), Failed: f.failed.Load(), NotCalled: f.notCalled.Load(),
		Shares: f.shares.Len(), Instances: f.instances(),
		Admitted: f.admitted.Load() / 1000, Refused: f.refused.Load(),
	}
	if f.breaker != nil {
		st.Breaker = f.breaker.State().String()
	}
	f.debts.mu.Lock()
	defer f.debts.mu.Unlock()
	st.Owing, st.Charged, st.Lost = len(f.debts.of), f.debts.charged/1000, f.debts.lost/1000
	return st
}
