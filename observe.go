package weir

import (
	"context"
	"iter"
	"time"

	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy/held"
	"github.com/weirlimits/weir/store"
)

// Observer receives events, for metrics and traces. Its functions may be called on any goroutine, often the caller's,
// so they must be fast and safe for concurrent use. Any of them may be nil.
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

// on is a function that receives an event.
type on[E any] = func(context.Context, E)

// JoinObservers returns an observer that passes events to all of obs, in order, ignoring nil ones. A function that none
// of them has stays nil, so it costs nothing. Functions that are set later are not called.
func JoinObservers(obs ...*Observer) *Observer {
	return &Observer{
		Decided:     parts.Each(obs, func(o *Observer) on[DecidedEvent] { return o.Decided }),
		Called:      parts.Each(obs, func(o *Observer) on[CalledEvent] { return o.Called }),
		Adjusted:    parts.Each(obs, func(o *Observer) on[AdjustedEvent] { return o.Adjusted }),
		WouldRefuse: parts.Each(obs, func(o *Observer) on[WouldRefuseEvent] { return o.WouldRefuse }),
		NearLimit:   parts.Each(obs, func(o *Observer) on[NearLimitEvent] { return o.NearLimit }),
		Unreadable:  parts.Each(obs, func(o *Observer) on[UnreadableEvent] { return o.Unreadable }),
		Breaker:     parts.Each(obs, func(o *Observer) on[BreakerEvent] { return o.Breaker }),
	}
}

// DecidedEvent describes one decision.
type DecidedEvent struct {
	Namespace, Entity, Resource string
	Allowed                     bool
	Degraded                    bool  // the store did not make it
	Local                       bool  // this process's share of the limits made it: never without Degraded
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
	return func(yield func(string, int64) bool) { held.Spent(e.debits, yield) }
}

// AdjustedEvent describes a change of what a lease holds: an adjustment or a rollback.
type AdjustedEvent struct {
	Namespace, Entity, Resource string

	debits *[]store.Debit // one word, and comparable
}

// Spent returns the tokens that were debited or, if negative, given back, as [DecidedEvent.Spent] does. The result is
// valid until Adjusted returns.
func (e AdjustedEvent) Spent() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) { held.Spent(e.debits, yield) }
}

// NearLimitEvent reports that an entity has used much of a limit, or that the limit refused it.
//
// An event is sent once per window, and of a rate only again in a later window after usage was below the threshold, as
// far as this process has seen. The same event has the same ID in every process, so receivers can drop repetitions.
// A balance is reported when what is left falls below a power of ten, down to 1.
type NearLimitEvent struct {
	ID                          string // 32 hexadecimal digits
	Namespace, Entity, Resource string // of the limit: the entity may be a parent of the one in the request
	Limit                       string
	Override                    bool // the limit came with the request
	Shadow                      bool // the limit does not refuse this entity; see [Enforce]
	Kind                        NearLimitKind
	Percent                     int   // the threshold, or for a refusal what is used; 0 for a balance
	Used                        int64 // tokens used of the burst, rounded up; more than Of in debt; 0 for a balance
	Of                          int64 // the burst in tokens; the power of ten that a balance fell below
	Left                        int64 // tokens, rounded down; negative in debt
	// WindowStart and WindowLength are the window in which the event is sent once: of a quota its own, of a rate its
	// period, at least a minute; for a balance or a refusal an hour. Periods and hours are aligned in UTC.
	WindowStart  time.Time
	WindowLength time.Duration
	At           time.Time // the store's time
}

// NearLimitKind is the kind of a [NearLimitEvent].
type NearLimitKind = meter.Kind

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
	Op   string // "take", "settle", "peek", "get", "commit", "list", "buckets", "forget", "credit", "usage", "count"
	Took time.Duration
	Err  error
}
