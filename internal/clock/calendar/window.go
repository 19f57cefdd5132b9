// Package calendar counts the windows of the calendar: the hours, days, weeks, months, quarters and years of a time
// zone.
//
// Windows are numbered by the local date alone: months since January 2024, days since 1 January 2024, weeks since that
// Monday. Window k starts at the first instant whose local date is in window k or a later one, and ends where window
// k+1 starts. So the number never decreases, even where a local date comes twice, and every instant is in one window.
//
// Instants are nanoseconds since 2024-01-01T00:00:00Z. The functions depend on nothing but their arguments and the
// embedded time zone database.
package calendar

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A unit is the length of a window.
type unit uint8

const (
	hour unit = iota
	day
	week
	month
	quarter
	year
)

var (
	units    = []string{hour: "hour", day: "day", week: "week", month: "month", quarter: "quarter", year: "year"}
	weekdays = []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}
)

// Window is a kind of window: a unit, its first day, and a time zone. The zero value is none. Windows that are written
// alike are equal.
type Window struct{ of *windows }

// windows is what a [Window] points to. There is one for each text.
type windows struct {
	unit   unit
	anchor int // of a month: its first day, from 1; of a week: its first weekday, 0 being Monday
	zone   *time.Location
	last   atomic.Pointer[span] // the window asked for last
}

// span is window k, from an instant until before another.
type span struct{ k, from, to int64 }

var kinds sync.Map // of *windows, by text

// Parse reads the text form of a window: unit[+anchor]@zone, where unit is hour, day, week, month, quarter or year. The
// anchor is the first day: of a month, from 1 to 31, or its last day if it has fewer; of a week, from mon to sun. The
// zone is a name of the IANA database, whose case counts. An hour is in UTC.
//
//	month@Europe/Berlin   day@UTC   month+15@UTC   week+sun@Asia/Kolkata
func Parse(text string) (Window, error) {
	if w, ok := kinds.Load(text); ok {
		return Window{w.(*windows)}, nil
	}
	name, zoneName, ok := strings.Cut(text, "@")
	if !ok {
		return Window{}, errors.New("has no time zone: write a window as in month@UTC or month@Europe/Berlin")
	}
	w := new(windows)
	name, anchor, anchored := strings.Cut(name, "+")
	i := slices.Index(units, name)
	if i < 0 {
		return Window{}, fmt.Errorf("the unit %q is not hour, day, week, month, quarter or year", name)
	}
	w.unit = unit(i)
	if err := w.setAnchor(anchor, anchored); err != nil {
		return Window{}, err
	}
	var err error
	if w.zone, err = zone(zoneName); err != nil {
		return Window{}, err
	}
	if w.unit == hour && w.zone != time.UTC {
		return Window{}, errors.New("an hour is in UTC: write hour@UTC")
	}
	had, _ := kinds.LoadOrStore(w.String(), w) // the text without an anchor that changes nothing
	return Window{had.(*windows)}, nil
}

func (w *windows) setAnchor(text string, given bool) error {
	if w.unit == month {
		w.anchor = 1
	}
	if !given {
		return nil
	}
	switch w.unit {
	case week:
		if w.anchor = slices.Index(weekdays, text); w.anchor < 0 {
			return fmt.Errorf("the anchor %q is not a weekday: write mon, tue, wed, thu, fri, sat or sun", text)
		}
	case month:
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 31 || strconv.Itoa(n) != text {
			return fmt.Errorf("the anchor %q is not a day of a month: write 1 to 31", text)
		}
		w.anchor = n
	default:
		return fmt.Errorf("a %s has no anchor: only a month (month+15) and a week (week+sun) do", units[w.unit])
	}
	return nil
}

func (w *windows) String() string {
	text := units[w.unit]
	switch {
	case w.unit == month && w.anchor != 1:
		text += "+" + strconv.Itoa(w.anchor)
	case w.unit == week && w.anchor != 0:
		text += "+" + weekdays[w.anchor]
	}
	return text + "@" + w.zone.String()
}

// String returns the text that [Parse] reads, or "" for none.
func (w Window) String() string {
	if w.of == nil {
		return ""
	}
	return w.of.String()
}

// MarshalText returns the text that [Parse] reads, or nothing for none.
func (w Window) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads what MarshalText returns.
func (w *Window) UnmarshalText(text []byte) (err error) {
	if *w = (Window{}); len(text) > 0 {
		*w, err = Parse(string(text))
	}
	return err
}

// Equal reports whether the windows are equal, for packages that compare values by reflection.
func (w Window) Equal(o Window) bool { return w == o }

