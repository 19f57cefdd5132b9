package weir

import (
	"context"
	"iter"
	"time"

	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/store"
)

// Observer receives events, for metrics and traces. Its functions are called on the caller's goroutine, so they must be
// fast and safe for concurrent use. Any of them may be nil.
type Observer struct {
	// Decided is called for each decision, including degraded ones.
	Decided func(ctx context.Context, e DecidedEvent)
	// Called is called after each call to the store, with its duration.
	Called func(ctx context.Context, e CalledEvent)
	// Adjusted is called after a lease was adjusted or rolled back.
	Adjusted func(ctx context.Context, e AdjustedEvent)
	// WouldRefuse is called for each limit in shadow that would have refused a request had it been enforced. If it is
	// set and a limit is in shadow, Allow also reads the levels of the limits.
	WouldRefuse func(ctx context.Context, e WouldRefuseEvent)
	// NearLimit is called when the used part of a limit reaches a threshold (see admin.Limits.SetNearLimit), and for
	// the first refusal in an hour. It is also called for parents' limits, and for limits in shadow, which do not
	// refuse. If it is set, Allow also reads the levels of the limits.
	NearLimit func(ctx context.Context, e NearLimitEvent)
	// Unreadable is called when the limiter reads a catalog record that it cannot use. The last known contents stay in
	// use, and the record is read again within seconds.
	Unreadable func(ctx context.Context, e UnreadableEvent)
	// Breaker is called when the limiter stops calling a store that does not answer, when it probes the store with one
	// call, and when it resumes normal calls. It must not call the limiter.
	Breaker func(ctx context.Context, e BreakerEvent)
}

// JoinObservers returns an observer that passes events to all of obs, in order, ignoring nil ones. A function that none
// of them has stays nil, so it costs nothing. Functions that are set later are not called.
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

// DecidedEvent describes one decision.
type DecidedEvent struct {
	Namespace, Entity, Resource string
	Allowed                     bool
	Degraded                    bool  // the store did not make it
	Cause                       Cause // why the store did not make it
	Err                         error // the error that the caller got if not allowed; nil if Allow reports a refusal
	Took                        time.Duration
	// Index is the position of the request in its call of [Limiter.AcquireAll], from 0. All requests of a call have the
	// same error.
	Index int

	debits *[]store.Debit // one word, and comparable
}

// Spent returns the tokens that the decision debited, by limit name. It is empty unless the request was allowed by the
// store or by a local share. Charges to parents are not counted again. Limits in shadow may be missing. The result is
// valid until Decided returns.
func (e DecidedEvent) Spent() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) { spent(e.debits, yield) }
}

// AdjustedEvent describes a change of what a lease holds: an adjustment or a rollback.
type AdjustedEvent struct {
	Namespace, Entity, Resource string

	debits *[]store.Debit // one word, and comparable
}

// Spent returns the tokens that were debited or, if negative, given back, as [DecidedEvent.Spent] does. The result is
// valid until Adjusted returns.
func (e AdjustedEvent) Spent() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) { spent(e.debits, yield) }
}

// spent yields each limit's name once, with the amount from the first bucket that has it.
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

// charges reports whether a debit charges a limit of that name.
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

// NearLimitEvent reports that an entity has used much of a limit, or that the limit refused it.
//
// An event is sent once per window, and only again in a later window after usage was below the threshold, as far as
// this process has seen. The same event has the same ID in every process, so a receiver can recognize repetitions from
// a fleet.
type NearLimitEvent struct {
	ID                          string // 32 hexadecimal digits
	Namespace, Entity, Resource string // of the limit: the entity may be a parent of the one in the request
	Limit                       string
	Override                    bool // the limit came with the request
	Shadow                      bool // the limit does not refuse this entity; see [Enforce]
	Kind                        NearLimitKind
	// Percent is the threshold that was reached; for a refusal, the used percentage of the burst, rounded down.
	Percent int
	Used    int64 // tokens used of the burst, rounded up; more than Of in debt
	Of      int64 // the burst in tokens
	// WindowStart and WindowLength are the window in which the event is sent once: for a threshold the limit's period,
	// at least a minute; for a refusal an hour. Windows are aligned to 2024-01-01T00:00:00Z, so to minutes, hours and
	// days in UTC.
	WindowStart  time.Time
	WindowLength time.Duration
	At           time.Time // the store's time
}

// NearLimitKind is the kind of a [NearLimitEvent].
type NearLimitKind string

// The kinds of NearLimitEvent.
const (
	NearThreshold NearLimitKind = meter.Threshold // usage of the burst has reached a threshold
	NearRefused   NearLimitKind = meter.Refusal   // the first refusal in an hour
)

// WouldRefuseEvent describes a request that a limit in shadow would have refused.
type WouldRefuseEvent struct {
	Namespace, Entity, Resource string // of the limit: the entity may be a parent of the one in the request
	Limit                       string
	Requested                   int64 // tokens
	Allowed                     bool  // the request was admitted: no other limit refused it
}

// UnreadableEvent reports a record that cannot be used. Err is a [*StoreError] that names it.
type UnreadableEvent struct{ Err error }

// BreakerEvent reports a change in whether the store is called.
type BreakerEvent struct{ State string } // "closed": it is; "open": it is not; "half-open": one probe

// CalledEvent describes one call to the store.
type CalledEvent struct {
	Op   string // "take", "settle", "peek", "get", "commit", "list", "buckets", "forget", "usage", "count"
	Took time.Duration
	Err  error
}
