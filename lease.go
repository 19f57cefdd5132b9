package weir

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/bucket"
	"github.com/weirlimits/weir/store"
)

// Lease holds the tokens that a request has spent, until it is committed or rolled back. A lease that is dropped
// counts as committed. It is safe for concurrent use.
type Lease struct {
	lim      *Limiter
	plan     *plan
	degraded *degradation // nil if the store decided

	mu      sync.Mutex
	ended   error         // ErrCommitted or ErrRolledBack; of a held lease also ErrSettled or ErrExpired
	debits  []store.Debit // with what is held now; see leaveOut
	at      time.Time
	levels  []store.Level // after the decision, by charge
	decided *Decision     // once asked for, or adjusted
	held    *heldLease    // carried by a caller outside the process

	room struct { // for the usual size, to save allocations
		debits  [2]store.Debit
		charges [4]store.Charge
	}
}

// Decision returns the decision that the lease came of, with the status of every limit right after it.
func (le *Lease) Decision() Decision {
	le.mu.Lock()
	defer le.mu.Unlock()
	return *le.decisionLocked()
}

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
	now := nanosOf(le.at)
	d.Statuses = make([]LimitStatus, 0, len(le.levels))
	for i := range le.debits {
		for _, c := range le.debits[i].Charges {
			n := len(d.Statuses)
			st := statusOf(le.debits[i].Bucket.Entity, le.plan.resource, le.originOf(n), c, le.levels[n], now)
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
		for j := range le.plan.links {
			if le.plan.links[j].bucket == le.debits[i].Bucket {
				return origin{le.plan.links[j].source, le.plan.links[j].manifest}
			}
		}
	}
	return origin{}
}

// Adjust adds to what the lease holds, or with negative amounts gives some of it back, once the true cost is known.
// It is never refused for lack of tokens: a limit may go into debt, which holds later requests back. It may name
// limits that the request did not. Giving back more than is held is a [*ConfigError], and nothing is changed. A limit in
// shadow that would have refused the request is left out here, too.
//
// It is carried out although ctx may have ended: what was used must be counted. When it returns another error, an
// amount that was to be added may or may not be counted, and one given back counts as given.
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
	le.decisionLocked() // from what was held so far
	out, err := le.settle(ctx, debits)
	if heldElsewhere(err) {
		le.ended = err // what this lease holds is not its to give back any more
		return err
	}
	if err == nil {
		le.countAdjusted(debits, out.At)
		le.tellAdjusted(ctx, debits)
		le.nearAdjusted(ctx, debits, out)
	}
	le.apply(debits, err == nil)
	return err
}

// changes returns the debits of a settle, with signed amounts, for those of the lease's charges that change.
func (le *Lease) changes(delta Tokens) ([]store.Debit, error) {
	for name, n := range delta {
		if n > MaxTokens || n < -MaxTokens {
			return nil, configErr("tokens."+name, "must be between -%d and %d", int64(MaxTokens), int64(MaxTokens))
		}
		if !le.degraded.free() && !le.has(name) {
			return nil, le.unknown(name)
		}
	}
	var debits []store.Debit
	for i := range le.debits {
		d := store.Debit{Bucket: le.debits[i].Bucket, Epoch: le.debits[i].Epoch, Ref: le.debits[i].Ref}
		for _, c := range le.debits[i].Charges {
			n := delta[c.Limit.Name] * 1000
			switch {
			case n == 0 || c.Shadow: // was left out; see leaveOut
				continue
			case c.Amount+n < 0:
				return nil, configErr("tokens."+c.Limit.Name, "cannot give back %d, the lease holds %d", -n/1000, c.Amount/1000)
			case n > 0 && c.Amount > bucket.MaxLevel-n:
				return nil, configErr("tokens."+c.Limit.Name, "would carry what the lease holds out of range")
			}
			d.Charges = append(d.Charges, store.Charge{Limit: c.Limit, Amount: n})
		}
		if len(d.Charges) > 0 {
			debits = append(debits, d)
		}
	}
	return debits, nil
}

// apply records what a settle changed: additions only when they are known to have been counted, returns always.
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

// Commit ends the lease: what it holds is spent. It does no I/O. Committing twice is fine; after a rollback it is
// [ErrRolledBack].
func (le *Lease) Commit(context.Context) error {
	le.mu.Lock()
	defer le.mu.Unlock()
	if errors.Is(le.ended, ErrRolledBack) {
		return le.ended
	}
	le.ended = ErrCommitted
	return nil
}

// Rollback ends the lease and gives back all that it holds, exactly once. After a commit it returns [ErrCommitted]
// and gives nothing back, so that it can be deferred; after a rollback, [ErrRolledBack].
//
// It is carried out although ctx may have ended. When the store's answer is lost, so may be the tokens: a return is
// never repeated.
func (le *Lease) Rollback(ctx context.Context) error {
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.ended != nil {
		return le.ended
	}
	le.ended = ErrRolledBack
	var debits []store.Debit
	for i := range le.debits {
		d := store.Debit{Bucket: le.debits[i].Bucket, Epoch: le.debits[i].Epoch, Ref: le.debits[i].Ref}
		for _, c := range le.debits[i].Charges {
			if c.Amount > 0 {
				d.Charges = append(d.Charges, store.Charge{Limit: c.Limit, Amount: -c.Amount})
			}
		}
		if len(d.Charges) > 0 {
			debits = append(debits, d)
		}
	}
	if le.degraded.free() || len(debits) == 0 && le.held == nil {
		return nil
	}
	_, err := le.settle(ctx, debits)
	if heldElsewhere(err) {
		le.ended = err
	}
	if err == nil {
		le.tellAdjusted(ctx, debits)
	}
	return err
}

// settle changes what the lease holds.
func (le *Lease) settle(ctx context.Context, debits []store.Debit) (store.Outcome, error) {
	if le.degraded != nil {
		return le.settleLocal(debits), nil
	}
	s := store.Settle{Debits: debits}
	if le.held != nil {
		s.ID, s.Expires = le.held.change(), le.held.expires
	}
	out, err := le.lim.settle(ctx, s)
	if err == nil && le.held != nil {
		// Only now: as long as the change may not have been made, the same number keeps whoever holds the lease as
		// it was before, and whoever goes on from here, from both giving it back.
		le.held.seq++
	}
	if err == nil {
		le.lim.core.local.warm(debits, &out)
	}
	if le.plan.space != nil {
		le.plan.space.queues.returned(debits)
	}
	return out, err
}

// settle changes buckets within the store's time, whatever becomes of the caller.
func (l *Limiter) settle(ctx context.Context, s store.Settle) (store.Outcome, error) {
	c := l.core
	ctx = context.WithoutCancel(ctx)
	bounded := c.bound(ctx)
	defer bounded.end()
	began := time.Now()
	out, err := c.store.Settle(bounded, s)
	c.observeCall(ctx, "settle", began, err)
	if errors.Is(err, store.ErrOverflow) {
		err = configErr("tokens", "%v", err)
	}
	return out, err
}

// Do runs f with a lease: it commits when f returns nil, and rolls back when f returns an error or panics. What
// Acquire refuses, Do returns without running f.
func (l *Limiter) Do(ctx context.Context, req Request, f func(context.Context, *Lease) error) error {
	lease, err := l.Acquire(ctx, req)
	if err != nil {
		return err
	}
	defer lease.Rollback(ctx) //nolint:errcheck // after the commit it does nothing, after f's error that one counts
	if err := f(ctx, lease); err != nil {
		return err
	}
	if err := lease.Commit(ctx); err != nil && !errors.Is(err, ErrRolledBack) {
		return err
	}
	return nil
}
