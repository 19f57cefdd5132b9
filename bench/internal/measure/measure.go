// Package measure has what the benchmarks measure with.
package measure

import "slices"

// Median returns the middle of the figures, 0 of none.
func Median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(xs))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// Paired returns one's figure over another's: the median over the rounds, in each of which they ran one after the other.
// It is 0 where the other's were 0.
func Paired(one, other []float64) float64 {
	var ratios []float64
	for round := range one {
		if other[round] > 0 {
			ratios = append(ratios, one[round]/other[round])
		}
	}
	return Median(ratios)
}
