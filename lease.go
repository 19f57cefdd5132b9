package weir

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/store"
)

// Lease holds the tokens that a request has spent, until it is committed or rolled back. A lease that is dropped counts
// as committed. It is safe for concurrent use.
type Lease struct {
	lim      *Limiter
	policy   *policy.Policy // of a lease from a token: only its names
	degraded *degradation   // nil if the store decided

	mu      sync.Mutex
	ended   error         // ErrCommitted or ErrRolledBack; for a lease with a token also ErrSettled or ErrExpired
	debits  []store.Debit // with the amounts held now; see leaveOut
	at      time.Time
	levels  []store.Level // after the decision, by charge
	decided *Decision     // set when first needed, or on an adjustment
	token   *issuedToken  // carried by a caller outside the process

	room struct { // room for the usual size, to save allocations
		debits  [2]store.Debit
		charges [4]store.Charge
	}
}

// Decision returns the decision that granted the lease, with the status of every limit right after it.
func (le *Lease) Decision() Decision {
	le.mu.Lock()
	defer le.mu.Unlock()
	return *le.decisionLocked()
}

// Degraded reports whether the lease was granted without the store, like [Lease.Decision], but at no cost.
func (le *Lease) Degraded() bool { return le.degraded != nil }

func (le *Lease) decisionLocked() *Decision {
	if le.decided == nil {
		d := le.decision(true)
		le.decided = &d
	}
	return le.decided
}

func (le *Lease) decision(allowed bool) Decision {
	d := Decision{Allowed: allowed, At: le.at}
	d.degraded(le.degraded)
	if len(le.levels) == 0 {
		return d
	}
	now := clock.Nanos(le.at)
	d.Statuses = make([]LimitStatus, 0, len(le.levels))
	for i := range le.debits {
		for _, c := range le.debits[i].Charges {
			n := len(d.Statuses)
			st := statusOf(le.debits[i].Bucket.Entity, le.policy.Resource, le.originOf(n), c, le.levels[n], now)
			le.degraded.describe(&st, c.Limit)
			d.Statuses = append(d.Statuses, st)
		}
	}
	d.RetryAfter = longest(d.Statuses)
	d.over()
	return d
}

// originOf returns where the limit of the n-th charge comes from.
func (le *Lease) originOf(n int) origin {
	for i := range le.debits {
		if n >= len(le.debits[i].Charges) {
			n -= len(le.debits[i].Charges)
			continue
		}
		if le.debits[i].Charges[n].Limit.Override {
			return origin{source: SourceRequest}
		}
		if t := le.policy.Target(le.debits[i].Bucket); t != nil {
			return originIn(t)
		}
	}
	return origin{}
}

// Adjust corrects what the lease holds, once the true cost is known: it debits positive amounts and gives negative ones
// back. It is never refused for lack of tokens: a limit may go into debt, which holds later requests back. It may name
// limits that the request did not. Giving back more than the lease holds is a [*ConfigError], and changes nothing. A
// limit in shadow that would have refused the request is left out here, too.
//
// Adjust runs to completion even if ctx has ended, because tokens that were used must be counted. After any other
// error, an amount to be added may or may not have been counted, and an amount given back counts as given.
func (le *Lease) Adjust(ctx context.Context, delta Tokens) error {
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.ended != nil {
		return le.ended
	}
	debits, err := le.changes(delta)
	if err != nil || len(debits) == 0 || le.degraded.free() {
		return err
	}
	le.decisionLocked() // from what was held until now
	out, err := le.settle(ctx, debits)
	if tokenUsedElsewhere(err) {
		le.ended = err // another holder has changed the lease, or it expired: nothing is left to give back
		return err
	}
	if err == nil {
		le.reportAdjusted(ctx, debits)
		le.recordAdjusted(ctx, debits, out)
	}
	le.apply(debits, err == nil)
	return err
}

// changes returns the debits, with signed amounts, for those of the lease's charges that change.
func (le *Lease) changes(delta Tokens) ([]store.Debit, error) {
	names := le.limitNames()
	for name, n := range delta {
		if n > MaxTokens || n < -MaxTokens {
			return nil, configErr("tokens."+name, "must be between -%d and %d", int64(MaxTokens), int64(MaxTokens))
		}
		if err := le.checkName(name, names); err != nil && !le.degraded.free() {
			return nil, err
		}
	}
	var err error
	debits := le.debitsOf(func(c store.Charge) int64 {
		n := delta[c.Limit.Name] * 1000
		switch {
		case c.Shadow || err != nil: // left out; see leaveOut
			return 0
		case c.Amount+n < 0:
			err = configErr("tokens."+c.Limit.Name, "cannot give back %d, the lease holds %d", -n/1000, c.Amount/1000)
		case n > 0 && c.Amount > clock.MaxLevel-n:
			err = configErr("tokens."+c.Limit.Name, "would put the amount of the lease out of range")
		}
		return n
	})
	return debits, err
}

// debitsOf returns the debits of the lease's limits with other amounts, apart from those of 0.
func (le *Lease) debitsOf(amount func(store.Charge) int64) (debits []store.Debit) {
	for i := range le.debits {
		d := store.Debit{Bucket: le.debits[i].Bucket, Epoch: le.debits[i].Epoch}
		for _, c := range le.debits[i].Charges {
			if n := amount(c); n != 0 {
				d.Charges = append(d.Charges, store.Charge{Limit: c.Limit, Amount: n})
			}
		}
		if len(d.Charges) > 0 {
			debits = append(debits, d)
		}
	}
	return debits
}

