package history

import (
	"testing"
)

func TestCheckI1(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		events []event
		burst  int64
		ok     bool
	}{
		"nothing":                    {nil, 1, true},
		"a burst":                    {[]event{{debited: 10}}, 10, true},
		"more than a burst":          {[]event{{debited: 11}}, 10, false},
		"a burst in two":             {[]event{{debited: 5}, {debited: 5}}, 10, true},
		"one more":                   {[]event{{debited: 5}, {debited: 6}}, 10, false},
		"one more, issued":           {[]event{{debited: 5}, {debited: 6, clock: 1}}, 10, true},
		"two bursts after an idling": {[]event{{debited: 10, clock: 100}, {debited: 10, clock: 109}}, 10, false},
		"not from the start":         {[]event{{debited: 1}, {debited: 10, clock: 100}, {debited: 1, clock: 100}}, 10, false},
		"given back":                 {[]event{{debited: 10}, {returned: 4}, {debited: 4}}, 10, true},
		"given back too late":        {[]event{{debited: 10}, {debited: 4}, {returned: 4}}, 10, false},
		"given back before":          {[]event{{returned: 4}, {debited: 14}}, 10, false},
		"time ran back":              {[]event{{debited: 5, clock: 9}, {debited: 5, clock: 8}}, 10, false},
	} {
		if err := checkI1(tt.events, tt.burst); (err == nil) != tt.ok {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
