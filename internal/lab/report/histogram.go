package report

import (
	"fmt"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Histogram counts durations up to an hour. The zero value has no counts and takes none: use Fine or Coarse.
type Histogram struct{ h *hdrhistogram.Histogram }

const longest = int64(time.Hour)

// Fine returns a histogram that keeps durations to within a thousandth of each.
func Fine() Histogram { return Histogram{hdrhistogram.New(100, longest, 3)} }

// Coarse returns a histogram that keeps durations to within a hundredth of each.
func Coarse() Histogram { return Histogram{hdrhistogram.New(1000, longest, 2)} }

// Record counts a duration.
func (h Histogram) Record(d time.Duration) {
	_ = h.h.RecordValue(min(max(0, int64(d)), longest)) // always in range
}

// At returns a percentile, from 0 to 100.
func (h Histogram) At(percentile float64) time.Duration {
	return time.Duration(h.h.ValueAtPercentile(percentile))
}

// Merge adds the counts of another histogram.
func (h Histogram) Merge(o Histogram) { h.h.Merge(o.h) }

// Valid reports whether the histogram is not the zero value.
func (h Histogram) Valid() bool { return h.h != nil }

// MarshalText writes HdrHistogram's interchange format, V2.
func (h Histogram) MarshalText() ([]byte, error) {
	return h.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
}

// UnmarshalText reads that format.
func (h *Histogram) UnmarshalText(text []byte) (err error) {
	if h.h, err = hdrhistogram.Decode(text); err != nil {
		return fmt.Errorf("read a histogram: %w", err)
	}
	return nil
}

// Times are percentiles in milliseconds.
type Times struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Times returns the percentiles of a histogram; zeros if it has no counts.
func (h Histogram) Times() Times {
	if h.h.TotalCount() == 0 {
		return Times{}
	}
	return Times{Millis(h.At(50)), Millis(h.At(90)), Millis(h.At(99)), Millis(h.At(99.9)), Millis(h.At(100))}
}

// Millis converts to milliseconds, rounded to four decimals: a tenth of a microsecond.
func Millis(d time.Duration) float64 { return math.Round(float64(d)/100) / 1e4 }
