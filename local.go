package weir

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/outage/share"
	"github.com/weirlimits/weir/store"
)

// Cause is the reason why the store did not make a decision.
type Cause string

// The reasons why the store did not make a decision.
const (
	CauseNone    Cause = ""                         // the store made it
	CauseTimeout Cause = Cause(outage.CauseTimeout) // it did not answer in time
	CauseError   Cause = Cause(outage.CauseError)   // it failed
	CauseOpen    Cause = Cause(outage.CauseOpen)    // it has not answered for a while and was not called
)

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
}

// goesBy records by which plan the decision was made.
func (d *degradation) goesBy(p *plan) {
	if p.guessed && !d.guessed {
		d.guessed = true
		d.reason += fmt.Sprintf("; the limits of %q itself are not known, so more general ones apply", p.entity)
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
	mine := share.Of(l, d.n)
	if st.Refused && st.Requested*1000 > mine.Burst { // it passes once the share is full
		st.RetryAfter, _ = mine.RetryAfter(st.level, st.at, mine.Burst)
	}
	st.Over = math.MaxInt64
	if each := max(mine.Burst, min(st.Requested, l.Burst/1000)*1000); each <= (math.MaxInt64-999)/int64(d.n) {
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

// newOutage returns what decides without the store; nil for a store that never waits.
func (c *core) newOutage() *outage.Fallback {
	if c.immediate != nil {
		return nil
	}
	cfg := outage.Config{
		Entries: c.cfg.CacheEntries, Instances: c.cfg.Instances, Settle: c.store.Settle, Keep: c.cfg.OnUnavailable == OnUnavailableLocal,
		Cooldown: c.cfg.Cooldown, DecideWithin: c.cfg.DecideWithin, StoreTimeout: c.cfg.StoreTimeout,
	}
	if f := c.cfg.Observer.Breaker; f != nil {
		cfg.Changed = func(state string) { f(context.Background(), BreakerEvent{state}) }
	}
	return outage.New(cfg)
}

// answered reports the result of a call to the store, and sorts its error. An ended context, a mistake, or a missing
// share of the cell mean nothing for the store.
func (c *core) answered(ctx context.Context, call outage.Call, failed error) (cause, err error) {
	if failed == nil {
		c.outage.End(call, outage.Succeeded)
		return nil, nil
	}
	cause, err = storeFailure(ctx, failed)
	if cause != nil && !errors.Is(cause, errOldShare) {
		c.outage.End(call, outage.Failed)
	} else {
		c.outage.End(call, outage.Unknown)
	}
	return cause, err
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
