package calendar_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/internal/testkit/raced"
)

func parse(t testing.TB, text string) calendar.Window {
	t.Helper()
	w, err := calendar.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func at(t *testing.T, text string) int64 {
	t.Helper()
	instant, err := time.Parse("2006-01-02T15:04", text)
	if err != nil {
		t.Fatal(err)
	}
	return clock.Nanos(instant)
}

// TestVectors holds windows that were computed with another language's time zone library.
func TestVectors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		window   string
		k        int64
		from, to string
	}{
		{"month@UTC", 34, "2026-11-01T00:00", "2026-12-01T00:00"},
		{"month@Europe/Berlin", 34, "2026-10-31T23:00", "2026-11-30T23:00"},
		{"month+31@Europe/Berlin", 37, "2027-02-27T23:00", "2027-03-30T22:00"},
		{"day@America/New_York", 1033, "2026-10-30T04:00", "2026-10-31T04:00"},
		{"day@Africa/Cairo", 1032, "2026-10-28T21:00", "2026-10-29T22:00"},
		{"day@Africa/Cairo", 843, "2026-04-22T22:00", "2026-04-23T22:00"},
		{"day@America/Santiago", 979, "2026-09-06T04:00", "2026-09-07T03:00"},
		{"week@Asia/Kolkata", 150, "2026-11-15T18:30", "2026-11-22T18:30"},
		{"hour@UTC", 24, "2024-01-02T00:00", "2024-01-02T01:00"},
		{"quarter@UTC", 11, "2026-10-01T00:00", "2027-01-01T00:00"},
		{"year@Asia/Tokyo", 2, "2025-12-31T15:00", "2026-12-31T15:00"},
		{"week+sun@UTC", 0, "2024-01-07T00:00", "2024-01-14T00:00"},
		{"month@UTC", -1, "2023-12-01T00:00", "2024-01-01T00:00"},
		{"day@Pacific/Apia", -4385, "2011-12-30T10:00", "2011-12-30T10:00"}, // 30 December 2011 was skipped
		// At 0:01, clocks went back to 23:01 of the day before: the date came twice, the window does not.
		{"day@America/St_Johns", -4804, "2010-11-06T02:30", "2010-11-07T02:30"},
		{"day@America/St_Johns", -4803, "2010-11-07T02:30", "2010-11-08T03:30"},
	} {
		w := parse(t, tt.window)
		from, to := at(t, tt.from), at(t, tt.to)
		if got := w.Start(tt.k); got != from {
			t.Errorf("%s: window %d starts at %v, want %v", tt.window, tt.k, clock.Time(got), clock.Time(from))
		}
		if got := w.Start(tt.k + 1); got != to {
			t.Errorf("%s: window %d ends at %v, want %v", tt.window, tt.k, clock.Time(got), clock.Time(to))
		}
		if from < to && (w.Index(from) != tt.k || w.Index(to-1) != tt.k || w.Index(from-1) >= tt.k || w.Index(to) <= tt.k) {
			t.Errorf("%s: window %d is not found by its instants", tt.window, tt.k)
		}
	}
}

// TestZones holds what a window's clock promises, for every time zone and unit, from 2024 until 2060: the windows follow
// each other, every instant is in the window that starts last before it, and that is where its local date begins.
func TestZones(t *testing.T) {
	t.Parallel()
	end := clock.Nanos(time.Date(2060, 1, 1, 0, 0, 0, 0, time.UTC))
	names := calendar.Zones()
	if len(names) < 590 {
		t.Fatalf("%d time zones", len(names))
	}
	for _, unit := range []string{"hour", "day", "week", "week+sun", "month", "month+15", "month+31", "quarter", "year"} {
		t.Run(unit, func(t *testing.T) {
			t.Parallel()
			zones := names
			if unit == "hour" {
				zones = []string{"UTC"}
			}
			for _, zone := range zones {
				w := parse(t, unit+"@"+zone)
				date := func(now int64) int64 { return begun(unit, clock.Time(now).In(w.Zone())) }
				for now, k := int64(0), w.Index(0)-1; now < end; {
					from, to := w.Bounds(now)
					if k++; w.Index(now) < k || from > now || to <= now || k > 0 && from != now {
						t.Fatalf("%v: window %d, number %d: %v to %v", w, k, w.Index(now), clock.Time(from), clock.Time(to))
					}
					now, k = to, w.Index(now)
					if from <= 0 || unit == "day" && k%5 > 0 { // TestTransitions has the days whose beginning is odd
						continue
					}
					if first, before := date(from), date(from-1); first != k || before >= first {
						t.Fatalf("%v: window %d begins at %v, on a date of %d after %d", w, k, clock.Time(from), first, before)
					}
				}
			}
		})
	}
}

// begun returns the number of the window of a local date, by arithmetic of its own.
func begun(unit string, local time.Time) int64 {
	y, m, d := local.Date()
	days, months := 365*(y-2024)+(y-2021)/4-(y-2001)/100+(y-2001)/400+local.YearDay()-1, 12*(y-2024)+int(m)-1
	if y < 2024 { // the last day of 2023
		days, months = -1, -1
	}
	switch unit, anchor, _ := strings.Cut(unit, "+"); unit {
	case "hour":
		return int64(24*days + local.Hour())
	case "day":
		return int64(days)
	case "week":
		if anchor == "sun" {
			days -= 6
		}
		return int64((days+7)/7 - 1)
	case "month":
		if first, _ := strconv.Atoi(anchor); d < first && local.AddDate(0, 0, 1).Month() == m {
			months--
		}
		return int64(months)
	case "quarter":
		return int64((months+3)/3 - 1)
	default:
		return int64((months+12)/12 - 1)
	}
}

