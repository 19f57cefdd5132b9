package weir

import (
	"context"
	"iter"
	"time"

	"github.com/weirlimits/weir/store"
)

// Observer is told what happens, for metrics and traces. Its functions are called on the caller's goroutine, must be
// fast and safe for concurrent use, and may be nil.
type Observer struct {
	// Decided is called for each decision, also of a degraded one.
	Decided func(ctx context.Context, e DecidedEvent)
	// Called is called after each call of the store, with how long it took.
	Called func(ctx context.Context, e CalledEvent)
	// Adjusted is called when an adjustment or a rollback of a lease was made.
	Adjusted func(ctx context.Context, e AdjustedEvent)
	// WouldRefuse is called for each limit in shadow that would have refused a request, had it been enforced. Allow
	// asks the store for more where it is set and a limit is in shadow.
	WouldRefuse func(ctx context.Context, e WouldRefuseEvent)
	// NearLimit is called when so much of a limit is used as [Limiter.SetNearLimit] says, and for the first refusal of an
	// hour; also of parents' limits, and of those in shadow, which do not refuse. Each event is told once per window,
	// as far as this process remembers; see [CacheStats]. Allow asks the store for more where it is set.
	NearLimit func(ctx context.Context, e NearLimitEvent)
	// Unreadable is called when a record of the catalog was read that cannot be used. What was known before serves on,
	// and it is read again within seconds.
	Unreadable func(ctx context.Context, e UnreadableEvent)
	// Breaker is called when the limiter stops asking a store that does not answer, when it asks it once to find out
	// whether it does again, and when it asks it as usual again. It must not call the limiter.
	Breaker func(ctx context.Context, e BreakerEvent)
}

// JoinObservers returns an observer that tells all of obs, in their order. Those that are nil count for nothing, and a
// function that none of them has stays nil, so that nothing is done for it. Functions that are set later do not count.
func JoinObservers(obs ...*Observer) *Observer {
	return &Observer{
		Decided:     join(obs, func(o *Observer) func(context.Context, DecidedEvent) { return o.Decided }),
		Called:      join(obs, func(o *Observer) func(context.Context, CalledEvent) { return o.Called }),
		Adjusted:    join(obs, func(o *Observer) func(context.Context, AdjustedEvent) { return o.Adjusted }),
		WouldRefuse: join(obs, func(o *Observer) func(context.Context, WouldRefuseEvent) { return o.WouldRefuse }),
		NearLimit:   join(obs, func(o *Observer) func(context.Context, NearLimitEvent) { return o.NearLimit }),
		Unreadable:  join(obs, func(o *Observer) func(context.Context, UnreadableEvent) { return o.Unreadable }),
		Breaker:     join(obs, func(o *Observer) func(context.Context, BreakerEvent) { return o.Breaker }),
	}
}

// join returns a function that calls those of obs; nil if none has it.
func join[E any](obs []*Observer, of func(*Observer) func(context.Context, E)) func(context.Context, E) {
	var fs []func(context.Context, E)
	for _, o := range obs {
		if o != nil && of(o) != nil {
			fs = append(fs, of(o))
		}
	}
	switch len(fs) {
	case 0:
		return nil
	case 1:
		return fs[0]
	}
	return func(ctx context.Context, e E) {
		for _, f := range fs {
			f(ctx, e)
		}
	}
}

// DecidedEvent is one decision.
type DecidedEvent struct {
	Namespace, Entity, Resource string
	Allowed                     bool
	Degraded                    bool  // the store did not make it
	Cause                       Cause // why it did not
	Err                         error // the error that the caller got, if not allowed; nil where Allow reports a refusal
	Took                        time.Duration
	// Part is the request's place among those that [Limiter.AcquireAll] decided together; they have the same error.
	Part int

	debits *[]store.Debit // one word, and comparable
	share  *Share
}

// Debits returns what the decision debited, parents included, as [DecidedEvent.Spent] does, and of which share of the
// limits: those that it names are the cell's part. It is good until Decided returns, and is not to be changed.
func (e DecidedEvent) Debits() ([]store.Debit, Share) { return debited(e.debits, e.share) }

// Spent returns the tokens that the decision debited, by the name of the limit: nothing unless it was allowed, by the
// store or, of a local share, without. What parents are charged besides is not counted again. Limits in shadow may be missing. It is good until Decided returns.
func (e DecidedEvent) Spent() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) { spent(e.debits, yield) }
}

// AdjustedEvent is a change of what a lease holds: an adjustment, or a rollback.
type AdjustedEvent struct {
	Namespace, Entity, Resource string

	debits *[]store.Debit // one word, and comparable
	share  *Share
}

