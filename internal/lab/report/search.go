package report

import (
	"cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/clock"
)

// Smallest returns the limit with the smallest amount above low that is enough, with the burst scaled in proportion. It
// searches by doubling and halving. It returns nil if no limit that weir allows is enough.
func Smallest(l weir.Limit, low int64, enough func(weir.Limit) bool) *weir.Limit {
	high := max(low+1, l.Amount, l.Slots)
	for allowed(scaled(l, high)) && !enough(scaled(l, high)) {
		low, high = high, 2*high
	}
	for high-low > 1 {
		if mid := low + (high-low)/2; allowed(scaled(l, mid)) && !enough(scaled(l, mid)) {
			low = mid
		} else {
			high = mid
		}
	}
	if found := scaled(l, high); allowed(found) {
		return &found
	}
	return nil
}

// scaled returns a limit with another amount, and the burst scaled in proportion, or with so many slots.
func scaled(l weir.Limit, amount int64) weir.Limit {
	if l.Slots > 0 {
		l.Slots = amount
		return l
	}
	burst := cmp.Or(l.Burst, l.Amount)
	l.Burst = max(1, min(clock.MulDivFloor(burst, amount, l.Amount), weir.MaxTokens+1)) // allowed checks the range
	l.Amount = amount
	return l
}

// allowed reports whether weir allows a limit.
func allowed(l weir.Limit) bool {
	return max(l.Amount, l.Slots, l.Burst) <= weir.MaxTokens && Params(l).Check() == nil
}
