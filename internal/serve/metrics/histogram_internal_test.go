package metrics

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestQuantile checks that a quantile is at least the exact one, and at most a seventh more.
func TestQuantile(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ds := rapid.SliceOfN(rapid.Int64Range(int64(time.Microsecond), int64(10*time.Second)), 1, 200).Draw(t, "durations")
		var h histogram
		for _, d := range ds {
			h.observe(time.Duration(d))
		}
		slices.Sort(ds)
		for _, q := range []float64{0.5, 0.99, 1} {
			rank := max(1, int(q*float64(len(ds))+0.999999))
			exact, got := float64(ds[rank-1]), float64(h.quantile(q))
			if got < exact || got > exact*1.143 {
				t.Errorf("quantile %g is %g, exactly %g", q, got, exact)
			}
		}
	})
}

func TestBuckets(t *testing.T) {
	t.Parallel()
	if len(bounds) != buckets-1 || !slices.IsSorted(bounds) || bounds[0] != 1e-6 || bounds[20] != 1e-5 || bounds[len(bounds)-1] != 10 {
		t.Fatalf("%d buckets, bounds %v", buckets, bounds)
	}
	if want := []float64{1e-5, 2.5e-5, 5e-5, 1e-4}; !slices.Equal(coarseBounds[:4], want) || coarseBounds[len(coarseBounds)-1] != 10 {
		t.Errorf("coarse bounds %v", coarseBounds)
	}
	var h histogram
	for _, d := range []time.Duration{0, 10 * time.Microsecond, 11 * time.Microsecond, time.Second, 10 * time.Second, time.Minute} {
		h.observe(d)
	}
	c := h.coarse()
	if len(c) != len(coarseBounds) || c[1e-5] != 2 || c[2.5e-5] != 3 || c[0.5] != 3 || c[1] != 4 || c[5] != 4 || c[10] != 5 || h.total() != 6 {
		t.Errorf("counts %v", c)
	}
	if new(counts).quantile(0.5) != 0 {
		t.Error("a quantile of nothing is not 0")
	}
}

func TestLabels(t *testing.T) {
	t.Parallel()
	l := labels{max: 2}
	for _, tt := range []struct{ name, want string }{{"", ""}, {"api", "api"}, {"third", Other}, {"api", "api"}, {"", ""}} {
		n := l.of(tt.name, func() bool { return false })
		if got := l.names()[n]; got != tt.want {
			t.Errorf("%q is called %q, want %q", tt.name, got, tt.want)
		}
	}
}
