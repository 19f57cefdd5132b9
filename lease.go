package weir

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/internal/parts/holds"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/held"
	"github.com/weirlimits/weir/store"
)

// Lease holds the tokens that a request has spent, until it is committed or rolled back, and slots of the limits that
// have them, until it ends in any way: see [Lease.Close]. A lease that is dropped counts as committed, and its slots
// come back by themselves. It is safe for concurrent use.
type Lease struct {
	lim      *Limiter
	ctx      context.Context //nolint:containedctx // of the request
	policy   *policy.Policy  // of a lease from a token: only its names
	degraded *degradation    // nil if the store decided

	mu      sync.Mutex
	ended   error         // ErrCommitted or ErrRolledBack; for a lease with a token also ErrSettled or ErrExpired
	debits  []store.Debit // with the amounts held now; see held.LeaveOut
	at      time.Time
	since   time.Time     // when the first of its tokens were debited; zero if that is not known
	levels  []store.Level // after the decision, by charge
	decided *Decision     // set when first needed, or on an adjustment
	token   *issuedToken  // carried by a caller outside the process
	over    held.Over     // what was used, but not debited
	slots   holds.Lease   // that this process renews

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

// Degraded reports whether the lease was granted without the store, like [Lease.Decision], but at no cost, or goes on
// without slots while the store does not answer.
func (le *Lease) Degraded() bool { return le.degraded != nil || le.slots.Behind() }

func (le *Lease) decisionLocked() *Decision {
	if le.decided == nil {
		d := le.decision(true)
		le.decided = &d
	}
	return le.decided
}

func (le *Lease) decision(allowed bool) Decision {
	d := Decision{Allowed: allowed, At: le.at}
	d.set(le.lim, le.degraded, le.debits, le.levels, le.originOf)
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
			return origin{Source(t.Source), t.Manifest}
		}
	}
	return origin{}
}

// Adjust corrects what the lease holds, once the true cost is known: it debits positive amounts and gives negative ones
// back. It is never refused for lack of tokens: a limit may go into debt, which holds later requests back. One that
// would go further into debt than its [Limit.MaxDebt] is debited up to that, and Adjust returns a [*DebtError] after
// making the rest of the adjustment; what is given back later is first taken from what was not debited. A limit that is
// strict may give back less; see [Limit.Strict]. Adjust may name limits that the request did not. Giving back more than
// the lease has used is a [*ConfigError], and changes nothing. A limit in shadow that would have refused the request is
// left out here, too. Of a limit of slots, Adjust can give back some, but take no more.
//
// Adjust returns the balance of each limit that it changed: the entity's, then its parents'. It returns none for a
// degraded lease, because the store did not answer then; see [Lease.Degraded].
//
// Adjust runs to completion even if ctx has ended, because tokens that were used must be counted. [ErrCommitted],
// [ErrRolledBack], [ErrSettled] and [ErrExpired] report that the lease had ended, so that nothing was changed. After
// any other error, an amount to be added may or may not have been counted, and an amount given back counts as given.
func (le *Lease) Adjust(ctx context.Context, delta Tokens) ([]Balance, error) {
	le.mu.Lock()
	defer le.mu.Unlock()
	return le.adjust(ctx, delta, false)
}

// Settle is [Lease.Adjust] and [Lease.Close] in one write. It ends the lease even if the store fails.
func (le *Lease) Settle(ctx context.Context, delta Tokens) ([]Balance, error) {
	le.mu.Lock()
	defer le.mu.Unlock()
	return le.adjust(ctx, delta, true)
}

// adjust adjusts the lease. If it ends, its slots are given back, too.
func (le *Lease) adjust(ctx context.Context, delta Tokens, ends bool) ([]Balance, error) {
	if le.ended != nil {
		return nil, le.ended
	}
	le.slots.Current(le.debits)
	debits, err := le.changes(delta, ends)
	if err == nil && ends {
		le.ended = ErrCommitted
		le.slots.End(le.debits)
	}
	if err != nil || len(debits) == 0 || le.degraded.free() {
		return nil, err
	}
	le.decisionLocked() // from what was held until now
	out, err := le.settle(ctx, debits)
	if tokenUsedElsewhere(err) {
		le.ended = err // another holder has changed the lease, or it expired: nothing is left to give back
		return nil, err
	}
	if err == nil && le.over.Reduce(debits, out.Levels) {
		err = held.Left(debits, out.Levels)
	}
	over := errors.Is(err, ErrMaxDebt)
	held.Apply(le.debits, debits, err == nil || over)
	le.slots.Update(le.debits)
	if err != nil && !over {
		return nil, err
	}
	if le.degraded != nil {
		out.Levels = nil // they are not the store's
	}
	le.reportAdjusted(ctx, debits)
	le.recordAdjusted(ctx, debits, out)
	return balances(debits, &out), err
}

