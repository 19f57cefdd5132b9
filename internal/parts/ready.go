package parts

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
)

const (
	// A store refuses writes if at least refusals takes have failed in a row, of at least refusedKeys entities, over at
	// least refusedFor. Failures that are further apart than rowGap are not in a row.
	refusals, refusedKeys = 10, 3
	refusedFor, rowGap    = 2 * time.Second, time.Minute
	// tryAgain is how long after the last failure it is no longer known whether the store still refuses writes: only
	// requests can show it, and a server that is not ready may get none.
	tryAgain = 10 * time.Second
)

// Ready is whether a limiter can decide, as far as its latest takes show. Nothing is written to find out. The zero
// value is ready.
type Ready struct {
	failing atomic.Bool // some take has failed since the last success

	mu          sync.Mutex
	row         int
	keys        []store.Bucket // up to refusedKeys, of different entities
	first, last time.Time
}

// Refused reports whether the store refuses writes: ten or more takes in a row, of three or more entities, over two
// seconds or longer, have failed with errors of the whole store. Ten seconds after the last of them, it is false until
// one more fails.
func (r *Ready) Refused() bool {
	if !r.failing.Load() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.row >= refusals && len(r.keys) == refusedKeys && r.last.Sub(r.first) >= refusedFor &&
		time.Since(r.last) < tryAgain
}

// Answered records that a request was answered, by the store or without it.
func (r *Ready) Answered() {
	if r.failing.Load() {
		r.clear()
	}
}

func (r *Ready) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reset()
}

func (r *Ready) reset() {
	r.failing.Store(false)
	r.row, r.keys = 0, r.keys[:0]
}

// took records what a take came to. A refusal by a limit, and a take of nothing, may have written nothing.
func (r *Ready) took(debits []store.Debit, allowed bool, err error) {
	switch {
	case len(debits) == 0:
	case err != nil && ofStore(err):
		r.failed(debits[0].Bucket)
	case err == nil && allowed && r.failing.Load() && slices.ContainsFunc(debits, func(d store.Debit) bool {
		return slices.ContainsFunc(d.Charges, func(c store.Charge) bool { return c.Amount > 0 })
	}):
		r.Answered()
	}
}

func (r *Ready) failed(of store.Bucket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.last) > rowGap {
		r.reset()
	}
	if r.failing.Store(true); r.row == 0 {
		r.first = now
	}
	r.row, r.last = r.row+1, now
	if len(r.keys) < refusedKeys && !slices.ContainsFunc(r.keys, func(b store.Bucket) bool {
		return b.Namespace == of.Namespace && b.Entity == of.Entity
	}) {
		r.keys = append(r.keys, of)
	}
}

// answers are errors that a request may bring about while the store accepts others, and those without an answer:
// whoever sends requests may give them little time.
var answers = []error{
	context.Canceled, context.DeadlineExceeded, store.ErrClosed, store.ErrDuplicateBucket, store.ErrInvalid,
	store.ErrOverflow, store.ErrStaleLimits, store.ErrTooManyBuckets, store.ErrTooManyOverrides,
}

// ofStore reports whether an error is that of a store that refuses writes, whichever they are.
func ofStore(err error) bool {
	switch store.ExtentOf(err) {
	case store.ExtentKey, store.ExtentCall:
		return false
	case store.ExtentUnknown, store.ExtentStore:
	}
	return !slices.ContainsFunc(answers, func(a error) bool { return errors.Is(err, a) })
}
