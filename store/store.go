// Package store defines the interface between weir and its stores: memory, a file, DynamoDB, Redis.
//
// A driver makes each decision atomically, in its own way: there is no get, put or compare-and-set on buckets.
// Everything above this interface only prepares a decision and records its result. Every driver must pass the
// conformance suite in package storetest, unchanged.
//
// Amounts and levels are int64 millitokens. Levels follow the arithmetic of the token clock (see
// docs/format/token-clock.md): by time t, a limit has issued floor((t - 2024-01-01T00:00:00Z) * Amount / Period)
// millitokens, and a bucket's level is the clock reading up to which they are spent.
//
// The interface may change with the product; it is not covered by semantic versioning.
package store

import (
	"cmp"
	"context"
	"time"
)

// Store decides over buckets and keeps the catalog. All methods may be called concurrently, and all respect the
// deadline of their context. A refusal is an [Outcome]; errors report the caller's mistakes and failures of the store.
type Store interface {
	// Take decides all debits or none: in one atomic step if the store can, otherwise so that a failure in between can
	// only leave tokens debited, never admit them twice. It does not read before it writes. A refused take
	// leaves nothing debited, except what cannot be given back safely where several buckets take several steps.
	//
	// Errors: [ErrStaleLimits], [ErrTooManyOverrides], [ErrTooManyBuckets], [ErrOverflow], [ErrDuplicateBucket],
	// [ErrClosed], or an [*Error]. After an error the tokens may be spent; they are never handed out twice.
	Take(ctx context.Context, take Take) (Outcome, error)

	// Settle gives tokens back, or debits them whether they fit or not. With an ID, it applies at most once across all
	// processes on the store: it returns [ErrSettled] if it was applied before, and [ErrExpired] once Expires has
	// passed. A settle whose outcome is unknown must not be repeated without an ID.
	Settle(ctx context.Context, settle Settle) (Outcome, error)

	// Peek returns the state of buckets, in the order requested, and writes nothing. Each state is as it was at some
	// moment during the call, not all at the same one. A bucket that does not exist has ID 0 and no limits: it is full.
	Peek(ctx context.Context, buckets ...Bucket) (Snapshot, error)

	// Buckets lists live buckets, ordered by entity, then resource.
	Buckets(ctx context.Context, query BucketQuery) (BucketPage, error)

	// Forget removes buckets, whatever they owe: each is full again. It is for operators, and for deleted entities.
	Forget(ctx context.Context, buckets ...Bucket) error

	Catalog

	// Close closes the store, after completing calls in flight and making durable what must be. It is idempotent. Later
	// calls of other methods return [ErrClosed].
	Close() error
}

// Bucket identifies an entity's state on a resource.
type Bucket struct {
	Namespace string // the opaque id of the namespace
	Entity    string
	Resource  string
}

// String returns namespace/entity/resource for use in messages, quoted where needed.
func (b Bucket) String() string {
	return quoted(b.Namespace) + "/" + quoted(b.Entity) + "/" + quoted(b.Resource)
}

// Compare orders buckets by namespace, entity, resource.
func (b Bucket) Compare(o Bucket) int {
	return cmp.Or(
		cmp.Compare(b.Namespace, o.Namespace), cmp.Compare(b.Entity, o.Entity), cmp.Compare(b.Resource, o.Resource),
	)
}

// Limit is one limit of a bucket. A Limit never changes, so a driver may keep the pointer that it was given.
type Limit struct {
	Name   string
	Amount int64         // millitokens issued per Period
	Period time.Duration // at most 366 days
	Burst  int64         // millitokens that may be outstanding at once
	// Override is set if a request brought the limit, which is then identified by name and parameters, and kept
	// alongside the bucket's own limits.
	Override bool
}

// MaxOverrides is the maximum number of overriding limits that are not full in a bucket at a time.
const MaxOverrides = 16

// Charge is the amount that a debit takes from one limit.
type Charge struct {
	Limit *Limit
	// Amount is in millitokens. In a Take it is at least 0; an amount of 0 is refused while the limit is in debt. In a
	// Settle, a positive amount is debited whether it fits or not, and a negative one is given back.
	Amount int64
	// Force debits the amount without ever refusing. Only for a Take.
	Force bool
	// Shadow never refuses. If the take is allowed, the amount is debited if it fits and left out if it does not; the
	// charge's [Level] shows which. Only for a Take, and not together with Force.
	Shadow bool
}

// Debit is the charges to one bucket.
type Debit struct {
	// Charges name every limit that applies, including those that are debited 0. In a Take, all names other than those
	// of overrides are distinct.
	Charges []Charge
	// Epoch is the namespace's epoch that [Catalog.Get] returned with the records from which the limits were made. If
	// it is newer than the bucket's epoch, the bucket follows the limits in the charges. If it is older and the limits
	// differ, the result is [ErrStaleLimits].
	Epoch  uint64
	Bucket Bucket
}

// Take is a decision to make: all debits or none. No bucket may appear twice.
type Take struct {
	Debits []Debit
}

// Settle is a change that must not be refused. With an ID, it may have no debits: it then only takes the ID.
type Settle struct {
	Debits  []Debit
	ID      string    // applied at most once across processes; "" leaves that to the caller
	Expires time.Time // with an ID: how long it may be applied, and is remembered
}

// Outcome is what the store decided, and the state that it saw afterwards.
type Outcome struct {
	Allowed bool
	At      time.Time // the store's time of the decision
	// Levels are the states of the charges after the decision, in the order of the debits and their charges. A
	// settle has those of the buckets and limits that it found. A take of more than a burst, which never fits, may
	// return the levels that were seen last.
	Levels []Level
}

// Level is the state of a charge after a decision: a reading of the limit's clock, which the bucket has reached.
type Level struct {
	Limit *Limit // as the bucket has it
	Level int64
	// Refused is set if the take was refused because of this charge, possibly among others. For a shadow charge, it is
	// set if the charge did not fit, whether the take was allowed or not.
	Refused bool
}

// State is the state of a bucket at one time.
type State struct {
	Bucket Bucket
	ID     uint64    // unique per birth; 0 for a bucket that does not exist
	At     time.Time // of the last write
	Epoch  uint64    // config epoch of its limits
	Takes  int64     // admitted since its birth; 0 if the store does not count them
	Items  int       // that the store has split it into; 0 if it is not split
	Limits []LimitState
}

// LimitState is the state of one limit of a bucket. While the bucket lives, Debited and Returned only grow, by the
// amounts charged (forced or not) and given back.
type LimitState struct {
	Limit    *Limit
	Level    int64
	Debited  int64
	Returned int64
}

// Snapshot is the result of Peek.
type Snapshot struct {
	At     time.Time
	States []State
}

// BucketQuery selects buckets. Empty fields select all.
type BucketQuery struct {
	Namespace string // required
	Entity    string
	Resource  string
	After     string // the cursor of the previous page of the same query
	Max       int    // maximum number of buckets; 0 means 100, more than 1,000 means 1,000
}

// BucketPage is one page of buckets. Next is "" on the last page.
type BucketPage struct {
	At     time.Time
	States []State
	Next   string
}

// Retired receives a bucket's last state before the store forgets it because it is full, so that its counters are not
// lost. It is called without locks held.
type Retired func(State)
