package inmem

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Journal makes buckets durable. Its methods are called with the buckets locked and must not block.
type Journal interface {
	// Changed is called after a change to a bucket. If the ticket is not nil, the caller waits for it before
	// answering. For a forgotten bucket, Changed is called before its slots are removed.
	Changed(b *Bucket, c Change) Ticket
	// Once is called when a settle's ID is recorded, after its buckets have changed; some of them may be nil.
	Once(id string, expires time.Time, bs []*Bucket) Ticket
	// Credited is called after a credit, and again when it is repeated. The ticket is of the commit that writes the
	// bucket and the credit's mark together, in every mode.
	Credited(b *Bucket, mark string, amount int64) Ticket
	// Recorded returns the amount of a credit that was written by its mark, or 0.
	Recorded(mark string) (int64, error)
	// Evicted is called before a full bucket dies.
	Evicted(b *Bucket)
}

// Change is what happened to a bucket.
type Change uint8

// The changes.
const (
	Debited   Change = iota // by a take
	Settled                 // by a settle, with or without an ID
	Undone                  // a take whose ticket failed was returned
	Forgotten               // it is about to die
)

// Ticket is a promise of durability. Tickets are pointers.
type Ticket interface {
	// Wait returns once the promise is kept or broken, or ctx is done.
	Wait(ctx context.Context) error
}

// Tickets are the tickets to wait for before answering.
type Tickets struct{ w *waiting }

// waiting is an answer that has to wait.
type waiting struct {
	first Ticket
	more  []Ticket
	// What a take changed and when, for Undo, and the charges it left out.
	at   int64
	bs   []*Bucket
	left []*store.Charge
	took []took
}

func (ts *Tickets) add(t Ticket) {
	switch {
	case t == nil:
	case ts.w == nil:
		ts.w = &waiting{first: t}
	case ts.w.first != t && !slices.Contains(ts.w.more, t):
		ts.w.more = append(ts.w.more, t)
	}
}

// remember stores what Undo needs, if the answer has to wait.
func (ts *Tickets) remember(bs []*Bucket, op *operation) {
	if ts.w != nil {
		ts.w.bs, ts.w.at, ts.w.left, ts.w.took = slices.Clone(bs), op.now, op.left, op.took
	}
}

// None reports whether there is nothing to wait for.
func (ts Tickets) None() bool { return ts.w == nil }

// Wait waits for all tickets and returns the first error.
func (ts Tickets) Wait(ctx context.Context) error {
	if ts.w == nil {
		return nil
	}
	err := ts.w.first.Wait(ctx)
	for _, t := range ts.w.more {
		err = cmp.Or(err, t.Wait(ctx))
	}
	return err
}

// Reserve is what of a bucket is durable, guarded by the bucket's lock.
type Reserve struct {
	Slots  []Reserved // by slot; nil: the bucket was loaded, or the record has other slots: nothing counts as durable
	Queued Ticket     // of the commit that the bucket waits for
	Flight Ticket     // of the commit that is writing Next
	At     int64      // when Next was set
}

// Reserved is the durable state of a slot.
type Reserved struct {
	Bound int64 // the level up to which debits may be answered
	Next  int64 // the value of Bound once Flight has landed
	Base  int64 // the level when Next was set
}

// reset is called when the set of slots changes.
func (r *Reserve) reset() {
	if r != nil {
		r.Slots, r.Flight = nil, nil
	}
}

// uncover excludes tokens returned by a settle with an ID from what may be answered, until the ID is durable, too.
// Otherwise, if the process died before that, the settle would be repeated.
func (r *Reserve) uncover(slot int, amount int64) {
	if r != nil && slot < len(r.Slots) {
		p := &r.Slots[slot]
		p.Bound, p.Next = clock.Credit(p.Bound, amount), clock.Credit(p.Next, amount)
	}
}
