package fleet

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// idleParts is the fraction (one in idleParts) of an equal share that a worker keeps when it wants nothing, to begin
// with.
const idleParts = 10

// divide shares pool among those who want it: nobody gets more than it wants while another gets less than it wants.
// What nobody wants is spread evenly, so that an idle fleet can begin at once. A want of -1 is unbounded.
func divide(pool int64, wants []int64) []int64 {
	n := int64(len(wants))
	shares := make([]int64, n)
	if n == 0 || pool <= 0 {
		return shares
	}
	order := make([]int, n)
	least := pool / n / idleParts
	want := make([]int64, n)
	for i, w := range wants {
		order[i] = i
		if want[i] = max(w, least); w < 0 {
			want[i] = math.MaxInt64
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(want[a], want[b]) })
	for k, i := range order {
		shares[i] = min(want[i], pool/(n-int64(k)))
		pool -= shares[i]
	}
	for i := range shares {
		shares[i] += pool / n
	}
	return shares
}

// scale returns floor(x * part / whole) for 0 <= part <= whole, whole > 0.
func scale(x, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(x), uint64(part))
	quo, _ := bits.Div64(hi, lo, uint64(whole))
	return int64(quo)
}
