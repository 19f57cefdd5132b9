package ledger_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/ledger"
)

// cell is the key of a ledger entry.
type cell struct {
	limit  string
	figure ledger.Figure
	hour   int64
}

// truth is what was counted in each hour and, for each limit, the most in a minute.
type truth map[cell]int64

// history is a bucket's life, with its ledger and all possible observations.
type history struct {
	truth   truth
	minutes map[string]map[int64]int64 // by limit: debited in each minute
	seen    []ledger.Observation       // in order
	last    []bool                     // the last of its birth and minute
}

// beginnings are start times of histories: before a midnight, a month's end, a leap day, a year's end, and before 1970.
var beginnings = []time.Time{
	time.Date(2026, time.March, 14, 23, 40, 0, 0, time.UTC),
	time.Date(2026, time.April, 30, 22, 30, 0, 0, time.UTC),
	time.Date(2028, time.February, 28, 23, 50, 0, 0, time.UTC),
	time.Date(2028, time.February, 29, 23, 30, 0, 0, time.UTC),
	time.Date(2026, time.December, 31, 23, 55, 0, 0, time.UTC),
	time.Date(1969, time.December, 31, 23, 0, 0, 0, time.UTC),
}

// limits are names that must not collide with anything in the stored form.
var limits = []string{"ttl", "window", "resource", "a#b/c", "rpm"}

// live draws a life of debits, returns, forced debits, refusals and rebirths.
func live(t *rapid.T, bucket store.Bucket, source string) *history {
	h := &history{truth: truth{}, minutes: map[string]map[int64]int64{}}
	now := rapid.SampledFrom(beginnings).Draw(t, "from")
	type counter struct {
		limit  string
		figure ledger.Figure
	}
	counters := map[counter]int64{}
	birth := uint64(1)
	observe := func() {
		o := ledger.Observation{Bucket: bucket, Source: source, Reading: ledger.Reading{ID: birth, Minute: ledger.MinuteOf(now)}}
		for c, v := range counters {
			o.Counts = append(o.Counts, ledger.Count{Limit: c.limit, Figure: c.figure, Value: v})
		}
		if n := len(h.seen); n > 0 && h.seen[n-1].ID == birth && h.seen[n-1].Minute == o.Minute {
			h.last[n-1] = false
		}
		h.seen = append(h.seen, o)
		h.last = append(h.last, true)
	}
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		switch rapid.IntRange(0, 9).Draw(t, "step") {
		case 0: // evicted, reset or expired: created again
			birth += uint64(rapid.IntRange(1, 1000).Draw(t, "ids"))
			clear(counters)
		case 1, 2:
			now = now.Add(time.Duration(rapid.IntRange(1, 5000).Draw(t, "seconds")) * time.Second)
		case 3:
			now = now.AddDate(0, 0, rapid.IntRange(1, 40).Draw(t, "days"))
		default:
			figure := rapid.SampledFrom([]ledger.Figure{ledger.Debited, ledger.Debited, ledger.Returned, ledger.Requests, ledger.Refused}).Draw(t, "figure")
			limit := rapid.SampledFrom(limits).Draw(t, "limit")
			if figure == ledger.Requests {
				limit = ""
			}
			n := rapid.Int64Range(1, 5000).Draw(t, "amount")
			counters[counter{limit, figure}] += n
			h.truth[cell{limit, figure, now.Truncate(time.Hour).Unix() / 3600}] += n
			if figure == ledger.Debited {
				if h.minutes[limit] == nil {
					h.minutes[limit] = map[int64]int64{}
				}
				h.minutes[limit][ledger.MinuteOf(now)] += n
			}
			observe()
		}
	}
	for limit, minutes := range h.minutes {
		for minute, n := range minutes {
			hour := time.Unix(minute*60, 0).UTC().Truncate(time.Hour).Unix()
			c := cell{limit, ledger.Peak, hour / 3600}
			h.truth[c] = max(h.truth[c], n)
		}
	}
	return h
}

func (l truth) apply(changes []ledger.Change) {
	for _, c := range changes {
		k := cell{c.Limit, c.Figure, c.Hour}
		if l[k] += c.Delta; l[k] == 0 {
			delete(l, k)
		}
	}
}