// apply records what a settle changed: additions only if they are known to be counted, returns always.
func (le *Lease) apply(debits []store.Debit, counted bool) {
	for _, d := range debits {
		for i := range le.debits {
			if le.debits[i].Bucket != d.Bucket {
				continue
			}
			for _, c := range d.Charges {
				for j := range le.debits[i].Charges {
					if has := &le.debits[i].Charges[j]; has.Limit == c.Limit && (counted || c.Amount < 0) {
						has.Amount += c.Amount
					}
				}
			}
		}
	}
}

// Commit ends the lease: its tokens are spent. It does no I/O. Committing twice is fine; committing after a rollback
// returns [ErrRolledBack].
func (le *Lease) Commit(context.Context) error {
	le.mu.Lock()
	defer le.mu.Unlock()
	if errors.Is(le.ended, ErrRolledBack) {
		return le.ended
	}
	le.ended = ErrCommitted
	return nil
}

// Rollback ends the lease and gives back all that it holds, exactly once. After a commit it gives nothing back and
// returns [ErrCommitted], so it can be deferred; after a rollback it returns [ErrRolledBack].
//
// Rollback runs to completion even if ctx has ended. It is never repeated: without the store's answer, the tokens may
// be lost.
func (le *Lease) Rollback(ctx context.Context) error {
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.ended != nil {
		return le.ended
	}
	le.ended = ErrRolledBack
	debits := le.debitsOf(func(c store.Charge) int64 { return min(0, -c.Amount) })
	if le.degraded.free() || len(debits) == 0 && le.token == nil {
		return nil
	}
	_, err := le.settle(ctx, debits)
	if tokenUsedElsewhere(err) {
		le.ended = err
	}
	if err == nil {
		le.reportAdjusted(ctx, debits)
	}
	return err
}

// settle changes what the lease holds.
func (le *Lease) settle(ctx context.Context, debits []store.Debit) (store.Outcome, error) {
	if le.degraded != nil {
		defer le.lim.queues.Returned(debits)
		return le.lim.outage.Settle(debits, le.degraded.elsewhere), nil
	}
	s := store.Settle{Debits: debits}
	if le.token != nil {
		s.ID, s.Expires = le.token.change(), le.token.expires
	}
	out, err := le.lim.store.Settle(context.WithoutCancel(ctx), s)
	if errors.Is(err, store.ErrOverflow) {
		err = configErr("tokens", "%v", err)
	}
	if err == nil && le.token != nil {
		// Only now: while it is unknown whether the change was made, keeping the number prevents both a holder of the
		// old state and one that continues from here from giving the same tokens back.
		le.token.seq++
	}
	if err == nil {
		le.lim.outage.Warm(debits, &out)
	}
	le.lim.queues.Returned(debits)
	return out, err
}

// reportAdjusted reports a change of what the lease holds.
func (le *Lease) reportAdjusted(ctx context.Context, debits []store.Debit) {
	if len(debits) == 0 {
		return
	}
	le.lim.meter.Debited(le.lim.Namespace(), debits, le.policy.Share.Num, le.policy.Share.Den)
	if f := le.lim.cfg.Observer.Adjusted; f != nil {
		changed := debits // a copy, so that the parameter stays off the heap if nobody observes
		f(ctx, AdjustedEvent{le.lim.Namespace(), le.policy.Entity, le.policy.Resource, &changed})
	}
}

// recordAdjusted counts a change of what the lease holds, and reports the limits that it has brought near their end.
func (le *Lease) recordAdjusted(ctx context.Context, debits []store.Debit, out store.Outcome) {
	m, p := le.lim.meter, le.policy
	if m.WantsNear() && p.Chain == nil {
		var err error
		p, err = le.lim.policies.Resolve(context.WithoutCancel(ctx), p.Entity, p.Resource, !le.overrides())
		if err != nil {
			p, out.Levels = le.policy, nil // the next decision reports them
		}
	}
	d := meter.Decision{Namespace: le.lim.Namespace(), Thresholds: p.Thresholds, Debits: debits, Outcome: out}
	m.Adjusted(ctx, &d, func(b store.Bucket, l *store.Limit) bool { return !l.Override && p.InShadow(b, l.Name) })
}

// overrides reports whether the request brought its own limits.
func (le *Lease) overrides() bool {
	return slices.ContainsFunc(le.debits, func(d store.Debit) bool {
		return slices.ContainsFunc(d.Charges, func(c store.Charge) bool { return c.Limit.Override })
	})
}

// leaveOut removes from a decided lease what the store left out. What was never taken is never given back, and nothing
// is forced on a limit that would have refused the request: if it were enforced, there would be no lease. From here on,
// a charge in shadow is one that was left out.
func (le *Lease) leaveOut() {
	le.decisionLocked() // from the amounts that were requested
	n := 0
	for i := range le.debits {
		for j := range le.debits[i].Charges {
			c := &le.debits[i].Charges[j]
			if c.Shadow = c.Shadow && le.levels[n].Refused; c.Shadow {
				c.Amount = 0
			}
			n++
		}
	}
}

// peek reads the current levels of the lease's limits into the lease, without a write, and returns the buckets.
func (le *Lease) peek(ctx context.Context) ([]store.State, error) {
	buckets := make([]store.Bucket, len(le.debits))
	for i := range buckets {
		buckets[i] = le.debits[i].Bucket
	}
	snap, err := le.lim.store.Peek(ctx, buckets...)
	if err != nil {
		return nil, err
	}
	le.at, le.levels = snap.At, nil
	for i := range le.debits {
		for _, c := range le.debits[i].Charges {
			le.levels = append(le.levels, levelNow(c, &snap.States[i], clock.Nanos(snap.At)))
		}
	}
	return snap.States, nil
}
