package calendar_test

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/clock/calendar"
)

func TestInstant(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, utc, shown string }{
		{"2026-12-04T18:00@Europe/Berlin", "2026-12-04T17:00:00Z", "2026-12-04T18:00@Europe/Berlin"},
		{"2026-12-04T18:00:30@Europe/Berlin", "2026-12-04T17:00:30Z", "2026-12-04T18:00:30@Europe/Berlin"},
		{"2026-12-04@Asia/Tokyo", "2026-12-03T15:00:00Z", "2026-12-04T00:00@Asia/Tokyo"},
		{"2026-12-04T18:00:00+01:00", "2026-12-04T17:00:00Z", "2026-12-04T17:00:00Z"},
		{"2026-12-04T18:00@UTC", "2026-12-04T18:00:00Z", "2026-12-04T18:00@UTC"},
		{"2026-10-25T02:30@Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T02:30@Europe/Berlin"}, // the first of two
		{"2026-04-24@Africa/Cairo", "2026-04-23T22:00:00Z", "2026-04-24T01:00@Africa/Cairo"},         // midnight is skipped
	} {
		i, err := calendar.ParseInstant(c.text)
		if err != nil || i.Time().UTC().Format(time.RFC3339) != c.utc || i.String() != c.shown {
			t.Errorf("%s: %v, %v", c.text, i, err)
		}
		again, err := calendar.ParseInstant(i.String())
		if err != nil || again != i {
			t.Errorf("%s: then %v, %v", c.text, again, err)
		}
	}
	for _, text := range []string{
		"", "tomorrow", "2026-12-04", "2026-12-04T18:00", "2026-12-04T18:00@Berlin", "2026-12-04T18:00:00.5Z",
		"2026-03-29T02:30@Europe/Berlin", // skipped
	} {
		if i, err := calendar.ParseInstant(text); err == nil {
			t.Errorf("%q: %v", text, i)
		}
	}
	var none calendar.Instant
	if err := none.UnmarshalText(nil); err != nil || !none.IsZero() || none.String() != "" || !none.Time().IsZero() {
		t.Errorf("none: %v, %v", none, err)
	}
}
