// Package queue orders callers that wait for tokens: first come, first served, within this process.
package queue

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
)

// Queues holds the waiters, by the place that refused them. A waiter is in one queue at a time, in order of arrival;
// only the first in a queue makes its request. S is what is known of the limits of a bucket. The zero value is ready to
// use. It is safe for concurrent use.
type Queues[S any] struct {
	some     atomic.Bool // whether anybody waits
	mu       sync.Mutex
	arrivals uint64
	by       map[place]*queue[S]
}

// place is what a queue waits for: a bucket's own limits, or overriding limits, which have separate state.
type place struct {
	bucket    store.Bucket
	overrides string
}

func placeOf(d *store.Debit) place {
	p := place{bucket: d.Bucket}
	for _, c := range d.Charges {
		if l := c.Limit; l.Override {
			p.overrides += fmt.Sprintf("%s:%d/%d%s:%d\n", l.Name, l.Amount, l.Period, l.Window, l.Burst)
		}
	}
	return p
}

type queue[S any] struct {
	waiters []*Waiter // by ticket
	seen    *S        // the state of the bucket's limits when they last refused a waiter; nil if none was
	at      time.Time // of seen
}

// Waiter is a caller that waits.
type Waiter struct {
	Turn   chan struct{} // receives when it is worth to try again
	ticket uint64
	places []place          // of its chain
	tokens map[string]int64 // by limit
	in     place            // the queue that it is in
}

// Add returns a new waiter for debits of amounts of tokens by limit. It is in no queue yet.
func (q *Queues[S]) Add(debits []store.Debit, tokens map[string]int64) *Waiter {
	w := &Waiter{tokens: tokens, Turn: make(chan struct{}, 1)}
	for i := range debits {
		w.places = append(w.places, placeOf(&debits[i]))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.arrivals++
	w.ticket = q.arrivals
	return w
}

// Behind puts the waiter in the queue of a place in its chain where an earlier waiter waits. It returns false if there
// is none.
func (q *Queues[S]) Behind(w *Waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, at := range w.places {
		if qu := q.by[at]; qu != nil && qu.waiters[0].ticket < w.ticket {
			q.move(w, at)
			return true
		}
	}
	return false
}

// Refused puts a waiter in the queue of the entity's limits on a resource that refused it, and reports whether it is
// first. seen is their state.
func (q *Queues[S]) Refused(w *Waiter, entity, resource string, seen S) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, at := range w.places {
		if at.bucket.Entity == entity && at.bucket.Resource == resource {
			q.move(w, at)
			qu := q.by[at]
			qu.seen, qu.at = &seen, time.Now()
			return qu.waiters[0] == w
		}
	}
	return true
}

// Ahead returns what was last seen of the limits that the waiter waits for, and when; nil if nothing was. It also
// returns what it needs itself, in tokens, and what all waiters of the queue up to it need, in millitokens.
func (q *Queues[S]) Ahead(w *Waiter) (seen *S, at time.Time, own, need map[string]int64) {
	seen, at, ahead := q.upTo(w)
	if seen == nil {
		return nil, at, nil, nil
	}
	need = make(map[string]int64)
	for _, o := range ahead { // without the lock: it is that of all buckets, and they may be many
		for name, n := range o.tokens {
			need[name] = min(need[name]+n*1000, 1<<62)
		}
	}
	return seen, at, w.tokens, need
}

// upTo returns what was last seen of the limits that the waiter waits for, and the waiters of its queue up to it.
func (q *Queues[S]) upTo(w *Waiter) (seen *S, at time.Time, ahead []*Waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	qu := q.by[w.in]
	if qu == nil || qu.seen == nil {
		return nil, at, nil
	}
	n, _ := qu.find(w)
	return qu.seen, qu.at, slices.Clone(qu.waiters[:n+1])
}

// find returns where the waiter is, or would be.
func (qu *queue[S]) find(w *Waiter) (at int, found bool) {
	return slices.BinarySearchFunc(qu.waiters, w, func(a, b *Waiter) int { return cmp.Compare(a.ticket, b.ticket) })
}

// Returned wakes the first waiter of each place to which tokens were given back.
func (q *Queues[S]) Returned(debits []store.Debit) {
	if !q.some.Load() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range debits {
		if qu := q.by[placeOf(&debits[i])]; qu != nil {
			qu.waiters[0].wake()
		}
	}
}

// Changed wakes the first waiter of every queue of a namespace: its limits may have changed. "" stands for all
// namespaces.
func (q *Queues[S]) Changed(namespaceID string) {
	if !q.some.Load() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for at, qu := range q.by {
		if namespaceID == "" || at.bucket.Namespace == namespaceID {
			qu.waiters[0].wake()
		}
	}
}

// Leave removes the waiter.
func (q *Queues[S]) Leave(w *Waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(w)
}

// move puts the waiter in the queue of a place. The lock is held.
func (q *Queues[S]) move(w *Waiter, to place) {
	if w.in == to {
		return
	}
	q.remove(w)
	if q.by == nil {
		q.by = make(map[place]*queue[S])
	}
	qu := q.by[to]
	if qu == nil {
		qu = &queue[S]{}
		q.by[to] = qu
	}
	q.some.Store(true)
	at, _ := qu.find(w)
	qu.waiters = slices.Insert(qu.waiters, at, w)
	w.in = to
}

// remove takes the waiter out of its queue. The lock is held.
func (q *Queues[S]) remove(w *Waiter) {
	qu := q.by[w.in]
	if qu == nil {
		return
	}
	at, _ := qu.find(w)
	qu.waiters = slices.Delete(qu.waiters, at, at+1)
	if len(qu.waiters) == 0 {
		delete(q.by, w.in)
		q.some.Store(len(q.by) > 0)
	} else if at == 0 {
		qu.waiters[0].wake()
	}
	w.in = place{}
}

func (w *Waiter) wake() {
	select {
	case w.Turn <- struct{}{}:
	default: // signaled already
	}
}
