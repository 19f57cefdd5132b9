package record

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/calendar"
)

func parseCount(s string) (int64, error) {
	unit := int64(1)
	if n := len(s); n > 0 {
		switch s[n-1] {
		case 'k', 'K':
			unit, s = 1_000, s[:n-1]
		case 'm', 'M':
			unit, s = 1_000_000, s[:n-1]
		}
	}
	if s == "" {
		return 0, fmt.Errorf("is not a number")
	}
	for _, r := range s {
		switch {
		case r == '-':
			return 0, fmt.Errorf("must not be negative")
		case r == '.' || r == ',':
			return 0, fmt.Errorf("must be a whole number")
		case r < '0' || r > '9':
			return 0, fmt.Errorf("is not a whole number, optionally with K or M")
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("is too large")
	}
	return n * unit, nil
}

// units are ordered from longest to shortest, each with its names; String prints the first.
var units = []struct {
	length time.Duration
	names  []string
}{
	{7 * 24 * time.Hour, []string{"w", "week", "weeks"}},
	{24 * time.Hour, []string{"day", "d", "days"}},
	{time.Hour, []string{"hour", "h", "hr", "hours"}},
	{time.Minute, []string{"min", "m", "minute", "minutes"}},
	{time.Second, []string{"s", "sec", "second", "seconds"}},
	{time.Millisecond, []string{"ms"}},
	{time.Microsecond, []string{"us", "µs"}},
	{time.Nanosecond, []string{"ns"}},
}

// balanceText stands for the amount and the period of a balance; slotsText follows the number of slots.
const balanceText, slotsText = "balance", "slots"

// parsePeriod reads a duration, or, with a time zone, a window of the calendar.
func parsePeriod(s string) (time.Duration, calendar.Window, error) {
	var none calendar.Window
	if strings.Contains(s, "@") {
		w, err := calendar.Parse(s)
		return 0, w, err
	}
	digits := 0
	for digits < len(s) && s[digits] >= '0' && s[digits] <= '9' {
		digits++
	}
	n := int64(1)
	if digits > 0 {
		var err error
		if n, err = strconv.ParseInt(s[:digits], 10, 64); err != nil {
			return 0, none, fmt.Errorf("is too long")
		}
	}
	for _, u := range units {
		for _, name := range u.names {
			if s[digits:] != name {
				continue
			}
			if n <= 0 {
				return 0, none, fmt.Errorf("must be positive")
			}
			if n > int64(clock.MaxPeriod/u.length) {
				return 0, none, fmt.Errorf("must be at most 366 days")
			}
			return time.Duration(n) * u.length, none, nil
		}
	}
	unit, _, _ := strings.Cut(s[digits:], "+")
	if days := map[string]int{"month": 30, "quarter": 90, "year": 365}[unit]; days > 0 {
		return 0, none, fmt.Errorf("needs a time zone: write %s@UTC for one of the calendar, or %dd for %[2]d days",
			unit, days)
	}
	return 0, none, fmt.Errorf("needs a unit: ms, s, min, h, d or w, or a window of the calendar such as month@UTC")
}

func formatCount(n int64) string {
	switch {
	case n != 0 && n%1_000_000 == 0:
		return strconv.FormatInt(n/1_000_000, 10) + "M"
	case n >= 10_000 && n%1_000 == 0:
		return strconv.FormatInt(n/1_000, 10) + "K"
	}
	return strconv.FormatInt(n, 10)
}

// FormatPeriod returns what follows the amount and a slash in the text of a limit: the period or window; or, of a limit
// of slots, what follows their number: "slots", with the heal time unless it is the default. With none of these, the
// limit is a balance.
func FormatPeriod(d time.Duration, w calendar.Window, heal time.Duration) string {
	switch {
	case heal == DefaultHeal:
		return slotsText
	case heal != 0:
		return slotsText + "/" + FormatPeriod(heal, calendar.Window{}, 0)
	case w != calendar.Window{}:
		return w.String()
	case d == 0:
		return balanceText
	}
	for _, u := range units {
		if n := d / u.length; d > 0 && d%u.length == 0 {
			if n == 1 {
				return u.names[0]
			}
			return strconv.FormatInt(int64(n), 10) + u.names[0]
		}
	}
	return d.String()
}
