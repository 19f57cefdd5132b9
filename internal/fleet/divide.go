package fleet

import (
	"math"
	"math/bits"
)

// Claim is what a party claims of a pool: a part in proportion to its weight, but at least Least and at most Want,
// which is not less than Least.
type Claim struct{ Weight, Least, Want int64 }

// Unbounded is the Want of a party that can use everything.
const Unbounded = math.MaxInt64

// Divide divides a pool among claims. Nobody gets more than its part while another gets less than it claims; what
// nobody wants is spread evenly. The shares add up to at most the pool, if the least ones do. If all weights are zero,
// they are equal.
func Divide(pool int64, claims []Claim) []int64 {
	shares, parts, open := make([]int64, len(claims)), make([]int64, len(claims)), make([]int, len(claims))
	if len(claims) == 0 || pool <= 0 {
		return shares
	}
	var weight int64
	for i, c := range claims {
		weight += c.Weight
		open[i] = i
	}
	for len(open) > 0 {
		var excess int64 // by which bounds change the sum of the parts
		for _, i := range open {
			if parts[i] = pool / int64(len(open)); weight > 0 {
				parts[i] = scale(pool, claims[i].Weight, weight)
			}
			shares[i] = min(max(parts[i], claims[i].Least), claims[i].Want)
			excess += shares[i] - parts[i]
		}
		// If bounds raise the sum, those that were raised are final, because the others' parts become smaller; if they
		// lower it, those that were lowered.
		var rest []int
		for _, i := range open {
			if excess > 0 && shares[i] <= parts[i] || excess < 0 && shares[i] >= parts[i] {
				rest = append(rest, i)
				continue
			}
			pool, weight = max(0, pool-shares[i]), weight-claims[i].Weight
		}
		open = rest
	}
	for i := range shares {
		shares[i] += pool / int64(len(claims))
	}
	return shares
}

// scale returns floor(x * part / whole) for 0 <= part <= whole, whole > 0.
func scale(x, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(x), uint64(part))
	quo, _ := bits.Div64(hi, lo, uint64(whole))
	return int64(quo)
}