// Debits returns what was debited or, negative, given back, as [DecidedEvent.Debits] does; of a lease that was resumed the
// share is not known, and zero. It is good until Adjusted returns, and is not to be changed.
func (e AdjustedEvent) Debits() ([]store.Debit, Share) { return debited(e.debits, e.share) }

func debited(from *[]store.Debit, of *Share) ([]store.Debit, Share) {
	if from == nil {
		return nil, whole
	}
	return *from, *of
}

// Spent returns the tokens that were debited or, negative, given back, as [DecidedEvent.Spent] does. It is good until
// Adjusted returns.
func (e AdjustedEvent) Spent() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) { spent(e.debits, yield) }
}

// spent tells each limit's name once, of the first bucket that has it.
func spent(from *[]store.Debit, yield func(string, int64) bool) {
	if from == nil {
		return
	}
	debits := *from
	for i := range debits {
		for _, c := range debits[i].Charges {
			if c.Amount != 0 && !c.Shadow && !charges(debits[:i], c.Limit.Name) && !yield(c.Limit.Name, c.Amount/1000) {
				return
			}
		}
	}
}

// charges reports whether a debit charges a limit of the name.
func charges(debits []store.Debit, limit string) bool {
	for i := range debits {
		for _, c := range debits[i].Charges {
			if c.Limit.Name == limit && c.Amount != 0 {
				return true
			}
		}
	}
	return false
}

// WouldRefuseEvent is a request that a limit in shadow would have refused.
type WouldRefuseEvent struct {
	Namespace, Entity, Resource string // of the limit: the entity may be a parent of who asked
	Limit                       string
	Requested                   int64 // tokens
	Allowed                     bool  // it was admitted: no other limit refused it
}

// UnreadableEvent is a record that cannot be used. Err is a [*StoreError] that names it.
type UnreadableEvent struct{ Err error }

// BreakerEvent is a change of whether the store is asked.
type BreakerEvent struct{ State string } // "closed": it is, "open": not, "half-open": once

// CalledEvent is one call of the store.
type CalledEvent struct {
	Op   string // "take", "settle", "peek", "get", "commit", "list", "buckets", "forget"
	Took time.Duration
	Err  error
}

func (c *core) observeCall(ctx context.Context, op string, began time.Time, err error) {
	if f := c.cfg.Observer.Called; f != nil {
		f(ctx, CalledEvent{Op: op, Took: time.Since(began), Err: err})
	}
}

// beginning is when a decision begins, if somebody is to be told how long it takes.
func (c *core) beginning() (began time.Time) {
	if c.cfg.Observer.Decided != nil {
		began = time.Now()
	}
	return began
}

func (l *Limiter) observeDecision(ctx context.Context, began time.Time, req *Request, part int, lease *Lease, err error) {
	if f := l.core.cfg.Observer.Decided; f != nil {
		e := DecidedEvent{
			Namespace: l.name, Entity: req.Entity, Resource: req.Resource,
			Allowed: err == nil, Err: err, Took: time.Since(began), Part: part,
		}
		if lease != nil {
			if e.Degraded, e.Cause = lease.degraded != nil, lease.degraded.causeOf(); !lease.degraded.free() {
				e.debits, e.share = &lease.debits, &lease.plan.share
			}
		}
		if over, ok := err.(*ExceededError); ok { //nolint:errorlint // as Acquire returns it
			e.Degraded, e.Cause = over.Degraded, over.cause
		}
		f(ctx, e)
	}
}

// observeAllowed tells of a decision of Allow. The plan is nil if the store did not make it.
func (l *Limiter) observeAllowed(ctx context.Context, began time.Time, entity, resource string, p *plan, allowed bool, cause Cause, err error) {
	e := DecidedEvent{
		Namespace: l.name, Entity: entity, Resource: resource,
		Allowed: allowed, Degraded: cause != CauseNone, Cause: cause, Err: err, Took: time.Since(began),
	}
	if p != nil && allowed {
		e.debits, e.share = &p.allow, &p.share
	}
	l.core.cfg.Observer.Decided(ctx, e)
}

func (le *Lease) tellAdjusted(ctx context.Context, debits []store.Debit) {
	if f := le.lim.core.cfg.Observer.Adjusted; f != nil && len(debits) > 0 {
		told := debits // or the parameter would be on the heap, told or not
		f(ctx, AdjustedEvent{le.lim.name, le.plan.entity, le.plan.resource, &told, &le.plan.share})
	}
}
