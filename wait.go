package weir

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
)

// resolveKnown finds the part's policy, without calling a store that does not answer.
func (pt *part) resolveKnown(ctx context.Context, l *Limiter) (err error) {
	if l.outage.Down() {
		if p := l.policies.Known(pt.req.Entity, pt.req.Resource, pt.req.usesOwn()); p != nil {
			pt.policy = p
			return nil
		}
	}
	within, end := l.decideWithin(ctx)
	defer end()
	pt.policy, err = l.resolve(within, &pt.req)
	return err
}

// try waits for the waiter's turn if others are ahead of it; else it makes the request and, if a limit refuses,
// waits until it may pass. It is done if the request was admitted.
func (w *waiter) try(ctx context.Context, l *Limiter, req Request) (lease *Lease, done bool, err error) {
	turn, retry := l.queues.behind(w), (<-chan time.Time)(nil)
	if turn == nil {
		lease, err := l.Acquire(ctx, req)
		var over *ExceededError
		if !errors.As(err, &over) {
			return lease, true, err
		}
		if !l.queues.join(w, over) {
			return nil, false, nil // an earlier waiter is in that queue
		}
		// Limits may be raised, or tokens given back, elsewhere.
		timer := time.NewTimer(min(over.RetryAfter, max(l.cfg.CacheTTL, time.Second)))
		defer timer.Stop()
		turn, retry = w.turn, timer.C // on its turn, the reason for the refusal may be gone
	}
	if err := l.queues.tooLate(ctx, w); err != nil {
		return nil, false, err
	}
	select {
	case <-turn:
	case <-retry:
	case <-ctx.Done():
		return nil, false, fmt.Errorf("wait: %w", ctx.Err())
	}
	return nil, false, nil
}

// queues holds the waiters, by the place that refused them. A waiter is in one queue at a time, in order of
// arrival; only the first in a queue asks the store.
type queues struct {
	some     atomic.Bool // whether anybody waits
	mu       sync.Mutex
	arrivals uint64
	by       map[place]*queue
}

// place is what a queue waits for: a bucket's own limits, or overriding limits, which have separate state.
type place struct {
	bucket    store.Bucket
	overrides string
}

func placeOf(d *store.Debit) place {
	p := place{bucket: d.Bucket}
	for _, c := range d.Charges {
		if c.Limit.Override {
			p.overrides += limitOf(c.Limit).String() + "\n"
		}
	}
	return p
}

type queue struct {
	waiters []*waiter // by ticket
	// The state of the bucket's limits when they last refused a waiter.
	seen map[string]LimitStatus
	at   time.Time
}

type waiter struct {
	ticket uint64
	places []place // of its chain
	tokens Tokens
	in     place // the queue that it is in
	turn   chan struct{}
}

func (q *queues) newWaiter(debits []store.Debit, tokens Tokens) *waiter {
	w := &waiter{tokens: tokens, turn: make(chan struct{}, 1)}
	for i := range debits {
		w.places = append(w.places, placeOf(&debits[i]))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.arrivals++
	w.ticket = q.arrivals
	return w
}

// behind puts the waiter in the queue of a place in its chain where an earlier waiter waits, and returns the channel
// that signals its turn; nil if there is no such place.
func (q *queues) behind(w *waiter) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, at := range w.places {
		if qu := q.by[at]; qu != nil && qu.waiters[0].ticket < w.ticket {
			q.move(w, at)
			return w.turn
		}
	}
	return nil
}

// join puts a refused waiter in the queue of the place with the longest wait, and reports whether it is first.
func (q *queues) join(w *waiter, over *ExceededError) bool {
	last := over.Statuses[0]
	for _, s := range over.Statuses {
		if s.Refused && (!last.Refused || s.RetryAfter > last.RetryAfter) {
			last = s
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, at := range w.places {
		if at.bucket.Entity != last.Entity {
			continue
		}
		q.move(w, at)
		qu := q.by[at]
		qu.seen, qu.at = make(map[string]LimitStatus), time.Now()
		for _, s := range over.Statuses {
			if s.Entity == at.bucket.Entity {
				qu.seen[s.Limit] = s
			}
		}
		return qu.waiters[0] == w
	}
	return true
}

func (q *queues) move(w *waiter, to place) {
	if w.in == to {
		return
	}
	q.remove(w)
	if q.by == nil {
		q.by = make(map[place]*queue)
	}
	qu := q.by[to]
	if qu == nil {
		qu = &queue{}
		q.by[to] = qu
	}
	q.some.Store(true)
	at, _ := slices.BinarySearchFunc(qu.waiters, w, func(a, b *waiter) int { return int(a.ticket) - int(b.ticket) })
	qu.waiters = slices.Insert(qu.waiters, at, w)
	w.in = to
}

func (q *queues) remove(w *waiter) {
	qu := q.by[w.in]
	if qu == nil {
		return
	}
	at := slices.Index(qu.waiters, w)
	qu.waiters = slices.Delete(qu.waiters, at, at+1)
	if len(qu.waiters) == 0 {
		delete(q.by, w.in)
		q.some.Store(len(q.by) > 0)
	} else if at == 0 {
		qu.waiters[0].wake()
	}
	w.in = place{}
}

func (w *waiter) wake() {
	select {
	case w.turn <- struct{}{}:
	default: // signaled already
	}
}

// returned wakes the first waiter of each place to which tokens were given back.
func (q *queues) returned(debits []store.Debit) {
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

// changed wakes the first waiter of every queue of a namespace: its limits may have changed. "" stands for all
// namespaces.
func (q *queues) changed(namespaceID string) {
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

func (q *queues) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(w)
}

// tooLate returns an error if the context ends before the waiter and all ahead of it in its queue can be served.
func (q *queues) tooLate(ctx context.Context, w *waiter) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	qu := q.by[w.in]
	if qu == nil || qu.seen == nil {
		return nil
	}
	var over ExceededError
	for _, s := range qu.seen {
		if s.Shadow {
			continue
		}
		var need int64
		for _, o := range qu.waiters {
			need = min(need+o.tokens[s.Limit]*1000, 1<<62)
			if o == w {
				break
			}
		}
		s.Requested = w.tokens[s.Limit]
		s.RetryAfter = max(0, s.waitFor(need)-time.Since(qu.at))
		s.Refused = s.RetryAfter > 0
		over.Statuses = append(over.Statuses, s)
	}
	over.RetryAfter = longest(over.Statuses)
	if time.Now().Add(over.RetryAfter).After(deadline) {
		return &waitError{&over}
	}
	return nil
}

// waitError reports that a deadline cannot be met.
type waitError struct{ *ExceededError }

// Error names what refuses.
func (e *waitError) Error() string {
	return "wait: the deadline cannot be met: " + e.ExceededError.Error()
}

// Unwrap lets errors.Is and errors.As find both errors.
func (e *waitError) Unwrap() []error { return []error{e.ExceededError, context.DeadlineExceeded} }