// TestAccountExact compares windows with a ledger, for readings that are repeated, late, out of order or, unless they are
// the last of a minute, missing.
func TestAccountExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := live(t, store.Bucket{}, "")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var come []ledger.Observation
		for i, o := range h.seen {
			n := rapid.IntRange(0, 2).Draw(t, "times")
			if h.last[i] {
				n = max(n, 1)
			}
			come = append(come, slices.Repeat([]ledger.Observation{o}, n)...)
		}
		rng.Shuffle(len(come), func(i, j int) { come[i], come[j] = come[j], come[i] })
		var a ledger.Account
		got := truth{}
		for i := range come {
			got.apply(a.Observe(&come[i].Reading, nil))
			if raw := a.Append(nil); true {
				if err := a.Decode(raw); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !maps.Equal(got, h.truth) {
			t.Fatalf("windows %v, want %v", got, h.truth)
		}
	})
}

// TestAccountOrder drops any readings except the last of each birth: the windows do not depend on the order of the rest,
// and their sum is what the counters say.
func TestAccountOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := live(t, store.Bucket{}, "")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var come []ledger.Observation
		for i, o := range h.seen {
			final := i == len(h.seen)-1 || h.seen[i+1].ID != o.ID
			if final || rapid.Bool().Draw(t, "comes") {
				come = append(come, o)
			}
		}
		fold := func() truth {
			var a ledger.Account
			l := truth{}
			for i := range come {
				l.apply(a.Observe(&come[i].Reading, nil))
			}
			return l
		}
		first := fold()
		rng.Shuffle(len(come), func(i, j int) { come[i], come[j] = come[j], come[i] })
		if second := fold(); !maps.Equal(first, second) {
			t.Fatalf("in another order %v, want %v", second, first)
		}
		if got, want := totals(first), totals(h.truth); !maps.Equal(got, want) {
			t.Fatalf("in all %v, want %v", got, want)
		}
	})
}

// totals returns the figures over all hours, without peaks.
func totals(l truth) map[cell]int64 {
	sums := map[cell]int64{}
	for c, v := range l {
		if c.figure != ledger.Peak {
			c.hour = 0
			sums[c] += v
		}
	}
	return sums
}

// TestAccountClosed compares an account that forgets what is over with a ledger: in order, with any reading repeated at
// any later time.
func TestAccountClosed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := live(t, store.Bucket{}, "")
		var a ledger.Account
		got := truth{}
		for i := range h.seen {
			got.apply(a.Observe(&h.seen[i].Reading, nil))
			a.Close(h.seen[i].Minute, true)
			again := rapid.IntRange(0, i).Draw(t, "again")
			if changes := a.Observe(&h.seen[again].Reading, nil); len(changes) > 0 {
				t.Fatalf("repeated, %d of %d changes %v", again, i, changes)
			}
		}
		if !maps.Equal(got, h.truth) {
			t.Fatalf("windows %v, want %v", got, h.truth)
		}
		if n := len(a.Append(nil)); n > 1000 {
			t.Fatalf("the account has grown to %d bytes", n)
		}
	})
}

func TestWindows(t *testing.T) {
	t.Parallel()
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct {
		window            store.Window
		in, start, beyond string
	}{
		{store.Hourly, "2028-02-29T23:59:59Z", "2028-02-29T23:00:00Z", "2028-03-01T00:00:00Z"},
		{store.Hourly, "2026-03-14T00:30:00+05:30", "2026-03-13T19:00:00Z", "2026-03-13T20:00:00Z"},
		{store.Daily, "2028-02-29T23:59:59Z", "2028-02-29T00:00:00Z", "2028-03-01T00:00:00Z"},
		{store.Daily, "2027-02-28T12:00:00Z", "2027-02-28T00:00:00Z", "2027-03-01T00:00:00Z"},
		{store.Monthly, "2028-02-29T23:59:59Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{store.Monthly, "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{store.Hourly, "1969-12-31T23:59:59Z", "1969-12-31T23:00:00Z", "1970-01-01T00:00:00Z"},
	} {
		start := c.window.Start(at(c.in))
		if !start.Equal(at(c.start)) || start.Location() != time.UTC {
			t.Errorf("%s of %s starts at %s, want %s", c.window, c.in, start, c.start)
		}
		if next := c.window.Next(start); !next.Equal(at(c.beyond)) {
			t.Errorf("after it comes %s, want %s", next, c.beyond)
		}
	}
}
