package decide

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/serve/admission"
)

const (
	// MaxBatch is the maximum number of requests in a batch.
	MaxBatch = 1000
	// maxAtOnce is how many requests of a batch are decided, or wait for their turn, at once; maxOfAll how many of all
	// batches, in addition to one of each: no store is given more.
	maxAtOnce, maxOfAll = 128, mostAtOnce
)

// batches is what the batches of a server share.
type batches struct {
	lately  atomic.Int32     // see lateness
	workers *admission.Slots // in addition to the goroutine of each
}

// lateness updates the estimate of whether the store answers from memory. Once the estimate is [late], the requests of
// a batch are decided concurrently; before that, a goroutine would cost more than the decision. One slow decision is
// not enough, because the scheduler also delays a decision now and then.
func lateness(took time.Duration, before int32) int32 {
	switch {
	case took < 100*time.Microsecond:
		return 0
	case took < 5*time.Millisecond:
		return before + 1
	}
	return late
}

const late = 2

// Batch are the requests of a caller that are decided with one call.
type Batch struct {
	d      *Decider
	caller *Caller
	atomic bool
	first  string // the namespace that the first request names
	checks []check
}

// check is one request of a batch.
type check struct {
	lim *weir.Limiter
	req weir.Request
}

// NewBatch returns a batch for n requests, which are then added in order. An atomic one admits all of them or none.
func NewBatch(d *Decider, c *Caller, n int, atomic bool) (*Batch, error) {
	if n < 1 || n > MaxBatch {
		return nil, &weir.ConfigError{
			Field: "requests", Reason: "must be 1 to " + strconv.Itoa(MaxBatch) + ", are " + strconv.Itoa(n),
		}
	}
	return &Batch{d: d, caller: c, atomic: atomic, checks: make([]check, 0, n)}, nil
}

// Add adds a request, if the caller may make it in the namespace that it names.
func (b *Batch) Add(namespace string, req *weir.Request) error {
	n := len(b.checks)
	if n == 0 {
		b.first = namespace
	}
	same := namespace == b.first
	if b.atomic && !same {
		return OfRequest(n, &weir.ConfigError{
			Field: "namespace", Reason: "must be that of the first: an atomic batch is of one namespace",
		})
	}
	access := AccessOf(namespace, req)
	if n > 0 && same && b.caller.May(access.In(b.checks[0].lim.Namespace())) {
		b.checks = append(b.checks, check{b.checks[0].lim, *req}) // costs less than another view of the namespace
		return nil
	}
	lim, err := b.d.In(b.caller, access)
	if err != nil {
		return err
	}
	b.checks = append(b.checks, check{lim, *req})
	return nil
}

// OfRequest adds to a field error the index of the request in the batch.
func OfRequest(i int, err error) error {
	var bad *weir.ConfigError
	if !errors.As(err, &bad) {
		return err
	}
	field := "requests[" + strconv.Itoa(i) + "]"
	if bad.Field != "body" {
		field += "." + bad.Field
	}
	return &weir.ConfigError{Field: field, Reason: bad.Reason}
}

// Each decides each request on its own, in no particular order, and calls done with the outcome: for several requests
// at once. A panic is the outcome of the one request, and logged with the attribute.
func (b *Batch) Each(
	ctx context.Context, at slog.Attr, done func(i int, lim *weir.Limiter, lease *weir.Lease, err error),
) {
	ctx = outage.Batch(ctx, len(b.checks))
	decide := func(i int) {
		lim := b.checks[i].lim
		defer func() { // the decisions on the others must still be answered
			if v := recover(); v != nil {
				done(i, lim, nil, b.d.Panicked(ctx, v, at))
			}
		}()
		lease, err := lim.Acquire(ctx, b.checks[i].req)
		done(i, lim, lease, err)
	}
	if parts.Of(b.d.Limiter).Outage == nil { // the store never waits
		for i := range b.checks {
			decide(i)
		}
		return
	}
	b.prefetch(ctx)
	n, lately, began := 0, b.d.batches.lately.Load(), time.Now()
	for ; n < len(b.checks) && lately < late; n++ {
		decide(n)
		now := time.Now()
		lately, began = lateness(now.Sub(began), lately), now
	}
	b.d.batches.lately.Store(lately)
	next := atomic.Int64{}
	next.Store(int64(n))
	b.together(min(len(b.checks)-n, maxAtOnce), func() {
		for i := next.Add(1) - 1; i < int64(len(b.checks)); i = next.Add(1) - 1 {
			began := time.Now()
			decide(int(i))
			b.d.batches.lately.Store(lateness(time.Since(began), late))
		}
	})
}

// prefetch reads the limits of all requests that are not cached.
func (b *Batch) prefetch(ctx context.Context) {
	of := make(map[*weir.Limiter][]*weir.Request)
	for i := range b.checks {
		of[b.checks[i].lim] = append(of[b.checks[i].lim], &b.checks[i].req)
	}
	for lim, reqs := range of {
		parts.Of(lim).Prefetch(ctx, len(reqs), func(i int) (entity, resource string, own bool) {
			return reqs[i].Entity, reqs[i].Resource, len(reqs[i].Limits) == 0
		})
	}
}

// together does work up to n times at once: once, and as often as the caller gets a worker.
func (b *Batch) together(n int, work func()) {
	var wg sync.WaitGroup
	who := b.caller.name()
	for ; n > 1 && b.d.batches.workers.Try(who); n-- {
		wg.Go(func() {
			defer b.d.batches.workers.Free(who)
			work()
		})
	}
	work()
	wg.Wait()
}

// All decides all requests of an atomic batch in one decision: it admits all or none. A brief answer has no leases, so
// the requests must hold no slots.
func (b *Batch) All(ctx context.Context, brief bool) (*weir.Limiter, []*weir.Lease, error) {
	lim, reqs := b.checks[0].lim, make([]weir.Request, len(b.checks))
	for i := range b.checks {
		reqs[i] = b.checks[i].req
	}
	leases, err := lim.AcquireAll(ctx, reqs)
	if one := (*weir.RequestError)(nil); errors.As(err, &one) && weir.CodeOf(err) == weir.CodeInvalid {
		err = OfRequest(one.Index, err)
	}
	if err == nil && brief {
		err = NoSlots(ctx, leases...)
	}
	return lim, leases, err
}
