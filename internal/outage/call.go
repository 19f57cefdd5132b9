package outage

import (
	"context"
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/outage/breaker"
	"github.com/weirlimits/weir/store"
)

// Call is a decision that calls the store.
type Call struct {
	// Called is when the call of the store that is in progress began. A decision may make several, one after the other.
	Called time.Time

	call         breaker.Call
	batch        *batch // nil unless others are made together with it
	began, until time.Time
}

// loaded is when the process began, by its monotonic clock.
var loaded = time.Now()

// few is the number of requests up to which they take hardly longer together than one alone.
const few = 8

// Late returns the result of a call for n requests that failed, and whether it may have been late because of its own
// size, which is that of its batch. A call for several requests was if the store has decided something since it began.
// One for more than a few was, too, unless it is a probe: only then has nobody been answered for long.
func (f *Fallback) Late(c Call, n int, failed error) (r Result, own bool) {
	r = c.Result(failed)
	if c.batch != nil {
		n = max(n, c.batch.size)
	}
	if f == nil || n == 1 || !errors.Is(failed, context.DeadlineExceeded) {
		return r, false
	}
	if f.lastAnswer.Load() > int64(c.began.Sub(loaded)) {
		return Unknown, true
	}
	return r, n > few && !c.call.Probe()
}

// Result is the outcome of a call.
type Result = breaker.Result

// Unknown is the result of a call that means nothing for the store.
const Unknown = breaker.Unknown

// Who is whose a call is: the namespace, and the top of the chain of entities.
type Who struct{ Namespace, Root string }

// batch is what the decisions of a batch have in common.
type batch struct {
	size    int
	counted atomic.Pointer[time.Time] // when the last one that counts ended
}

// counts reports whether a call that began at a time counts: those of a batch count like one after the other.
func (b *batch) counts(began time.Time) bool {
	now, last := time.Now(), b.counted.Load()
	return (last == nil || !began.Before(*last)) && b.counted.CompareAndSwap(last, &now)
}

type batchKey struct{}

// Batch returns the context of decisions on a number of requests that are made together. Of those that are in progress
// at the same time, only the first that ends counts.
func Batch(ctx context.Context, size int) context.Context {
	return context.WithValue(ctx, batchKey{}, &batch{size: size})
}

// Batched reports whether a decision is one of a [Batch].
func Batched(ctx context.Context) bool { return ctx.Value(batchKey{}) != nil }

// Begin reports whether to call the store for a decision that ends with ctx. If so, the caller must call End exactly
// once. Function who is called only if the store has not answered lately. A tenant of which nothing is known waits for
// its turn to try, until ctx ends.
func (f *Fallback) Begin(ctx context.Context, who func() Who) (c Call, ok bool) {
	if f == nil {
		return c, true
	}
	c.batch, _ = ctx.Value(batchKey{}).(*batch)
	c.began = time.Now()
	c.until, _ = ctx.Deadline()
	if f.breaker == nil {
		return c, true
	}
	for {
		c.call, ok = f.breaker.Begin(func() breaker.Key { return f.key(who()) })
		if c.call.Wait() == nil {
			return c, ok
		}
		select {
		case <-c.call.Wait():
		case <-ctx.Done():
			return c, false
		}
	}
}

// key returns the hashes by which the breaker tells callers apart. Nobody can choose names that have the same.
func (f *Fallback) key(w Who) breaker.Key {
	space := maphash.String(f.seed, w.Namespace)
	return breaker.Key{Space: space, Root: space ^ maphash.String(f.seed, w.Root)}
}

// Result returns what the outcome of a call means for the store: nothing if the error concerns one key, or the call
// alone.
func (c *Call) Result(err error) Result {
	switch store.ExtentOf(err) {
	case store.ExtentKey:
		return breaker.Answered
	case store.ExtentCall:
		return Unknown
	case store.ExtentStore:
		return breaker.Broken
	case store.ExtentUnknown:
	}
	switch {
	case err == nil && (c.until.IsZero() || time.Now().Before(c.until)):
		return breaker.Succeeded
	case errors.Is(err, context.DeadlineExceeded) && 4*time.Since(c.Called) < 3*time.Since(c.began):
		return Unknown // most of the time had passed before the call began
	}
	return breaker.Failed
}

// End reports the result of a call. Function who returns whose it was.
func (f *Fallback) End(c Call, who func() Who, r Result) {
	if f == nil {
		return
	}
	if r == breaker.Succeeded {
		f.lastAnswer.Store(int64(time.Since(loaded)))
	}
	if f.breaker == nil {
		return
	}
	if c.batch != nil && r != Unknown && !c.batch.counts(c.began) {
		r = Unknown
	}
	c.call.Done(f.key(who()), r)
}
