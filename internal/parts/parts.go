// Package parts gives the packages of this module that manage or serve a limiter what the limiter is put together from.
package parts

import (
	"errors"

	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/parts/holds"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Parts are what a limiter is put together from.
type Parts struct {
	Store    store.Store       // each call is bounded and observed
	Usage    store.Usage       // the same store; nil if it keeps no usage
	Policies *policy.Namespace // resolves and changes the limits of the limiter's namespace
	Outage   *outage.Fallback  // decides without the store; nil for a store in the process
	Holds    *holds.Holds      // renews slots
	Meter    *meter.Recorder   // counts and reports decisions
	Trips    *Trips            // measures the store
	Slots    *Slots            // counts slots that are taken and given back
	Ready    *Ready            // whether the store accepts writes
	Gate     *Gate             // is passed by each decision in the store
	Quota    *Quota            // bounds the live buckets of each namespace
	Within   *Within           // how long a decision may take
}

// Handle is embedded in a limiter and leads to its parts.
type Handle struct{ parts Parts }

// Join returns a handle for parts.
func Join(p Parts) Handle { return Handle{p} }

func (h *Handle) reach() *Parts { return &h.parts }

// NoShare reports whether an error of a decision is that the process has no share of the limits: its cell is joining or
// drained, or it would use whole limits on the store of a cell.
func NoShare(err error) bool {
	return errors.Is(err, policy.ErrNoShare) || errors.Is(err, record.ErrOfCell)
}

// Of returns the parts of a limiter, which must not be modified.
func Of(limiter interface{ reach() *Parts }) *Parts { return limiter.reach() }
