package replay

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// layouts are the formats of timestamps that are not plain numbers. Without a zone they are UTC.
var layouts = []string{
	time.RFC3339Nano,
	apacheTime,
	"2006-01-02T15:04:05.999999999-0700",
	"2006-01-02T15:04:05.999999999",
	"2006-01-02 15:04:05.999999999Z07:00",
	"2006-01-02 15:04:05.999999999",
}

const apacheTime = "02/Jan/2006:15:04:05 -0700"

// parseStamp parses a timestamp: a layout, or seconds, milli-, micro- or nanoseconds since 1970, distinguished by
// magnitude.
func parseStamp(text string) (nanos int64, err error) {
	if text == "" {
		return 0, fmt.Errorf("has an empty time")
	}
	if c := text[len(text)-1]; c >= '0' && c <= '9' && !strings.ContainsAny(text, ":/") {
		return parseUnix(text)
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, text); err == nil {
			if t.Year() < 1700 || t.Year() > 2200 {
				return 0, fmt.Errorf("has the time %q: out of range", text)
			}
			return t.UnixNano(), nil
		}
	}
	return 0, fmt.Errorf(
		"has the time %q: not RFC 3339, 17/May/2015:10:05:03 +0000, or seconds or milliseconds since 1970", text,
	)
}

// parseUnix parses a decimal number of seconds or smaller units since 1970.
func parseUnix(text string) (int64, error) {
	whole, frac, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("has the time %q: not a number since 1970", text)
	}
	unit := int64(time.Second)
	for unit > 1 && n >= 100_000_000_000*(int64(time.Second)/unit) { // as seconds, the year 5138
		unit /= 1000
	}
	if n > math.MaxInt64/unit-1 {
		return 0, fmt.Errorf("has the time %q: out of range", text)
	}
	nanos := n * unit
	for _, c := range frac {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("has the time %q: not a number since 1970", text)
		}
		unit /= 10
		nanos += int64(c-'0') * unit
	}
	return nanos, nil
}