// TestTransitions compares days with the local dates of an ordinary walk through time, around every change of a zone's
// offset.
func TestTransitions(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	const step = 15 * time.Minute
	seen, changes := make(map[string]bool), 0
	for _, name := range calendar.Zones() {
		w := parse(t, "day@"+name)
		loc, last := w.Zone(), time.Date(2038, 1, 1, 0, 0, 0, 0, time.UTC)
		for at := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC); ; {
			_, next := at.In(loc).ZoneBounds()
			if !next.IsZero() && !next.After(at) {
				next = at.Add(24 * time.Hour)
			}
			if at = next; next.IsZero() || next.After(last) {
				break
			}
			if _, offset := next.Zone(); !seen[next.String()+string(rune(offset))] {
				seen[next.String()+string(rune(offset))] = true
				changes++
				walk(t, w, next.Truncate(step).Add(-3*24*time.Hour), step, 6*24*4)
			}
		}
	}
	t.Log(changes, "changes")
	if changes < 1000 {
		t.Errorf("%d changes", changes)
	}
}

func walk(t *testing.T, w calendar.Window, from time.Time, step time.Duration, steps int) {
	t.Helper()
	reached := int64(math.MinInt64)
	for i := range steps {
		now := from.Add(time.Duration(i) * step)
		if i%3 == 0 {
			w.Index(0) // otherwise the window of before is remembered
		}
		y, m, d := now.In(w.Zone()).Date()
		reached = max(reached, int64(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Sub(clock.Epoch).Hours()/24))
		if got := w.Index(clock.Nanos(now)); got != reached {
			t.Fatalf("%v: at %v, window %d, want %d", w, now, got, reached)
		}
	}
}

func TestAnyInstant(t *testing.T) {
	t.Parallel()
	names := calendar.Zones()
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom(names).Draw(t, "zone")
		unit := rapid.SampledFrom([]string{"day", "week+wed", "month", "month+30", "quarter", "year"}).Draw(t, "unit")
		w, err := calendar.Parse(unit + "@" + zone)
		if err != nil {
			t.Fatal(err)
		}
		now := rapid.Int64Range(math.MinInt64/2, math.MaxInt64/2).Draw(t, "now")
		if from, to := w.Bounds(now); from > now || to <= now || w.Start(w.Index(now)) != from {
			t.Fatalf("%d is not in its window, from %d to %d", now, from, to)
		}
		all := rapid.Int64()
		w.Index(all.Draw(t, "any instant")) // must not panic, nor hang
		if a, b := all.Draw(t, "k"), all.Draw(t, "l"); a <= b && w.Start(a) > w.Start(b) {
			t.Fatalf("window %d starts after window %d", a, b)
		}
	})
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"month@Europe/Berlin": "", "month+15@UTC": "", "week+sun@Asia/Kolkata": "", "hour@UTC": "", "day@UTC": "",
		"quarter@America/New_York": "", "year@UTC": "",
		"month+1@UTC": "month@UTC", "week+mon@UTC": "week@UTC",
	} {
		if want == "" {
			want = text
		}
		w := parse(t, text)
		raw, _ := w.MarshalText()
		var again calendar.Window
		if err := again.UnmarshalText(raw); err != nil || w.String() != want || w != parse(t, want) || w != again {
			t.Errorf("%s: %v, again %v, %v", text, w, again, err)
		}
	}
	for text, want := range map[string]string{
		"month": "has no time zone", "": "has no time zone", "month@": "write a name such as UTC",
		"month@Mars/Olympus": "write a name such as UTC", "month@Europe/Berln": "did you mean Europe/Berlin?",
		"month@new_york": "did you mean America/New_York?", "month@utc": "did you mean UTC?",
		"month@GMT+1": "write a name such as UTC", "month@PST": "write a name such as UTC",
		"month@europe/berlin": "did you mean Europe/Berlin?", "month@Local": "is unknown", "month@../UTC": "is unknown",
		"fortnight@UTC": "is not hour, day", "Month@UTC": "is not hour", "month+0@UTC": "write 1 to 31", "month+32@UTC": "write 1 to 31",
		"month+015@UTC": "write 1 to 31", "month+@UTC": "write 1 to 31", "week+sunday@UTC": "write mon",
		"day+3@UTC": "a day has no anchor", "year+1@UTC": "a year has no anchor", "hour@Asia/Kolkata": "in UTC",
		"month@UTC@UTC": "is unknown", "month@Africa": "time zone",
	} {
		if w, err := calendar.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %q", text, w, err, want)
		}
	}
}

// TestDatabase holds that the embedded database is the one that Go ships, where the version of Go is the same.
func TestDatabase(t *testing.T) {
	t.Parallel()
	lib := filepath.Join(runtime.GOROOT(), "lib", "time") //nolint:staticcheck // a test is run where it was built
	script, err := os.ReadFile(filepath.Join(lib, "update.bash"))
	if err != nil {
		t.Log("no database to compare with:", err)
		return
	}
	version := regexp.MustCompile(`(?m)^DATA=(\w+)`).FindSubmatch(script)
	if len(version) < 2 || string(version[1]) != calendar.TZData {
		t.Logf("Go has version %s, weir %s", version, calendar.TZData)
		return
	}
	theirs, err := os.ReadFile(filepath.Join(lib, "zoneinfo.zip"))
	ours, err2 := os.ReadFile("zoneinfo.zip")
	if err != nil || err2 != nil || !bytes.Equal(theirs, ours) {
		t.Errorf("zoneinfo.zip is not version %s: %v, %v", calendar.TZData, err, err2)
	}
}

func BenchmarkIndex(b *testing.B) {
	w, now := parse(b, "month@Europe/Berlin"), int64(2*365*24*time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		now += 1000
		w.Index(now)
	}
}
