package weir

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/backstop"
	"github.com/weirlimits/weir/internal/breaker"
	"github.com/weirlimits/weir/store"
)

// Cause is the reason why the store did not make a decision.
type Cause string

// The reasons why the store did not make a decision.
const (
	CauseNone    Cause = ""        // the store made it
	CauseTimeout Cause = "timeout" // it did not answer in time
	CauseError   Cause = "error"   // it failed
	CauseOpen    Cause = "open"    // it has not answered for a while and was not called
)

// causes lists the causes that are counted.
var causes = []Cause{CauseTimeout, CauseError, CauseOpen}

func causeOf(err error) Cause {
	switch {
	case err == nil:
		return CauseNone
	case errors.Is(err, errOpen):
		return CauseOpen
	case errors.Is(err, context.DeadlineExceeded):
		return CauseTimeout
	}
	return CauseError
}

// errOpen reports that the store was not called.
var errOpen = &StoreError{Op: "take", Err: errors.New("the store was not called because it has not answered lately"), Hint: "the store is called once every Config.Cooldown until it answers"}

// degradation says why the store did not decide, and what was admitted instead.
type degradation struct {
	reason    string
	cause     Cause
	local     bool // the tokens come from this process's share; otherwise nothing was spent
	elsewhere bool // they come from the share of another process, or of one that has ended
	n         int  // the number of processes that share the limits
	guessed   bool // the limits are more general ones, because the entity's own are not known
	doubted   bool // it is not known whether the limits were changed
}

// goesBy records by which plan the decision was made.
func (d *degradation) goesBy(p *plan) {
	if p.guessed && !d.guessed {
		d.guessed = true
		d.reason += fmt.Sprintf("; the limits of %q itself are not known, so more general ones apply", p.entity)
	}
	if p.doubted && !d.doubted {
		d.doubted = true
		d.reason += fmt.Sprintf("; the limits of %q may have been changed, so the stricter ones apply", p.entity)
	}
}

// free reports whether a lease holds nothing because nothing was spent.
func (d *degradation) free() bool { return d != nil && !d.local }

// describe makes a status show the limit that applies to the entity; the share only explains the decision.
func (d *degradation) describe(st *LimitStatus, l *store.Limit) {
	if d == nil || !d.local {
		return
	}
	st.Amount, st.Period, st.Burst = l.Amount/1000, l.Period, l.Burst/1000
	share := backstop.Of(l, d.n)
	if st.Refused && st.Requested*1000 > share.Burst { // it passes once the share is full
		st.RetryAfter, _ = share.RetryAfter(st.level, st.at, share.Burst)
	}
	st.Over = math.MaxInt64
	if each := max(share.Burst, min(st.Requested, l.Burst/1000)*1000); each <= (math.MaxInt64-999)/int64(d.n) {
		st.Over = (each*int64(d.n) + 999) / 1000
	}
}

// degraded marks a decision as degraded, before its statuses are added.
func (d *Decision) degraded(by *degradation) {
	if by == nil {
		return
	}
	d.Degraded, d.Reason, d.cause = true, by.reason, by.cause
	if by.free() || by.guessed {
		d.Over = -1
	}
}

// over sets Over from the statuses.
func (d *Decision) over() {
	if d.Over < 0 {
		return
	}
	for i := range d.Statuses {
		d.Over = max(d.Over, d.Statuses[i].Over)
	}
}

// local is this process's share of the limits, and what it owes the store.
type local struct {
	core   *core
	shares *backstop.Shares
	wanted atomic.Bool // a request has used Local, so shares are kept warm
	begins atomic.Bool // the store has decided nothing yet, so nobody knows what other processes have spent
	owed   owed

	openings, admitted, refused atomic.Uint64
	causes                      [3]atomic.Uint64 // decisions without the store: timeout, error, open
}

