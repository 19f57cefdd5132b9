package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
)

// Fault is a kind of fault that callers are exposed to.
type Fault string

// Faults that callers can be exposed to.
const (
	Cancel    Fault = "cancel"    // callers abandon calls
	Deadline  Fault = "deadline"  // callers have too little time
	Drop      Fault = "drop"      // calls never arrive, or their answers are lost
	Delay     Fault = "delay"     // calls and answers are slow
	Duplicate Fault = "duplicate" // leases are returned by all processes at once, and repeatedly
	Skew      Fault = "skew"      // clocks differ, or jump back and forth
	Kill      Fault = "kill"      // processes are killed and restarted
	Fail      Fault = "fail"      // calls fail until the store is not called, except those of the neighbour
)

// AllFaults lists all faults.
var AllFaults = []Fault{Cancel, Deadline, Drop, Delay, Duplicate, Skew, Kill, Fail}

// ParseFaults parses names separated by commas, or "all" or "none".
func ParseFaults(text string) ([]Fault, error) {
	switch text {
	case "all":
		return slices.Clone(AllFaults), nil
	case "none", "":
		return []Fault{}, nil
	}
	var faults []Fault
	for name := range strings.SplitSeq(text, ",") {
		if !slices.Contains(AllFaults, Fault(name)) {
			return nil, fmt.Errorf("must be all, none or names from %s: %q", Names(AllFaults), name)
		}
		faults = append(faults, Fault(name))
	}
	return faults, nil
}

// Names lists faults for people.
func Names(faults []Fault) string {
	names := make([]string, len(faults))
	for i, f := range faults {
		names[i] = string(f)
	}
	return strings.Join(names, ", ")
}

const (
	faultShare = 20 // one call in so many has each kind of fault
	longest    = 20 * time.Millisecond
	maxSkew    = 500 * time.Millisecond
)

// What the callers of calls with faults get.
var (
	errLost   = errors.New("answer lost by an injected fault")
	errFailed = errors.New("failed by an injected fault")
)

// faulty is a store whose calls are delayed and lost, except those of the neighbour.
type faulty struct {
	store.Store

	mu      sync.Mutex
	r       *rand.Rand
	faults  []Fault     // currently active
	failing atomic.Bool // all calls fail

	reached atomic.Int64 // calls of the neighbour
	failed  atomic.Bool  // the store itself has failed in this round
	stopped atomic.Bool  // the limiter's breaker is not closed
}

// set activates faults.
func (f *faulty) set(faults []Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = faults
	f.failed.Store(false)
}

// draw decides the faults of a call.
func (f *faulty) draw() (delay time.Duration, before, after error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failing.Load() {
		return 0, errFailed, nil
	}
	if slices.Contains(f.faults, Delay) && f.r.IntN(faultShare) == 0 {
		delay = time.Duration(f.r.Int64N(int64(longest)))
	}
	if slices.Contains(f.faults, Drop) && f.r.IntN(faultShare) == 0 {
		if before = errLost; f.r.IntN(2) == 0 {
			before, after = nil, errLost
		}
	}
	return delay, before, after
}

// call makes a call with the faults drawn for it.
func (f *faulty) call(ctx context.Context, op, entity string, do func() error) error {
	began := time.Now()
	if entity == neighbour {
		f.reached.Add(1)
		return f.note(ctx, began, do())
	}
	delay, before, after := f.draw()
	if err := pause(ctx, delay/2); err != nil {
		return err
	}
	if before != nil {
		return &store.Error{Op: op, Err: before}
	}
	if err := f.note(ctx, began, do()); err != nil {
		return err
	}
	if after != nil {
		return &store.Error{Op: op, Err: after}
	}
	return pause(ctx, delay/2) // an error here also loses the answer
}

// note records a failure of the store itself: not one of a caller that gave it too little time.
func (f *faulty) note(ctx context.Context, began time.Time, err error) error {
	hurried := ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)
	if err != nil && !errors.Is(err, store.ErrStaleLimits) && (!hurried || time.Since(began) > patience/2) {
		f.failed.Store(true)
	}
	return err
}

// Get implements [store.Store].
func (f *faulty) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	began := time.Now()
	got, err := f.Store.Get(ctx, keys...)
	return got, f.note(ctx, began, err)
}

// Take implements [store.Store].
func (f *faulty) Take(ctx context.Context, t store.Take) (out store.Outcome, err error) {
	err = f.call(ctx, "take", t.Debits[0].Bucket.Entity, func() error { out, err = f.Store.Take(ctx, t); return err })
	return out, err
}

// Settle implements [store.Store].
func (f *faulty) Settle(ctx context.Context, s store.Settle) (out store.Outcome, err error) {
	err = f.call(ctx, "settle", "", func() error { out, err = f.Store.Settle(ctx, s); return err })
	return out, err
}

// Peek implements [store.Store].
func (f *faulty) Peek(ctx context.Context, buckets ...store.Bucket) (snap store.Snapshot, err error) {
	err = f.call(ctx, "peek", "", func() error { snap, err = f.Store.Peek(ctx, buckets...); return err })
	return snap, err
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ahead returns a clock that is ahead by the given amount.
func ahead(by time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(by) }
}

// jumpy returns a clock that jumps back and forth within a fifth of a second, a few dozen times per second.
func jumpy(seed uint64) func() time.Time {
	return func() time.Time {
		now := time.Now()
		r := rand.New(rand.NewPCG(seed, uint64(now.UnixMilli()/23)))
		return now.Add(time.Duration(r.Int64N(int64(200*time.Millisecond))) - 100*time.Millisecond)
	}
}
