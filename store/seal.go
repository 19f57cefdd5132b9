package store

import (
	"math"
	"slices"
	"time"
)

// seal is the only limit in force in a sealed bucket. It is always full. No catalog has a limit of this name.
var seal = Limit{Name: "_default_", Amount: 1000, Period: time.Second, Burst: 1000}

// Seal returns a take after which a bucket refuses every other take of its own limits with [ErrStaleLimits], whatever
// its epoch. What the bucket owes stays until time has covered it, so that no burst can be had twice; then the store
// forgets the bucket like any other. It is for buckets of a namespace whose id is never used again.
func Seal(b Bucket) Take {
	return Take{Debits: []Debit{{Bucket: b, Epoch: math.MaxInt64, Charges: []Charge{{Limit: &seal}}}}}
}

// IsSeal reports whether a limit is that of a sealed bucket.
func IsSeal(l *Limit) bool { return *l == seal }

// Sealed reports whether a bucket is sealed.
func (s *State) Sealed() bool {
	return slices.ContainsFunc(s.Limits, func(l LimitState) bool { return IsSeal(l.Limit) })
}