// guard puts a breaker in front of a store that may not answer, and shares behind it.
func (c *core) guard() {
	if c.immediate != nil {
		return
	}
	c.local = &local{core: c, shares: backstop.New(c.cfg.CacheEntries)}
	c.local.shares.Begin(c.start)
	c.local.begins.Store(true)
	c.local.owed.debts = make(map[store.Bucket]*debt)
	c.local.wanted.Store(c.cfg.OnUnavailable == OnUnavailableLocal)
	if c.cfg.Cooldown < 0 {
		return
	}
	stopped := false // a failed probe is not a new opening
	c.breaker = breaker.New(breaker.Config{
		Cooldown: c.cfg.Cooldown, Window: 2 * time.Second, Calls: 10, Silence: 4 * c.cfg.DecideWithin,
		Slow: c.cfg.DecideWithin, Probe: c.cfg.StoreTimeout,
		Changed: func(s breaker.State) {
			if s == breaker.Open && !stopped {
				c.local.openings.Add(1)
			}
			stopped = s != breaker.Closed
			if f := c.cfg.Observer.Breaker; f != nil {
				f(context.Background(), BreakerEvent{s.String()})
			}
		},
	})
}

// begin reports whether to call the store. If so, the caller must call done.
func (c *core) begin() (call breaker.Call, ok bool) {
	if c.breaker == nil {
		return call, true
	}
	return c.breaker.Begin()
}

func (c *core) done(call breaker.Call, r breaker.Result) {
	if c.breaker != nil {
		call.Done(r)
	}
}

// answered tells the breaker the result of a call, and sorts its error. An ended context, a mistake, or a missing share
// of the cell mean nothing for the breaker.
func (c *core) answered(ctx context.Context, call breaker.Call, failed error) (cause, err error) {
	if failed == nil {
		c.done(call, breaker.Succeeded)
		return nil, nil
	}
	cause, err = storeFailure(ctx, failed)
	if cause != nil && !errors.Is(cause, errOldShare) {
		c.done(call, breaker.Failed)
	} else {
		c.done(call, breaker.Unknown)
	}
	return cause, err
}

// countCause counts a decision without the store.
func (c *core) countCause(cause error) {
	if c.local == nil {
		return
	}
	c.local.causes[slices.Index(causes, causeOf(cause))].Add(1)
}

// instances returns how many processes share the limits.
func (c *core) instances() int { return max(1, c.cfg.Instances()) }

// want keeps shares warm from now on.
func (lo *local) want() {
	if lo != nil && !lo.wanted.Load() {
		lo.wanted.Store(true)
	}
}

// warm charges to the shares what the store has decided.
func (lo *local) warm(debits []store.Debit, out *store.Outcome) {
	if lo == nil {
		return
	}
	if lo.begins.Load() && lo.begins.CompareAndSwap(true, false) {
		lo.shares.Begin(time.Time{})
	}
	if !lo.wanted.Load() {
		return
	}
	lo.owed.answered()
	if n := len(out.Levels); n > 0 { // a settle may return fewer
		for i := range debits {
			n -= len(debits[i].Charges)
		}
		if n != 0 {
			return
		}
	}
	lo.shares.Warm(debits, out, lo.core.instances(), time.Now())
}

// takeShare decides over this process's shares. The caller must owe what is admitted.
func (l *Limiter) takeShare(debits []store.Debit, cause error) (store.Outcome, *degradation, error) {
	lo := l.core.local
	lo.want()
	n := l.core.instances()
	out, ok := lo.shares.Take(debits, n, time.Now())
	if !ok {
		return out, nil, &unavailableError{&StoreError{Op: "take", Err: cause, Hint: "there is no room for more local shares: raise Config.CacheEntries"}}
	}
	if !out.Allowed {
		lo.refused.Add(1)
	}
	return out, &degradation{reason: "the store did not answer: " + cause.Error(), cause: causeOf(cause), local: true, n: n}, nil
}

// shared returns the reason if a plan has no share.
func shared(entity, resource string, p *plan, cause error) error {
	if p != nil {
		if err := p.usable(); errors.Is(err, errNoShare) { // a share that has only expired is the best there is, like the limits
			return &unavailableError{err}
		}
		return nil
	}
	return unknownLimits(entity, resource, cause)
}

// settleLocal changes what a lease of this process's share holds.
func (le *Lease) settleLocal(debits []store.Debit) store.Outcome {
	lo := le.lim.core.local
	out := store.Outcome{Allowed: true, At: time.Now()}
	if lo == nil {
		return out // a store that always answers: the lease comes from a process with another one
	}
	if le.degraded.elsewhere { // it may have been given back before: if in doubt, debit
		debits = added(debits)
	}
	lo.shares.Settle(debits, lo.core.instances(), out.At)
	lo.owe(debits)
	if le.plan.space != nil {
		le.plan.space.queues.returned(debits)
	}
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
