// Package store defines the interface between weir and its stores: memory, a file, DynamoDB, Redis.
//
// A driver makes each decision atomically, in its own way: there is no get, put or compare-and-set on buckets.
// Everything above this interface only prepares a decision and records its result. Every driver must pass the
// conformance suite in package storetest, unchanged.
//
// Amounts and levels are int64 millitokens. Levels follow the arithmetic of the token clock (see
// docs/format/token-clock.md): by time t, a rate has issued floor((t - 2024-01-01T00:00:00Z) * Amount / Period)
// millitokens, and a quota Amount for each window begun. A bucket's level is the clock reading up to which they are
// spent.
//
// The interface may change with the product; it is not covered by semantic versioning.
package store

import (
	"cmp"
	"context"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/calendar"
)

// Store decides over buckets and keeps the catalog. All methods may be called concurrently, and all respect the
// deadline of their context. A refusal is an [Outcome]; errors report the caller's mistakes and failures of the store.
type Store interface {
	// Take decides all debits or none: in one atomic step if the store can, otherwise so that a failure in between can
	// only leave tokens debited, never admit them twice. It does not read before it writes. A refused take
	// leaves nothing debited, except what cannot be given back safely where several buckets take several steps.
	//
	// Errors: [ErrStaleLimits], also as a [*PhaseError], [ErrTooManyOverrides], [ErrTooManyBuckets], [ErrOverflow],
	// [ErrDuplicateBucket], [*BoundError], [ErrClosed], or an [*Error]. After an error the tokens may be spent; they
	// are never handed out twice.
	Take(ctx context.Context, take Take) (Outcome, error)

	// Settle gives tokens back, or debits them whether they fit or not. With an ID, it applies at most once across all
	// processes on the store: it returns [ErrSettled] if it was applied before, and [ErrExpired] once Expires has
	// passed. A settle whose outcome is unknown must not be repeated without an ID. If other processes write in
	// between, its charges may take effect one by one, at times while the call lasts.
	Settle(ctx context.Context, settle Settle) (Outcome, error)

	// Credit adds tokens to a balance, once for each ID, across all processes on the store and for ever: repeated, it
	// changes nothing, and reports the balance. So a credit whose outcome is unknown can be repeated. It creates the
	// bucket, and the limit in it. The ID and the level change in one step. Once Credit has returned without an error,
	// no crash takes either back, in any mode of a store on disk or DynamoDB; a server of Redis may lose both together,
	// as it is configured.
	//
	// A bucket that holds a balance is never full, whatever the time. A store may forget it only where the balance is
	// exactly 0, and then a return to it counts in full, as to any balance, and creates it again.
	//
	// Errors: [*CreditError], [*KindError], [ErrOverflow], [ErrTooManyBuckets], [ErrInvalid], [*BoundError],
	// [ErrClosed], or an [*Error].
	Credit(ctx context.Context, credit Credit) (Credited, error)

	// ForgetCredits forgets the IDs of the credits to a balance, which leaves the balance as it is: each ID is new
	// again. It is for balances of namespaces whose id is never used again.
	ForgetCredits(ctx context.Context, bucket Bucket, limit string) error

	// Peek returns the state of buckets, in the order requested, and writes nothing. Each state is as it was at some
	// moment during the call, not all at the same one. A bucket that does not exist has ID 0 and no limits: it is full.
	Peek(ctx context.Context, buckets ...Bucket) (Snapshot, error)

	// Buckets lists live buckets, ordered by entity, then resource.
	Buckets(ctx context.Context, query BucketQuery) (BucketPage, error)

	// Forget removes buckets, whatever they owe: each is full again. It is for operators, and for deleted entities. A
	// balance that is not 0 stays, as do the IDs of credits, and slots that are held.
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
	Resource  string // possibly an aggregate; see [Aggregate]
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
	Amount int64           // millitokens issued per Period, evenly, or at the start of each Window
	Period time.Duration   // of a rate: at most 366 days
	Burst  int64           // millitokens that may be outstanding at once
	Window calendar.Window `json:",omitzero"` // of a quota
	// Heal is how long slots count at least without a renewal, after which they come back by themselves. A limit
	// without Period, Window and Heal is a balance: see [Balance].
	Heal time.Duration `json:",omitzero"`
	// Override is set if a request brought the limit, which is then identified by name and parameters, and kept
	// alongside the bucket's own limits.
	Override bool
}

// Params returns the limit's parameters for the arithmetic.
func (l *Limit) Params() clock.Params {
	return clock.Params{
		Amount: l.Amount, Period: int64(l.Period), Burst: l.Burst, Window: l.Window, Heal: int64(l.Heal),
	}
}

