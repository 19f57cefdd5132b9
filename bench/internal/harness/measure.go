package harness

import "slices"

// Median returns the median of xs, or 0 if xs is empty.
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

// Paired returns the median, over the rounds, of the ratio one/other. Both are measured one after the other in each
// round. It is 0 if the figures of other are 0.
func Paired(one, other []float64) float64 {
	var ratios []float64
	for round := range one {
		if other[round] > 0 {
			ratios = append(ratios, one[round]/other[round])
		}
	}
	return Median(ratios)
}
