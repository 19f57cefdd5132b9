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
			10, 11, 12.5, 14, 16, 18, 20, 22.5, 25, 28, 32, 36, 40, 45, 50, 56, 63, 71, 80,
			90,
		} {
			b = append(b, round(x/10*math.Pow10(decade)))
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

// coarse are the upper ends of the buckets that a scrape shows: 1, 2.5 and 5 of each decade from 10 µs on. coarseAt
// holds their indexes in bounds.
var coarse, coarseAt = func() (b []float64, at []int) {
	for i, x := range bounds {
		if m := i % 20; i >= 20 && (m == 0 || m == 8 || m == 14) {
			b, at = append(b, x), append(at, i)
		}
	}
	return b, at
}()

// coarse returns the counts in the coarse buckets.
func (c *counts) coarse() []uint64 {
	out := make([]uint64, len(coarseAt)+1)
	next := 0
	for i, n := range c {
		if next < len(coarseAt) && i > coarseAt[next] {
			next++ // bounds are denser, so never two at once
		}
		out[next] += n
	}
	return out
}
