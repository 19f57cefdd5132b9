package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimits/weir/store"
)

// Fault is a kind of trouble that callers are put to.
type Fault string

// Faults.
const (
	Cancel    Fault = "cancel"    // callers leave in the midst of a call
	Deadline  Fault = "deadline"  // callers have no time
	Drop      Fault = "drop"      // calls never arrive, or their answers are lost
	Delay     Fault = "delay"     // calls and answers take long
	Duplicate Fault = "duplicate" // leases are given back by everybody at once, and again
	Skew      Fault = "skew"      // clocks are apart, or go back and forth
	Kill      Fault = "kill"      // processes are killed and started anew
)

// AllFaults are all.
var AllFaults = []Fault{Cancel, Deadline, Drop, Delay, Duplicate, Skew, Kill}

// ParseFaults reads names separated by commas, all, or none.
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
			return nil, fmt.Errorf("%q is none of %s, all, none", name, join(AllFaults))
		}
		faults = append(faults, Fault(name))
	}
	return faults, nil
}

func join(faults []Fault) string {
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

// errLost is what a caller sees of a call that was lost.
var errLost = errors.New("the answer was lost, on purpose")

// faulty is a store whose calls are delayed and lost.
type faulty struct {
	store.Store

	mu     sync.Mutex
	r      *rand.Rand
	faults []Fault // in force
}

// set puts faults in force.
func (f *faulty) set(faults []Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = faults
}

// draw decides a call's lot.
func (f *faulty) draw() (before, after bool, delay time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(f.faults, Delay) && f.r.IntN(faultShare) == 0 {
		delay = time.Duration(f.r.Int64N(int64(longest)))
	}
	if slices.Contains(f.faults, Drop) && f.r.IntN(faultShare) == 0 {
		before = f.r.IntN(2) == 0
		after = !before
	}
	return before, after, delay
}

// call makes a call with a lot.
func (f *faulty) call(ctx context.Context, op string, do func() error) error {
	before, after, delay := f.draw()
	if err := pause(ctx, delay/2); err != nil {
		return err
	}
	if before {
		return &store.Error{Op: op, Err: errLost}
	}
	if err := do(); err != nil {
		return err
	}
	if after {
		return &store.Error{Op: op, Err: errLost}
	}
	return pause(ctx, delay/2) // an error here loses an answer, too
}

// Take implements [store.Store].
func (f *faulty) Take(ctx context.Context, t store.Take) (out store.Outcome, err error) {
	err = f.call(ctx, "take", func() error { out, err = f.Store.Take(ctx, t); return err })
	return out, err
}

// Settle implements [store.Store].
func (f *faulty) Settle(ctx context.Context, s store.Settle) (out store.Outcome, err error) {
	err = f.call(ctx, "settle", func() error { out, err = f.Store.Settle(ctx, s); return err })
	return out, err
}

// Peek implements [store.Store].
func (f *faulty) Peek(ctx context.Context, buckets ...store.Bucket) (snap store.Snapshot, err error) {
	err = f.call(ctx, "peek", func() error { snap, err = f.Store.Peek(ctx, buckets...); return err })
	return snap, err
}

// pause waits, unless ctx ends.
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

// ahead returns a clock that is off by so much.
func ahead(by time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(by) }
}

// jumpy returns a clock that goes back and forth within a fifth of a second, a few dozen times each second.
func jumpy(seed uint64) func() time.Time {
	return func() time.Time {
		now := time.Now()
		r := rand.New(rand.NewPCG(seed, uint64(now.UnixMilli()/23)))
		return now.Add(time.Duration(r.Int64N(int64(200*time.Millisecond))) - 100*time.Millisecond)
	}
}
