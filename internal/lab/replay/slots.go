package replay

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir"
)

// Held is for how long the requests of a log hold slots: Assumed, or what a field of each line counts in a unit.
type Held struct {
	Assumed time.Duration
	Field   string
	Unit    time.Duration
}

var heldUnits = map[string]time.Duration{
	"s": time.Second, "ms": time.Millisecond, "us": time.Microsecond, "ns": time.Nanosecond,
}

// UnmarshalText reads a duration, or FIELD:UNIT, with the unit s, ms, us or ns.
func (h *Held) UnmarshalText(text []byte) error {
	if d, err := time.ParseDuration(string(text)); err == nil && d > 0 {
		*h = Held{Assumed: d}
		return nil
	}
	at := strings.LastIndexByte(string(text), ':')
	unit := heldUnits[string(text[at+1:])]
	if at <= 0 || unit == 0 {
		return fmt.Errorf("%q is neither a duration such as 2s nor FIELD:UNIT, with the unit s, ms, us or ns", text)
	}
	*h = Held{Field: string(text[:at]), Unit: unit}
	return nil
}

// maxHeld is the longest time that a line holds slots.
const maxHeld = 1<<32 - 1

// of returns the milliseconds for which a line's request holds slots, of the text in its field.
func (h Held) of(text []byte) (uint32, error) {
	n, err := strconv.ParseFloat(string(text), 64)
	ms := n * float64(h.Unit) / float64(time.Millisecond)
	if err != nil || !(ms >= 0 && ms <= maxHeld) {
		return 0, fmt.Errorf("field %q is %.40q, not a time up to 49 days", h.Field, text)
	}
	return uint32(ms), nil
}

// holding is what is held at once: when each slot is given back, in order.
type holding []int64

// free reports whether a slot of n is free at a time.
func (h *holding) free(now, n int64) bool {
	back, _ := slices.BinarySearch(*h, now+1)
	*h = (*h)[back:]
	return int64(len(*h)) < n
}

// take holds one until a time.
func (h *holding) take(end int64) {
	i, _ := slices.BinarySearch(*h, end)
	*h = slices.Insert(*h, i, end)
}

// held is what entities hold of all limits of slots. Each line takes a slot of each, from its time on. None is lost:
// a log does not show who crashed.
type held struct {
	limits []weir.Limit
	by     map[[3]uint32]*holding // entity, resource, limit
}

// splitSlots returns the limits of slots, and the others.
func splitSlots(limits []weir.Limit) (slots *held, rates []weir.Limit) {
	slots = &held{by: make(map[[3]uint32]*holding)}
	for _, limit := range limits {
		if limit.Slots > 0 {
			slots.limits = append(slots.limits, limit)
		} else {
			rates = append(rates, limit)
		}
	}
	return slots, rates
}

// of returns what an entity holds on the resource of a line.
func (h *held) of(e *entry, limit int) *holding {
	key := [3]uint32{e.entity, e.resource, uint32(limit)}
	if h.by[key] == nil {
		h.by[key] = &holding{}
	}
	return h.by[key]
}

// refused returns the refusal of a line by limits of slots, or nil.
func (h *held) refused(e *entry) error {
	var d weir.Decision
	for i, l := range h.limits {
		if !h.of(e, i).free(e.at, l.Slots) {
			d.Statuses = append(d.Statuses, weir.LimitStatus{Limit: l.Name, Refused: true})
		}
	}
	if d.Statuses == nil {
		return nil
	}
	return &weir.ExceededError{Decision: d}
}

// take holds a slot of each limit for a line, unless it was refused.
func (h *held) take(e *entry, refused error) {
	for i := 0; refused == nil && i < len(h.limits); i++ {
		h.of(e, i).take(e.ends())
	}
}

// ends returns when a line gives its slots back.
func (e *entry) ends() int64 { return e.at + int64(e.held)*int64(time.Millisecond) }
