// Package store is the seam between weir and what remembers: memory, a file, DynamoDB, Redis.
//
// A driver decides atomically, in its own way: there is no get, put or compare-and-set on buckets. Everything above
// this seam only prepares a decision and remembers what came back. A driver passes the conformance suite of package
// storetest, unchanged, or it is not a driver.
//
// Amounts and levels are int64 millitokens. The arithmetic of a level is that of the token clock (see
// docs/format/token-clock.md): a limit has issued floor((t - 2024-01-01T00:00:00Z) * Amount / Period) millitokens by
// time t, and a bucket's level is the reading up to which they are spent.
//
// The interface may change with the product; it is not covered by semantic versioning.
package store

import (
	"cmp"
	"context"
	"time"
)

// Store decides over buckets and keeps the catalog. All methods may be called concurrently, and each honours the
// deadline of its context. A refusal is an [Outcome]; errors are for the caller's mistakes and the store's trouble.
type Store interface {
	// Take decides all debits or none, in one atomic step for stores that can, else so that a failure in between
	// can only leave tokens debited, never admitted twice. It never reads before it writes, and it applies no
	// debit of a take that is refused.
	//
	// Errors: [ErrStaleLimits], [ErrTooManyOverrides], [ErrTooManyBuckets], [ErrOverflow], [ErrDuplicateBucket],
	// [ErrClosed], or an [*Error]. After an error the tokens may be spent; they are never handed out twice.
	Take(ctx context.Context, take Take) (Outcome, error)

	// Settle gives back or forces, without asking whether it fits. With an ID it applies at most once, across all
	// processes on the store: [ErrSettled] when it was applied before, [ErrExpired] once Expires has passed. A
	// settle whose outcome is unknown is not to be repeated without an ID.
	Settle(ctx context.Context, settle Settle) (Outcome, error)

	// Peek returns the state of buckets, in the order asked for, and writes nothing. Each is as it was at one moment
	// of the call, not all at the same. A bucket that does not exist has ID 0 and no limits: it is full.
	Peek(ctx context.Context, buckets ...Bucket) (Snapshot, error)

	// Buckets lists live buckets by entity, then resource.
	Buckets(ctx context.Context, query BucketQuery) (BucketPage, error)

	// Forget removes buckets, whatever they owe: each is full again. For operators, and for deleted entities.
	Forget(ctx context.Context, buckets ...Bucket) error

	Catalog

	// Close ends the store: what is in flight finishes, what was promised to be durable is. It is idempotent;
	// later calls of other methods return [ErrClosed].
	Close() error
}

// Bucket names an entity's state on a resource.
type Bucket struct {
	Namespace string // the opaque id of the namespace
	Entity    string
	Resource  string
}

// String returns namespace/entity/resource, quoted where needed, for messages.
func (b Bucket) String() string {
	return quoted(b.Namespace) + "/" + quoted(b.Entity) + "/" + quoted(b.Resource)
}

// Compare orders buckets by namespace, entity, resource.
func (b Bucket) Compare(o Bucket) int {
	return cmp.Or(cmp.Compare(b.Namespace, o.Namespace), cmp.Compare(b.Entity, o.Entity), cmp.Compare(b.Resource, o.Resource))
}

// Limit is one limit of a bucket. A driver may keep the pointer that it was given; a Limit never changes.
type Limit struct {
	Name     string
	Amount   int64         // millitokens issued per Period
	Period   time.Duration // at most 366 days
	Burst    int64         // millitokens that may be outstanding at once
	Override bool          // of one request, identified by name and parameters, beside the bucket's own limits
}

// MaxOverrides is how many overriding limits that are not full a bucket holds at once.
const MaxOverrides = 16

// Charge is what a debit takes of one limit.
type Charge struct {
	Limit *Limit
	// Amount in millitokens. In a Take it is at least 0; 0 is refused while the limit is in debt. In a Settle a
	// positive amount is forced and a negative one given back.
	Amount int64
	// Force counts the amount without ever refusing. Only for a Take.
	Force bool
	// Shadow never refuses: the amount is debited if the take is allowed and it fits, and left out if it does not,
	// which the charge's [Level] says. Only for a Take, and not together with Force.
	Shadow bool
}

// Debit charges one bucket.
type Debit struct {
	// Charges name every limit that applies, also those that are debited 0. In a Take the names are distinct but
	// for overrides.
	Charges []Charge
	// Epoch is the namespace's epoch that [Catalog.Get] returned with the records from which the limits were
	// made. Where it is newer than the bucket's, the bucket follows the charges' limits; older and different,
	// [ErrStaleLimits].
	Epoch uint64
	// Ref, if not nil, is where the driver remembers the bucket from one call to the next.
	Ref    *Ref
	Bucket Bucket
}

// Take is a decision to make: all debits or none. No bucket appears twice.
type Take struct {
	Debits []Debit
	// Brief says that the levels are not wanted.
	Brief bool
}

// Settle is a change that is not to be refused. With an ID it may be without debits: it then only takes the ID.
type Settle struct {
	Debits  []Debit
	ID      string    // at most once across processes; "" leaves that to the caller
	Expires time.Time // with an ID: until when it may be applied, and is remembered
}

// Outcome is what the store decided and what it then saw.
type Outcome struct {
	Allowed bool
	At      time.Time // the store's time of the decision
	// Levels are the charges' states after the decision, in the order of the debits and their charges. A brief take
	// has none. A settle has those of the buckets and limits that it found. Of a take that asks for more than a burst,
	// which never fits, they may be those that were seen last.
	Levels []Level
}

// Level is a charge's state after a decision.
type Level struct {
	Limit *Limit // as the bucket has it
	Level int64
	// Refused says that this charge is (one of those) why the take was refused. Of a shadow charge it says that it did
	// not fit, whether the take was allowed or not.
	Refused bool
}

// State is a bucket as it was at one time.
type State struct {
	Bucket Bucket
	ID     uint64    // unique per birth; 0 for a bucket that does not exist
	At     time.Time // of the last write
	Epoch  uint64    // config epoch of its limits
	Takes  int64     // admitted since its birth; 0 where a store does not count them
	Limits []LimitState
}

// LimitState is one limit of a bucket. Debited and Returned only grow while the bucket lives, by what was charged
// (forced or not) and given back.
type LimitState struct {
	Limit    *Limit
	Level    int64
	Debited  int64
	Returned int64
}

// Snapshot is what Peek saw.
type Snapshot struct {
	At     time.Time
	States []State
}

// BucketQuery selects buckets. Empty fields select all.
type BucketQuery struct {
	Namespace string // required
	Entity    string
	Resource  string
	After     string // the cursor of the page before
	Max       int    // at most so many; 0 means 100, more than 1,000 is 1,000
}

// BucketPage is one page of buckets. Next is "" on the last.
type BucketPage struct {
	At     time.Time
	States []State
	Next   string
}

// Retired receives a bucket's last state before the store forgets it for being full, so that its counters are not
// lost. It is called without locks held.
type Retired func(State)
