// Package reckon is the reference for a store's answers: the token clock computed the slow and obvious way, the books
// of what callers were told, and a model of the order in which their calls may have been handled. It is pure, and
// shares no arithmetic with the code it checks. Package storetest uses it for drivers, and weir torture for a user's
// own store.
package reckon

import (
	"math/big"
	"time"

	"github.com/weirlimits/weir/store"
)

// Epoch is the time at which every clock reads zero.
var Epoch = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)

// Reading returns a limit's clock at a time, in millitokens.
func Reading(l *store.Limit, at time.Time) int64 {
	n := big.NewInt(int64(at.Sub(Epoch)))
	n.Mul(n, big.NewInt(l.Amount))
	return n.Div(n, big.NewInt(int64(l.Period))).Int64() // Euclidean: floor, because the divisor is positive
}

// Outstanding returns how far a level is ahead of the clock, in millitokens.
func Outstanding(l *store.Limit, level int64, at time.Time) int64 {
	return max(0, level-Reading(l, at))
}

// Room returns how many millitokens may be debited; negative if in debt.
func Room(l *store.Limit, level int64, at time.Time) int64 {
	return l.Burst - Outstanding(l, level, at)
}

// Find returns the state of a limit, matched by name; an override must match in all parameters. It returns nil if the
// bucket does not have the limit.
func Find(st store.State, l *store.Limit) *store.LimitState {
	for i := range st.Limits {
		if Same(st.Limits[i].Limit, l) {
			return &st.Limits[i]
		}
	}
	return nil
}

// Same reports whether two limits of a bucket share a level.
func Same(a, b *store.Limit) bool {
	return a.Name == b.Name && a.Override == b.Override && (!b.Override || *a == *b)
}
