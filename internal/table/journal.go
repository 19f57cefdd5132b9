package table

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/bucket"
	"github.com/weirlimits/weir/store"
)

// Journal makes buckets durable. Its methods are called with the buckets locked and must not block.
type Journal interface {
	// Changed is told of a bucket after a change; its ticket, if not nil, is to be waited for before answering.
	// Of a forgotten bucket it is told before its slots go.
	Changed(b *Bucket, c Change) Ticket
	// Once is told that a settle's id was taken, after its buckets have changed; some of them may be nil.
	Once(id string, expires time.Time, bs []*Bucket) Ticket
	// Evicted is told of a full bucket that is about to die.
	Evicted(b *Bucket)
}

// Change is what happened to a bucket.
type Change uint8

// The changes.
const (
	Debited   Change = iota // a take
	Settled                 // a settle, with an id or without
	Undone                  // a take whose promise was broken gave back
	Forgotten               // it is about to die
)

// Ticket is a promise of durability. Tickets are pointers.
type Ticket interface {
	// Wait returns once the promise is kept, broken, or the context has ended.
	Wait(ctx context.Context) error
}

// Tickets are what a change has to wait for before it is answered.
type Tickets struct{ w *waiting }

// waiting is an answer that waits.
type waiting struct {
	first Ticket
	more  []Ticket
	// What a take changed and when, for Undo, and what it left out.
	at   int64
	bs   []*Bucket
	left []*store.Charge
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

// remember keeps what Undo needs, if the answer has to wait.
func (ts *Tickets) remember(bs []*Bucket, op *operation) {
	if ts.w != nil {
		ts.w.bs, ts.w.at, ts.w.left = slices.Clone(bs), op.now, op.left
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

// Reserve is what a journal remembers of a bucket, under the bucket's lock.
type Reserve struct {
	Slots  []Reserved // by slot; nil: the record has other slots, nothing of these is durable
	Queued Ticket     // of the commit that the bucket waits for
	Flight Ticket     // of the commit that is writing Next
	At     int64      // when Next was set
	Stored bool       // there may be a record
	Dirty  bool       // the bucket is not as its record says
}

// Reserved is what is durable of a slot.
type Reserved struct {
	Bound int64 // the level up to which debits may be answered
	Next  int64 // what Bound is once Flight has landed
	Base  int64 // the level when Next was set
}

// reset is called when the set of slots changes.
func (r *Reserve) reset() {
	if r != nil {
		r.Slots, r.Flight, r.Dirty = nil, nil, true
	}
}

// uncover takes what a settle with an id gave back out of what may be answered, until its id is durable too: were the
// process to die before, the settle would be repeated.
func (r *Reserve) uncover(slot int, amount int64) {
	if r != nil && slot < len(r.Slots) {
		p := &r.Slots[slot]
		p.Bound, p.Next = bucket.Credit(p.Bound, amount), bucket.Credit(p.Next, amount)
	}
}
