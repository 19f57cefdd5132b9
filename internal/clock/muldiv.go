package clock

import (
	"math"
	"math/bits"
)

// MulDivFloor returns floor(x*y/z) for y >= 0 and z > 0, computed over a 128-bit product. The result saturates.
func MulDivFloor(x, y, z int64) int64 {
	if x < 0 {
		q, r, ok := mulDiv(-uint64(x), y, z)
		if !ok || q > math.MaxInt64 {
			return math.MinInt64
		}
		if r > 0 {
			q++
		}
		return int64(-q)
	}
	q, _, ok := mulDiv(uint64(x), y, z)
	if !ok || q > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(q)
}

// MulDivCeil returns ceil(x*y/z) for y >= 0 and z > 0, computed over a 128-bit product. The result saturates.
func MulDivCeil(x, y, z int64) int64 {
	if x < 0 {
		q, _, ok := mulDiv(-uint64(x), y, z)
		if !ok || q > math.MaxInt64 {
			return math.MinInt64
		}
		return -int64(q)
	}
	q, r, ok := mulDiv(uint64(x), y, z)
	if !ok || q >= math.MaxInt64 {
		return math.MaxInt64
	}
	if r > 0 {
		q++
	}
	return int64(q)
}

// mulDiv returns the quotient and remainder of x*y/z. ok is false if the quotient needs more than 64 bits, where
// bits.Div64 would panic.
func mulDiv(x uint64, y, z int64) (quo, rem uint64, ok bool) {
	hi, lo := bits.Mul64(x, uint64(y))
	if hi >= uint64(z) {
		return 0, 0, false
	}
	quo, rem = bits.Div64(hi, lo, uint64(z))
	return quo, rem, true
}
