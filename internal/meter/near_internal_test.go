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
	var o nearLook
	tell := func(i int) bool {
		window := sent{start: int64(i), end: int64(i + 1)} // each window is later than those before
		return n.see(nearKey{bucket: store.Bucket{Entity: fmt.Sprint(i)}, limit: "tpm"}, &o,
			&usage{thresholds: []int{80}, window: window, high: 90}) != 0
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
		var o nearLook
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
			got := n.see(nearKey{limit: "tpm"}, &o, &usage{
				thresholds: ts, window: sent{start: l.window, end: l.window + 1}, low: l.low, high: l.high,
			})
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

// Events of a quota come once per window of the calendar, not per minute, also if a debt fills the next window.
func TestNearQuota(t *testing.T) {
	t.Parallel()
	var events []Event
	n := newNear(func(_ context.Context, e Event) { events = append(events, e) })
	month := &store.Limit{Name: "usd", Amount: 1000, Burst: 1000}
	if err := month.Window.UnmarshalText([]byte("month@Europe/Berlin")); err != nil {
		t.Fatal(err)
	}
	begin := time.Date(2026, time.October, 31, 23, 0, 0, 0, time.UTC)
	for i := range 10 {
		at := begin.Add(time.Duration(i) * 10 * 24 * time.Hour / 3) // a month, and a second one from the tenth on
		now := clock.Nanos(at)
		lv := store.Level{Limit: month, Level: month.Params().Clock(now) + 900}
		n.look(t.Context(), "default", store.Bucket{Entity: "e"}, &lv, &nearLook{at: at, now: now, moved: 1})
	}
	if len(events) != 4 {
		t.Fatalf("%+v", events)
	}
	for i, percent := range []int{50, 80, 50, 80} { // 100 is not reached
		e, start := &events[i], begin.Add(time.Duration(i/2)*30*24*time.Hour)
		length := time.Duration(30+i/2) * 24 * time.Hour
		if e.Percent != percent || !e.WindowStart.Equal(start) || e.WindowLength != length || e.ID == events[(i+2)%4].ID {
			t.Errorf("%+v, want %d %% from %s for %s", e, percent, start, length)
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

// Slots are reported when they refuse.
func TestNearSlots(t *testing.T) {
	t.Parallel()
	var events []Event
	n := newNear(func(_ context.Context, e Event) { events = append(events, e) })
	lv := store.Level{Limit: store.Slots("parallel", 5000, time.Minute), Level: 5000, Refused: true}
	for _, refused := range []bool{false, true, true} {
		n.look(t.Context(), "default", store.Bucket{Entity: "e"}, &lv, &nearLook{refused: refused})
	}
	if len(events) != 1 || events[0].Kind != Refusal {
		t.Errorf("%+v", events)
	}
}
