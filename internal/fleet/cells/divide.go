package cells

import "github.com/weirlimits/weir/internal/clock"

// divide divides pool in proportion to weights; each gets at least an equal part of floor percent of it. The sum of the
// shares never exceeds the pool. If all weights are zero, it divides equally.
func divide(pool int64, weights []int64, floor int64) []int64 {
	n := int64(len(weights))
	shares := make([]int64, n)
	if n == 0 || pool <= 0 {
		return shares
	}
	var sum int64
	for _, w := range weights {
		sum += w
	}
	least := clock.MulDivFloor(pool, floor, 100) / n
	if sum == 0 {
		least = pool / n
	}
	// Shares below the least are raised to it, and the others divide the rest. That may put further shares below the
	// least, so repeat.
	for again := true; again; {
		again = false
		for i, w := range weights {
			if shares[i] == 0 && (sum == 0 || clock.MulDivFloor(pool, w, sum) < least) {
				shares[i], pool, sum, again = max(least, 1), pool-max(least, 1), sum-w, true
			}
		}
	}
	for i, w := range weights {
		if shares[i] == 0 {
			shares[i] = clock.MulDivFloor(pool, w, sum)
		}
	}
	return shares
}

// differ reports whether any share has changed by more than 1/in.
func differ(a, b []int64, in int64) bool {
	for i := range a {
		if d := a[i] - b[i]; max(d, -d) > max(a[i], b[i])/in {
			return true
		}
	}
	return false
}