// Charge is the amount that a debit takes from one limit.
type Charge struct {
	Limit *Limit
	// Amount is in millitokens. In a Take it is at least 0; an amount of 0 is refused while the limit is in debt. In a
	// Settle, a positive amount is debited whether it fits or not, and a negative one is given back.
	Amount int64
	// Force debits the amount without ever refusing. Only for a Take.
	Force bool
	// MaxDebt, if it is positive, bounds what a Settle debits: at most so much that the limit ends up this many
	// millitokens in debt. What that leaves out is [Level.Left].
	MaxDebt int64
	// Strict gives back less in a Settle: the part that the limit has not issued again since [Settle.Since]. It gives
	// back nothing if the limit, or the epoch of its bucket's limits, is another one than that of the debit. All
	// charges on a quota are strict; drivers use [Charge.StrictReturns].
	Strict bool
	// Shadow never refuses. If the take is allowed, the amount is debited if it fits and left out if it does not; the
	// charge's [Level] shows which. Only for a Take, and not together with Force.
	Shadow bool
	// Hold is what a charge of a Settle on a limit of slots gives back, if Amount is negative, or renews, if it is
	// positive. Without it, a positive amount is taken whether it is free or not, and a negative one changes nothing.
	Hold *Hold
}

// StrictReturns reports whether a return is strict: because Strict is set, or the limit is a quota, to which a return
// after its window gives nothing.
func (c *Charge) StrictReturns() bool { return c.Strict || c.Limit.Params().Kind() == clock.Quota }

// Debit is the charges to one bucket.
type Debit struct {
	// Charges name every limit that applies, including those that are debited 0. In a Take, all names other than those
	// of overrides are distinct, and there are at most [MaxLimits] of them, and [MaxOverrides] overrides.
	Charges []Charge
	// Epoch is the namespace's epoch that [Catalog.Get] returned with the records from which the limits were made. If
	// it is newer than the bucket's epoch, the bucket follows the limits in the charges. If it is older and the limits
	// differ, the result is [ErrStaleLimits].
	Epoch  uint64
	Phase  *Phase // when the limits hold; nil: always
	Bucket Bucket
}

// Take is a decision to make: all debits or none. No bucket may appear twice. It has at most [MaxCharges] charges.
type Take struct {
	Debits []Debit
}

// Settle is a change that must not be refused. With an ID, it may have no debits: it then only takes the ID. It has at
// most [MaxCharges] charges.
type Settle struct {
	Debits  []Debit
	ID      string    // applied at most once across processes; "" leaves that to the caller
	Expires time.Time // with an ID: how long it may be applied, and is remembered
	// Since is when the tokens to be given back were debited at the earliest, for strict charges. The zero time means
	// that it is not known: they then give back nothing.
	Since time.Time
	// Forgive gives back no more than what each limit is in debt. All amounts must be negative.
	Forgive bool
}

// Outcome is what the store decided, and the state that it saw afterwards.
type Outcome struct {
	Allowed bool
	At      time.Time // the store's time of the decision
	// First is when the first of several buckets was decided, if they were decided one by one; otherwise zero.
	First time.Time
	// Levels are the states of the charges after the decision, in the order of the debits and their charges. What a
	// bucket does not have is full. A take of more than a burst, which never fits, may return the levels that were seen
	// last; so may a refused take for buckets other than the one that refused it, if the store decides buckets in
	// several steps.
	Levels []Level
}

// Level is the state of a charge after a decision: a reading of the limit's clock, which the bucket has reached.
type Level struct {
	Limit *Limit // as the bucket has it
	Level int64  // of a limit of slots: how many are held
	// Refused is set if the take was refused because of this charge, possibly among others. For a shadow charge, it is
	// set if the charge did not fit, whether the take was allowed or not. For a renewal, it is set if the hold does not
	// count any more.
	Refused bool
	Left    int64 // of a settle: what [Charge.MaxDebt] left out
	Hold    *Hold // what was taken of a limit of slots, or renewed
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
// amounts charged (forced or not) and given back; but each item of a split bucket may start again from 0. The Level of
// a limit of slots is how many were held at the time of the snapshot or page. Of a balance, Debited - Returned - Level
// is what it had when the bucket was born, and what was credited since.
type LimitState struct {
	Limit    *Limit
	Level    int64
	Debited  int64
	Returned int64
	// NextEnd is when the first of the slots that are held come back unless they are renewed, by the store's time. It
	// is zero if none is held, and for other limits.
	NextEnd time.Time
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
