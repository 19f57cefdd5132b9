// Package reckon is the reference for a store's answers: the token clock computed the slow and obvious way, the books
// of what callers were told, and a model of the order in which their calls may have been handled. It is pure, and
// shares no arithmetic with the code it checks. Package storetest uses it for drivers, and weir torture for a user's
// own store.
package reckon

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir/store"
)

// Epoch is the time at which every clock reads zero.
var Epoch = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)

// Reading returns a limit's clock at a time, in millitokens.
func Reading(l *store.Limit, at time.Time) int64 {
	switch {
	case Quota(l):
		return l.Amount * begun(l, at)
	case l.IsSlots(): // a level is how many are held
		return 0
	case Balance(l):
		return -1 << 62
	}
	n := big.NewInt(int64(at.Sub(Epoch)))
	n.Mul(n, big.NewInt(l.Amount))
	return n.Div(n, big.NewInt(int64(l.Period))).Int64() // Euclidean: floor, because the divisor is positive
}

// Quota reports whether a limit is a quota.
func Quota(l *store.Limit) bool { return l.Window.String() != "" }

// Balance reports whether a limit is a balance.
func Balance(l *store.Limit) bool { return l.Period == 0 && !l.IsSlots() && !Quota(l) }

// Fresh returns the level of a limit that was never debited: that of its clock, or of a balance with nothing in it.
func Fresh(l *store.Limit, at time.Time) int64 {
	if Balance(l) {
		return 0
	}
	return Reading(l, at)
}

// Returned returns how much of a return counts: of a quota only what was debited in the same window.
func Returned(l *store.Limit, amount int64, since, at time.Time) int64 {
	switch {
	case !Quota(l):
		return amount
	case since.IsZero():
		return 0
	}
	return max(0, amount-(Reading(l, at)-Reading(l, since)))
}

// begun returns how many windows of a quota have begun since January 2024, by the local date. It is right where no
// local date comes back after the next one.
func begun(l *store.Limit, at time.Time) int64 {
	text, _, _ := strings.Cut(l.Window.String(), "@")
	unit, anchor, _ := strings.Cut(text, "+")
	y, m, d := at.In(l.Window.Zone()).Date()
	date := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	days := math.Round(date.Sub(Epoch).Hours() / 24)
	months := float64((y-2024)*12 + int(m-time.January))
	switch unit {
	case "hour":
		return int64(at.Truncate(time.Hour).Sub(Epoch) / time.Hour)
	case "day":
		return int64(days)
	case "week": // those that begin with an anchor's day
		first := max(0, slices.Index([]string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}, anchor))
		return int64(math.Floor((days - float64(first)) / 7))
	case "month":
		first, _ := strconv.Atoi(anchor)
		if d < first && date.AddDate(0, 0, 1).Month() == m { // the last day is the first of a window at the latest
			months--
		}
		return int64(months)
	case "quarter":
		return int64(math.Floor(months / 3))
	default:
		return int64(y - 2024)
	}
}

// Carried returns what is outstanding once a limit has other parameters. Of what was spent within a quota or before
// one, it is at most one whole new burst; a debt stays.
func Carried(from, to *store.Limit, level int64, at time.Time) int64 {
	out := Outstanding(from, level, at)
	if Quota(from) || Quota(to) {
		out = min(out, from.Burst, to.Burst) + max(0, out-from.Burst)
	}
	return out
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
	return a.Name == b.Name && a.Override == b.Override && a.IsSlots() == b.IsSlots() && (!b.Override || *a == *b)
}
