package metrics

import (
	"math"
	"sort"
	"time"
)

// bounds are the upper ends of a histogram's buckets in seconds, 20 per decade from 1 µs to 10 s. Each is at most a
// seventh above the previous one, which bounds the error of a quantile.
var bounds = func() (b []float64) {
	for decade := -6; decade < 1; decade++ {
		for _, x := range []float64{
			1, 1.1, 1.25, 1.4, 1.6, 1.8, 2, 2.25, 2.5, 2.8, 3.2, 3.6, 4, 4.5, 5, 5.6, 6.3, 7.1, 8, 9,
		} {
			b = append(b, round(x*math.Pow10(decade)))
		}
	}
	return append(b, 10)
}()

// round removes the rounding errors of binary arithmetic from the last decimals.
func round(x float64) float64 {
	scale := math.Pow10(3 - int(math.Floor(math.Log10(x))))
	return math.Round(x*scale) / scale
}

// nanos are the bounds in nanoseconds.
var nanos = func() (n []int64) {
	for _, b := range bounds {
		n = append(n, int64(math.Round(b*1e9)))
	}
	return n
}()

const buckets = 7*20 + 2

// counts is the number of observations in each bucket.
type counts [buckets]uint64

// histogram is a distribution of durations.
type histogram struct {
	counts
	sum time.Duration
}

func (h *histogram) observe(d time.Duration) {
	h.counts[bucketOf(d)]++
	h.sum += d
}

func bucketOf(d time.Duration) int {
	return sort.Search(len(nanos), func(i int) bool { return int64(d) <= nanos[i] })
}

func (h *histogram) add(o *histogram) {
	h.counts.add(&o.counts)
	h.sum += o.sum
}

func (c *counts) add(o *counts) {
	for i := range c {
		c[i] += o[i]
	}
}

func (c *counts) total() (n uint64) {
	for _, k := range c {
		n += k
	}
	return n
}

// quantile returns the upper end of the bucket with the observation of rank q, between 0 and 1, or 0 if there is none.
func (c *counts) quantile(q float64) time.Duration {
	total := c.total()
	if total == 0 {
		return 0
	}
	rank := max(1, uint64(math.Ceil(q*float64(total))))
	var seen uint64
	for i, n := range c {
		if seen += n; seen >= rank && i < len(nanos) {
			return time.Duration(nanos[i])
		}
	}
	return math.MaxInt64
}

// coarseBounds are the upper ends of the buckets that a scrape shows: 1, 2.5 and 5 of each decade from 10 µs on.
var coarseBounds = func() (b []float64) {
	for i, x := range bounds {
		if isCoarse(i) {
			b = append(b, x)
		}
	}
	return b
}()

func isCoarse(i int) bool { return i >= 20 && (i%20 == 0 || i%20 == 8 || i%20 == 14) }

// coarse returns, for each coarse bound, how many observations are at most that long.
func (c *counts) coarse() map[float64]uint64 {
	upTo := make(map[float64]uint64, len(coarseBounds))
	var n uint64
	for i, x := range bounds {
		if n += c[i]; isCoarse(i) {
			upTo[x] = n
		}
	}
	return upTo
}
