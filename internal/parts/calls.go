package parts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimits/weir/store"
)

// Observe receives each call to a store, with its duration.
type Observe func(ctx context.Context, op string, took time.Duration, err error)

// calls is a store whose calls end within a timeout or with their context, whichever comes first, and are reported.
// Take is bounded by its decision instead.
type calls struct {
	store.Store
	usage     store.Usage // nil if the store keeps no usage
	inProcess bool        // the store never waits, so nothing is bounded
	timeout   time.Duration
	observe   Observe // optional
	trips     *Trips
	ready     *Ready
	quota     *Quota // optional
	slots     *Slots
}

// Bound returns the store with each call bounded and reported, and the same as a [store.Usage]; nil if it is none. A
// nil observe is none. Unless the store never waits, p.Trips measures it. Its takes are reported to p.Ready. p.Quota
// bounds the buckets that calls create; nil is none. Bound sets p.Slots, which counts the slots of answered calls.
func Bound(st store.Store, timeout time.Duration, observe Observe, p *Parts) (store.Store, store.Usage) {
	p.Slots = new(Slots)
	c := &calls{
		Store: st, timeout: timeout, observe: observe, trips: p.Trips, ready: p.Ready, quota: p.Quota, slots: p.Slots,
	}
	_, c.inProcess = st.(store.InProcess)
	if c.usage, _ = st.(store.Usage); c.usage == nil {
		return c, nil
	}
	return c, c
}

// call is one call to the store.
type call struct {
	*calls
	op      string
	caller  context.Context //nolint:containedctx // lives as long as the call
	bounded context.Context //nolint:containedctx // the same
	cancel  context.CancelFunc
	began   time.Time
}

func (c *calls) begin(ctx context.Context, op string) call {
	k := call{calls: c, op: op, caller: ctx, bounded: ctx}
	if c.timed() {
		k.began = time.Now()
	}
	if until, ok := ctx.Deadline(); !c.inProcess && !(ok && time.Until(until) <= c.timeout) {
		k.bounded, k.cancel = context.WithTimeout(ctx, c.timeout)
	}
	return k
}

// end returns the error of the call, with its operation.
func (k *call) end(err error) error {
	if k.cancel != nil {
		k.cancel()
	}
	if k.timed() {
		k.ended(k.caller, k.op, k.began, err)
	}
	switch {
	case err == nil:
		return nil
	case k.caller.Err() != nil:
		return fmt.Errorf("%s: %w", k.op, k.caller.Err())
	case errors.Is(err, context.DeadlineExceeded):
		hint := "the store did not answer within the time for a call, Config.StoreTimeout of the library"
		return &store.Error{Op: k.op, Err: err, Hint: hint}
	}
	return err
}

// Take implements [store.Store].
func (c *calls) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	live, err := c.quota.enter(ctx, t.Debits, false, c.Peek)
	if err != nil {
		return store.Outcome{}, err
	}
	var began time.Time
	if c.timed() {
		began = time.Now()
	}
	out, err := c.Store.Take(ctx, t)
	c.quota.left(live, t.Debits, false, out, err)
	c.slots.count(t.Debits, out.Levels)
	c.ready.took(t.Debits, out.Allowed, err)
	if c.timed() {
		c.ended(ctx, "take", began, err)
	}
	return out, err
}

// timed reports whether the duration of calls is measured.
func (c *calls) timed() bool { return !c.inProcess || c.observe != nil }

// ended reports and measures a call.
func (c *calls) ended(ctx context.Context, op string, began time.Time, err error) {
	now := time.Now()
	took := now.Sub(began)
	if c.observe != nil {
		c.observe(ctx, op, took, err)
	}
	if !c.inProcess && err == nil && (op == "take" || op == "get") {
		c.trips.observe(now, took)
	}
}

// Settle implements [store.Store].
func (c *calls) Settle(ctx context.Context, s store.Settle) (store.Outcome, error) {
	if err := c.quota.remember(ctx, &s); err != nil {
		return store.Outcome{}, err
	}
	live, err := c.quota.enter(ctx, s.Debits, true, c.Peek)
	if err != nil {
		return store.Outcome{}, err
	}
	k := c.begin(ctx, "settle")
	out, err := c.Store.Settle(k.bounded, s)
	c.quota.left(live, s.Debits, true, out, err)
	c.slots.count(s.Debits, out.Levels)
	return out, k.end(err)
}

// Credit implements [store.Store].
func (c *calls) Credit(ctx context.Context, t store.Credit) (store.Credited, error) {
	k := c.begin(ctx, "credit")
	out, err := c.Store.Credit(k.bounded, t)
	return out, k.end(err)
}

// ForgetCredits implements [store.Store].
func (c *calls) ForgetCredits(ctx context.Context, b store.Bucket, limit string) error {
	k := c.begin(ctx, "forget")
	return k.end(c.Store.ForgetCredits(k.bounded, b, limit))
}

// Peek implements [store.Store].
func (c *calls) Peek(ctx context.Context, buckets ...store.Bucket) (store.Snapshot, error) {
	k := c.begin(ctx, "peek")
	snap, err := c.Store.Peek(k.bounded, buckets...)
	return snap, k.end(err)
}

// Buckets implements [store.Store].
func (c *calls) Buckets(ctx context.Context, q store.BucketQuery) (store.BucketPage, error) {
	k := c.begin(ctx, "buckets")
	page, err := c.Store.Buckets(k.bounded, q)
	return page, k.end(err)
}

// Forget implements [store.Store].
func (c *calls) Forget(ctx context.Context, buckets ...store.Bucket) error {
	k := c.begin(ctx, "forget")
	return k.end(c.Store.Forget(k.bounded, buckets...))
}

// Get implements [store.Catalog].
func (c *calls) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	k := c.begin(ctx, "get")
	got, err := c.Store.Get(k.bounded, keys...)
	return got, k.end(err)
}

// Commit implements [store.Catalog].
func (c *calls) Commit(ctx context.Context, writes ...store.Write) error {
	k := c.begin(ctx, "commit")
	return k.end(c.Store.Commit(k.bounded, writes...))
}

// List implements [store.Catalog].
func (c *calls) List(ctx context.Context, q store.Query) (store.Page, error) {
	k := c.begin(ctx, "list")
	page, err := c.Store.List(k.bounded, q)
	return page, k.end(err)
}

// Count implements [store.Usage].
func (c *calls) Count(ctx context.Context, readings ...store.Reading) error {
	k := c.begin(ctx, "count")
	return k.end(c.usage.Count(k.bounded, readings...))
}

// Usage implements [store.Usage].
func (c *calls) Usage(ctx context.Context, q store.UsageQuery) (store.UsagePage, error) {
	k := c.begin(ctx, "usage")
	page, err := c.usage.Usage(k.bounded, q)
	return page, k.end(err)
}

// ForgetUsage implements [store.Usage].
func (c *calls) ForgetUsage(ctx context.Context, namespace string) error {
	k := c.begin(ctx, "usage")
	return k.end(c.usage.ForgetUsage(k.bounded, namespace))
}
