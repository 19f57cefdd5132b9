package weir

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/parts/queue"
)

// resolveKnown finds the item's policy, without calling a store that does not answer. An error of the lookup is the
// item's; an error is returned if the item's turn to look did not come.
func (it *item) resolveKnown(ctx context.Context, l *Limiter) error {
	if l.outage.Down() {
		if it.policy = l.policies.Known(it.req.Entity, it.req.Resource, it.req.usesOwn()); it.policy != nil {
			return nil
		}
	}
	within, end, err := parts.Of(l).Begin(ctx, 1)
	if err != nil {
		return err
	}
	defer end()
	it.policy, it.failed = l.policyOf(within, &it.req)
	return nil
}

// waiter is a call of Wait.
type waiter struct {
	*queue.Waiter
	lim *Limiter
}

// try waits for the waiter's turn if others are ahead of it; else it makes the request and, if a limit refuses,
// waits until it may pass. It is done if the request was admitted.
func (w waiter) try(ctx context.Context, req Request) (lease *Lease, done bool, err error) {
	var retry <-chan time.Time
	if !w.lim.queues.Behind(w.Waiter) {
		lease, err := w.lim.Acquire(ctx, req)
		var over *ExceededError
		if !errors.As(err, &over) {
			return lease, true, err
		}
		if !w.join(over) {
			return nil, false, nil // an earlier waiter is in that queue
		}
		// Limits may be raised, or tokens given back, elsewhere.
		wait := min(over.RetryAfter, max(w.lim.cfg.CacheTTL, time.Second))
		if slices.ContainsFunc(over.Statuses, func(s LimitStatus) bool { return s.Estimated }) {
			wait = min(wait, max(over.RetryAfter/8, 100*time.Millisecond), time.Second)
		}
		timer := time.NewTimer(wait)
		defer timer.Stop()
		retry = timer.C // on its turn, the reason for the refusal may be gone
	}
	if err := w.tooLate(ctx); err != nil {
		return nil, false, err
	}
	select {
	case <-w.Turn:
	case <-retry:
	case <-ctx.Done():
		return nil, false, fmt.Errorf("wait: %w", ctx.Err())
	}
	return nil, false, nil
}

// join puts a refused waiter in the queue of the limits with the longest wait, and reports whether it is first.
func (w waiter) join(over *ExceededError) bool {
	last := over.Statuses[0]
	for _, s := range over.Statuses {
		if s.Refused && (!last.Refused || s.RetryAfter > last.RetryAfter) {
			last = s
		}
	}
	var seen []LimitStatus
	for _, s := range over.Statuses {
		if s.Entity == last.Entity && s.Resource == last.Resource {
			seen = append(seen, s)
		}
	}
	return w.lim.queues.Refused(w.Waiter, last.Entity, last.Resource, seen)
}

// tooLate returns an error if the context ends before the waiter and all ahead of it in its queue can be served.
func (w waiter) tooLate(ctx context.Context) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	seen, at, own, need := w.lim.queues.Ahead(w.Waiter)
	if seen == nil {
		return nil
	}
	var over ExceededError
	for _, s := range *seen {
		if s.Shadow {
			continue
		}
		s.Requested = own[s.Limit]
		if s.RetryAfter = s.waitFor(need[s.Limit]); s.RetryAfter < math.MaxInt64 {
			s.RetryAfter = max(0, s.RetryAfter-time.Since(at))
		}
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
