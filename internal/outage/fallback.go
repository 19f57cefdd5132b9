// Package outage decides what to do while the store does not answer: whether to call it, and what to admit from this
// process's share of the limits meanwhile.
package outage

import (
	"context"
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
	CauseTimeout Cause = "timeout" // it did not answer in time
	CauseError   Cause = "error"   // it failed
	CauseOpen    Cause = "open"    // it was not called
)

// Config configures a [Fallback].
type Config struct {
	Entries      int                                                        // buckets for which shares are kept
	Instances    func() int                                                 // how many processes share the limits
	Settle       func(context.Context, store.Settle) (store.Outcome, error) // of the store
	Keep         bool                                                       // keep shares from the start; see Want
	Cooldown     time.Duration                                              // negative: the store is always called
	DecideWithin time.Duration                                              // of a decision
	StoreTimeout time.Duration                                              // of a call
	Changed      func(state string)                                         // called when the breaker changes; optional
}

// Fallback answers without the store. A nil Fallback is that of a store in the process, which always answers. It is
// safe for concurrent use.
type Fallback struct {
	cfg     Config
	breaker *breaker.Breaker // nil if the store is always called
	shares  *share.Shares
	debts   debts
	wanted  atomic.Bool
	begins  atomic.Bool // the store has decided nothing yet, so what other processes have spent is unknown

	openings, admitted, refused atomic.Uint64
	timedOut, failed, notCalled atomic.Uint64
}

// New returns a fallback. Until the store answers for the first time, shares begin with one token.
func New(cfg Config) *Fallback {
	f := &Fallback{cfg: cfg, shares: share.New(cfg.Entries)}
	f.debts.of = make(map[store.Bucket]*debt)
	f.shares.Begin(time.Now())
	f.begins.Store(true)
	f.wanted.Store(cfg.Keep)
	if cfg.Cooldown < 0 {
		return f
	}
	stopped := false // a failed probe is not a new opening
	f.breaker = breaker.New(breaker.Config{
		Cooldown: cfg.Cooldown, Window: 2 * time.Second, Calls: 10, Silence: 4 * cfg.DecideWithin,
		Slow: cfg.DecideWithin, Probe: cfg.StoreTimeout,
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

// Call is a decision that calls the store.
type Call struct{ call breaker.Call }

// Result is the outcome of a call.
type Result = breaker.Result

// Results of a call.
const (
	Succeeded = breaker.Succeeded
	Failed    = breaker.Failed
	Unknown   = breaker.Unknown // it means nothing for the store
)

// Begin reports whether to call the store. If so, the caller must call End exactly once.
func (f *Fallback) Begin() (c Call, ok bool) {
	if f == nil || f.breaker == nil {
		return c, true
	}
	c.call, ok = f.breaker.Begin()
	return c, ok
}

// End reports the result of a call.
func (f *Fallback) End(c Call, r Result) {
	if f != nil && f.breaker != nil {
		c.call.Done(r)
	}
}

// Down reports whether the store is not called, or only probed.
func (f *Fallback) Down() bool {
	return f != nil && f.breaker != nil && f.breaker.State() != breaker.Closed
}

// Without counts a decision without the store.
func (f *Fallback) Without(c Cause) {
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
	f.answered()
	if n := len(out.Levels); n > 0 { // a settle may return fewer
		for i := range debits {
			n -= len(debits[i].Charges)
		}
		if n != 0 {
			return
		}
	}
	f.shares.Warm(debits, out, f.instances(), time.Now())
}

// Take decides over the shares of one of n processes, and owes the store what it admits, apart from charges in shadow
// that do not fit. If there is no room for the shares, ok is false.
func (f *Fallback) Take(debits []store.Debit) (out store.Outcome, n int, ok bool) {
	f.Want()
	n = f.instances()
	if out, ok = f.shares.Take(debits, n, time.Now()); !ok {
		return out, n, false
	}
	if !out.Allowed {
		f.refused.Add(1)
		return out, n, true
	}
	f.owe(debits, out.Levels)
	return out, n, true
}

// Settle changes what a lease of a share holds. If the share is elsewhere, in another process or one that has ended,
// nothing is given back: it may have been already.
func (f *Fallback) Settle(debits []store.Debit, elsewhere bool) store.Outcome {
	out := store.Outcome{Allowed: true, At: time.Now()}
	if f == nil { // the lease comes from a process with another store
		return out
	}
	if elsewhere {
		debits = added(debits)
	}
	f.shares.Settle(debits, f.instances(), out.At)
	f.owe(debits, nil)
	return out
}

// added returns the positive charges of the debits.
func added(debits []store.Debit) []store.Debit {
	var all []store.Debit
	for _, d := range debits {
		var cs []store.Charge
		for _, c := range d.Charges {
			if c.Amount > 0 {
				cs = append(cs, c)
			}
		}
		if d.Charges = cs; len(cs) > 0 {
			all = append(all, d)
		}
	}
	return all
}

// instances returns how many processes share the limits.
func (f *Fallback) instances() int { return max(1, f.cfg.Instances()) }

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