// Unit returns the window's unit, such as "month", or "" for none.
func (w Window) Unit() string {
	if w.of == nil {
		return ""
	}
	return units[w.of.unit]
}

// Zone returns the window's time zone, or nil for none.
func (w Window) Zone() *time.Location {
	if w.of == nil {
		return nil
	}
	return w.of.zone
}

// Index returns the number of the window that an instant is in. It never decreases as now grows.
func (w Window) Index(now int64) int64 { return w.of.at(now).k }

// Bounds returns where the window that an instant is in starts, and where the next one does. They saturate.
func (w Window) Bounds(now int64) (from, to int64) {
	s := w.of.at(now)
	return s.from, s.to
}

func (w *windows) at(now int64) *span {
	if s := w.last.Load(); s != nil && s.from <= now && now < s.to {
		return s
	}
	k := w.date(now)
	next := w.start(k + 1)
	for next <= now && next < math.MaxInt64 { // the local date came back to the window before
		k++
		next = w.start(k + 1)
	}
	s := &span{k, w.start(k), next}
	w.last.Store(s)
	return s
}

// Start returns where window k starts. It saturates beyond what int64 holds.
func (w Window) Start(k int64) int64 { return w.of.start(k) }

const daysOf = int64(24 * time.Hour)

// date returns the number of the window of the local date at an instant.
func (w *windows) date(now int64) int64 {
	if w.unit == hour {
		return floorDiv(now, int64(time.Hour))
	}
	t := epoch.Add(time.Duration(now)).In(w.zone)
	y, m, d := t.Date()
	months := int64(y-2024)*12 + int64(m) - 1
	switch w.unit {
	case month:
		if d < min(w.anchor, lastDay(y, m)) {
			months--
		}
		return months
	case quarter:
		return floorDiv(months, 3)
	case year:
		return int64(y - 2024)
	default:
		days := int64(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Sub(epoch) / (24 * time.Hour))
		if w.unit == week {
			return floorDiv(days-int64(w.anchor), 7)
		}
		return days
	}
}

// first returns the first date of window k, as an instant in UTC; false if that is beyond what int64 holds.
func (w *windows) first(k int64) (int64, bool) {
	months := int64(1)
	switch w.unit {
	case hour:
		return scale(k, int64(time.Hour))
	case day:
		return scale(k, daysOf)
	case week:
		if k > math.MaxInt64/daysOf/7 || k < math.MinInt64/daysOf/7 {
			return 0, false
		}
		return scale(k*7+int64(w.anchor), daysOf)
	case quarter:
		months = 3
	case year:
		months = 12
	case month:
	}
	if k > 290*12/months || k < -290*12/months { // int64 holds 292 years
		return 0, false
	}
	k *= months
	y, m := int(2024+floorDiv(k, 12)), time.Month(k-floorDiv(k, 12)*12+1)
	d := 1
	if w.unit == month {
		d = min(w.anchor, lastDay(y, m))
	}
	return int64(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Sub(epoch)), true
}

// start returns the first instant whose local date is in window k or a later one. A zone's offset changes in steps; the
// date reaches the window within one of the steps that are less than a day from midnight in UTC, or where one begins.
func (w *windows) start(k int64) int64 {
	midnight, ok := w.first(k)
	if !ok || midnight > math.MaxInt64-daysOf || midnight < math.MinInt64+daysOf {
		if k > 0 {
			return math.MaxInt64
		}
		return math.MinInt64
	}
	if w.unit == hour {
		return midnight
	}
	from := midnight - daysOf
	for {
		t := epoch.Add(time.Duration(from)).In(w.zone)
		_, offset := t.Zone()
		_, end := t.ZoneBounds()
		if !end.IsZero() && !end.After(t) { // on the last day of a leap year, ZoneBounds ends the zone at its midnight
			end = t.Add(15 * time.Minute)
		}
		at := max(from, midnight-int64(offset)*int64(time.Second))
		if end.IsZero() || at < int64(end.Sub(epoch)) {
			return at
		}
		from = int64(end.Sub(epoch))
	}
}

var epoch = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)

func lastDay(y int, m time.Month) int { return time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day() }

func floorDiv(x, y int64) int64 {
	q := x / y
	if x%y < 0 {
		q--
	}
	return q
}

// scale returns k*length, or false if that is beyond what int64 holds.
func scale(k, length int64) (int64, bool) {
	if k > math.MaxInt64/length || k < math.MinInt64/length {
		return 0, false
	}
	return k * length, true
}
