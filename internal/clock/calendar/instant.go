package calendar

import (
	"fmt"
	"strings"
	"time"
)

// Instant is a time to the second, with the time zone that it is written in. The zero value is none. Instants that are
// written alike are equal.
type Instant struct {
	unix int64
	zone string // "" for those that are written in UTC, as of RFC 3339
}

// InstantOf returns a time as an instant in UTC, cut to the second. The zero time is none.
func InstantOf(t time.Time) Instant {
	if t.IsZero() {
		return Instant{}
	}
	return Instant{unix: t.Unix()}
}

// InZone returns a time that Time returned as the instant that it is of.
func InZone(t time.Time) Instant {
	i := InstantOf(t)
	if name := t.Location().String(); !i.IsZero() && name != "UTC" {
		i.zone = name
	}
	return i
}

// ParseInstant reads a local time with its zone, as 2026-12-04T18:00@Europe/Berlin, of which the seconds may be given
// and the time of day left out, or a time of RFC 3339. Of a local time that occurs twice, it is the first; one that is
// skipped is an error.
func ParseInstant(text string) (Instant, error) {
	local, name, zoned := strings.Cut(text, "@")
	if !zoned {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil || t.Nanosecond() != 0 {
			return Instant{}, fmt.Errorf("%q is not a time: write 2026-12-04T18:00@Europe/Berlin or "+
				"2026-12-04T17:00:00Z", text)
		}
		return Instant{unix: t.Unix()}, nil
	}
	loc, err := zone(name)
	if err != nil {
		return Instant{}, fmt.Errorf("%q: %w", text, err)
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02", "2006-01-02T15:04:05"} {
		wall, err := time.Parse(layout, local)
		if err != nil {
			continue
		}
		found := Instant{}
		for _, near := range []time.Duration{24 * time.Hour, -24 * time.Hour} { // the offset before or after a change
			_, offset := wall.Add(near).In(loc).Zone()
			t := wall.Add(-time.Duration(offset) * time.Second)
			if t.In(loc).Format(layout) == local && (found == Instant{} || t.Unix() < found.unix) {
				found = Instant{t.Unix(), name}
			}
		}
		if (found == Instant{}) {
			return found, fmt.Errorf("%q does not exist: the clocks of %s skip it", local, name)
		}
		return found, nil
	}
	return Instant{}, fmt.Errorf("%q is not a time: write 2026-12-04T18:00@Europe/Berlin", text)
}

// Second returns the second of two instants with the same local time, in UTC, if this is the first.
func (i Instant) Second() (Instant, bool) {
	t := i.Time()
	_, offset := t.Zone()
	_, later := t.Add(24 * time.Hour).Zone()
	again := t.Add(time.Duration(offset-later) * time.Second)
	return Instant{unix: again.Unix()}, again.After(t) && again.Format(time.DateTime) == t.Format(time.DateTime)
}

// Time returns the instant in its zone; the zero time for none.
func (i Instant) Time() time.Time {
	if i.IsZero() {
		return time.Time{}
	}
	t := time.Unix(i.unix, 0).UTC()
	if loc, err := zone(i.zone); i.zone != "" && err == nil {
		t = t.In(loc)
	}
	return t
}

// IsZero reports whether there is no instant.
func (i Instant) IsZero() bool { return i == Instant{} }

// String returns what [ParseInstant] reads; "" for none.
func (i Instant) String() string {
	switch t := i.Time(); {
	case i.IsZero():
		return ""
	case i.zone == "":
		return t.Format(time.RFC3339)
	case t.Second() != 0:
		return t.Format("2006-01-02T15:04:05") + "@" + i.zone
	default:
		return t.Format("2006-01-02T15:04") + "@" + i.zone
	}
}

// MarshalText returns what String returns.
func (i Instant) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText parses what [ParseInstant] does, and reads nothing as none.
func (i *Instant) UnmarshalText(text []byte) (err error) {
	if *i = (Instant{}); len(text) > 0 {
		*i, err = ParseInstant(string(text))
	}
	return err
}