// changes returns the debits, with signed amounts, for those of the lease's charges that change.
func (le *Lease) changes(delta Tokens, ends bool) ([]store.Debit, error) {
	d := held.Demand{Entity: le.policy.Entity, Resource: le.policy.Resource, Tokens: delta}
	if err := d.CheckChange(le.debits, le.degraded.free()); err != nil {
		return nil, publicError(err)
	}
	debits, err := le.over.Correct(le.debits, delta, ends)
	return debits, publicError(err)
}

// Context returns the context of the request that acquired the lease. If the lease holds slots, the context also ends
// when it loses one, before anybody else can have it; the cause is then [ErrSlotLost]. It ends with the lease, too.
//
// Slots are renewed until the request's context ends, the lease is garbage, it has a token (see [Lease.Token]), or
// [Config.MaxHold] has passed. They are lost if the store does not answer for [Limit.Heal] less 4 s: with
// on_unavailable allow or local, the lease goes on, and takes them again once the store answers: see [Lease.Degraded].
func (le *Lease) Context() context.Context { return le.slots.Context(le.ctx) }

// Slots returns how many slots the lease holds, by limit name, whether it has lost them or not; nil if it holds none.
func (le *Lease) Slots() Tokens {
	le.mu.Lock()
	defer le.mu.Unlock()
	return held.Slots(le.debits)
}

// Close ends the lease: its tokens are spent, and its slots are given back. On a lease that has ended it does nothing,
// so that it can be deferred. It calls the store only if the lease holds slots, and runs to completion even if ctx has
// ended. Without the store's answer, the slots come back by themselves.
func (le *Lease) Close(ctx context.Context) error {
	if err := le.Commit(ctx); !errors.Is(err, ErrRolledBack) {
		return err
	}
	return nil
}

// Commit is [Lease.Close], but returns [ErrRolledBack] after a rollback. Committing twice is fine.
func (le *Lease) Commit(ctx context.Context) error {
	le.mu.Lock()
	defer le.mu.Unlock()
	switch {
	case le.ended == nil:
		return le.end(ctx, ErrCommitted, func(e string, c *store.Charge) int64 { return -held.Taken(e, c) })
	case errors.Is(le.ended, ErrRolledBack):
		return ErrRolledBack
	}
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
	return le.end(ctx, ErrRolledBack, func(_ string, c *store.Charge) int64 { return min(0, -held.Returnable(c)) })
}

// end ends the lease, and gives back amounts of what it has spent.
func (le *Lease) end(ctx context.Context, as error, amount func(string, *store.Charge) int64) error {
	le.ended = as
	le.slots.End(le.debits)
	debits := held.Change(le.debits, amount)
	if le.degraded.free() || len(debits) == 0 && (le.token == nil || errors.Is(as, ErrCommitted)) {
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

// settle changes what the lease holds. Of what was spent without the store, only slots can be in the store.
func (le *Lease) settle(ctx context.Context, debits []store.Debit) (out store.Outcome, err error) {
	defer le.lim.queues.Returned(debits)
	s := store.Settle{Debits: debits, Since: le.since}
	if le.degraded != nil {
		s.Debits = held.Change(debits, held.Taken)
	}
	if le.token != nil {
		s.ID, s.Expires = le.token.change(), le.token.expires
	}
	if le.degraded == nil || len(s.Debits) > 0 {
		out, err = le.lim.store.Settle(context.WithoutCancel(ctx), s)
		if err == nil && le.token != nil {
			// Only now: while it is unknown whether the change was made, keeping the number prevents both a holder of
			// the old state and one that continues from here from giving the same tokens back.
			le.token.seq++
		}
	}
	if errors.Is(err, store.ErrOverflow) {
		err = configErr("tokens", "%v", err)
	}
	switch {
	case le.degraded != nil && !tokenUsedElsewhere(err):
		out = le.lim.outage.Settle(debits, le.since, le.degraded.elsewhere)
	case err == nil:
		le.lim.outage.Warm(debits, &out)
	}
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
	if m.WantsNear() && p.Share.Den == 0 { // it has only the names
		var err error
		p, err = le.lim.policies.Resolve(context.WithoutCancel(ctx), p.Entity, p.Resource, !held.Overrides(le.debits))
		if err != nil {
			p, out.Levels = le.policy, nil // the next decision reports them
		}
	}
	d := meter.Decision{Namespace: le.lim.Namespace(), Thresholds: p.Thresholds, Debits: debits, Outcome: out}
	m.Adjusted(ctx, &d, func(b store.Bucket, l *store.Limit) bool { return !l.Override && p.InShadow(b, l.Name) })
}

// peek reads the buckets of the lease, without a write. It returns them, and how they would have decided.
func (le *Lease) peek(ctx context.Context) (d Decision, states []store.State, err error) {
	snap, levels, ends, err := held.Peek(ctx, le.lim.store, le.debits)
	le.at, le.levels = snap.At, levels
	d = le.decision(true)
	for i, end := range ends {
		d.Statuses[i].Ends += end // 0 unless it is of slots
	}
	return d, snap.States, err
}
