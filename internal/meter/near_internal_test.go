package meter

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// The memory of reported events is bounded: if more limits come up than fit, those whose windows ended first are
// forgotten, reported again, and counted.
func TestNearForgets(t *testing.T) {
	t.Parallel()
	n := newNear(func(context.Context, Event) {})
	const fit = nearShards * maxNear
	const all = fit + fit/4
	o := nearLook{thresholds: []int{80}}
	tell := func(i int) bool {
		window := sent{start: int64(i), end: int64(i + 1)} // each window is later than those before
		return n.see(nearKey{bucket: store.Bucket{Entity: fmt.Sprint(i)}, limit: "tpm"}, &o, window, 0, 90) != 0
	}
	for i := range all {
		if !tell(i) {
			t.Fatalf("event %d is lost", i)
		}
	}
	size, forgotten := n.stats()
	if size > fit || size < fit*3/4 || size+int(forgotten) != all {
		t.Errorf("%d are remembered and %d forgotten, of %d that fit and %d sent", size, forgotten, fit, all)
	}
	for i := all - fit/2; i < all; i++ {
		if tell(i) {
			t.Fatalf("%d of %d is sent again though older ones could have gone", i, all)
		}
	}
}

// TestNearModel compares the reports with a literal implementation of the rule, over histories of shares used.
func TestNearModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		n := newNear(func(context.Context, Event) {})
		ts := []int{rapid.IntRange(1, 50).Draw(rt, "low"), rapid.IntRange(51, 100).Draw(rt, "high")}
		o := nearLook{thresholds: ts}
		type look struct {
			window    int64
			low, high int
		}
		var looks []look
		fired := map[int]int{} // by threshold: the look at which it fired
		for i := range rapid.IntRange(1, 30).Draw(rt, "looks") {
			l := look{high: rapid.IntRange(0, 120).Draw(rt, "high")}
			l.low = rapid.IntRange(0, l.high).Draw(rt, "low")
			if i > 0 {
				l.window = looks[i-1].window + rapid.Int64Range(0, 2).Draw(rt, "windows")
			}
			looks = append(looks, l)
			var want due
			for j, p := range ts {
				last, sent := fired[p]
				armed := !sent
				for _, since := range looks[last:] {
					armed = armed || since.window > looks[last].window && since.low < p
				}
				if armed && l.high >= p {
					want |= 1 << j
					fired[p] = i
				}
			}
			got := n.see(nearKey{limit: "tpm"}, &o, sent{start: l.window, end: l.window + 1}, l.low, l.high)
			if got != want {
				rt.Fatalf("thresholds %v, looks %v: sent %b, want %b", ts, looks, got, want)
			}
		}
		if size, _ := n.stats(); size > 1 {
			rt.Fatalf("%d are remembered of one limit", size)
		}
	})
}

func TestWindowAt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		at     string
		length time.Duration
		start  string
	}{
		{"2026-03-01T12:34:56Z", time.Minute, "2026-03-01T12:34:00Z"},
		{"2026-03-01T12:34:56Z", 24 * time.Hour, "2026-03-01T00:00:00Z"},
		{"2026-03-04T12:34:56Z", 7 * 24 * time.Hour, "2026-03-02T00:00:00Z"}, // a Monday
		{"2023-12-31T23:59:59Z", time.Hour, "2023-12-31T23:00:00Z"},
		{"2023-12-31T23:00:00Z", time.Hour, "2023-12-31T23:00:00Z"},
	} {
		at, _ := time.Parse(time.RFC3339, c.at)
		want, _ := time.Parse(time.RFC3339, c.start)
		if w := windowAt(clock.Nanos(at), c.length); w.start != clock.Nanos(want) || w.end != w.start+int64(c.length) {
			t.Errorf("%s in windows of %s: %+v, want %s", c.at, c.length, w, c.start)
		}
	}
}

func TestPercentOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		used, burst int64
		want        int
	}{
		{-5, 1000, 0},
		{0, 1000, 0},
		{799, 1000, 79},
		{800, 1000, 80},
		{1000, 1000, 100},
		{1e18 - 1, 1e18, 99},
		{1e18, 1e18, 100},
		{1<<63 - 1, 1000, 1<<31 - 1},
	} {
		if got := percentOf(c.used, c.burst); got != c.want {
			t.Errorf("%d of %d are %d%%, want %d%%", c.used, c.burst, got, c.want)
		}
	}
}
