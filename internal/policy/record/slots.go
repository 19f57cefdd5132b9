package record

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/store"
)

// DefaultHeal is the heal time of a limit of slots that names none.
const DefaultHeal = 30 * time.Second

// IsSlots reports whether a limit is one of slots, valid or not.
func (l Limit) IsSlots() bool { return l.Slots != 0 || l.Heal != 0 }

// defaultHeal is DefaultHeal as text.
const defaultHeal = "30s"

// cutSlots reports whether the end of a limit's text is that of slots, as in 20slots/30s, and returns its parts.
func cutSlots(text string) (count, heal string, ok bool) {
	count, heal, timed := strings.Cut(text, "/")
	if !timed {
		heal = defaultHeal
	}
	for _, unit := range []string{slotsText, "slot"} {
		if n, found := strings.CutSuffix(count, unit); found {
			return n, heal, true
		}
	}
	return "", "", false
}

// checkSlots returns the limit of slots with its heal time filled in, and what is wrong with it.
func (l Limit) checkSlots() (Limit, error) {
	l.Heal = cmp.Or(l.Heal, DefaultHeal)
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"amount", l.Amount != 0},
		{"period", l.Period != 0 || l.Window != (calendar.Window{}) || l.Balance},
		{"burst", l.Burst != 0},
		{"max_debt", l.MaxDebt != 0},
		{"returns", l.Strict},
	} {
		if f.has {
			return l, Invalid("limit "+l.Name+": "+f.name, "must be left out: a limit of slots has only slots and "+
				"heal; set a rate beside it as a limit of another name")
		}
	}
	switch {
	case l.Slots <= 0:
		return l, Invalid("limit "+l.Name+": slots", "must be positive")
	case l.Slots > MaxTokens:
		return l, Invalid("limit "+l.Name+": slots", "must be at most %d", int64(MaxTokens))
	}
	stored := l.Stored(false)
	if bad := stored.Params().Check(); bad != nil {
		return l, Invalid("limit "+l.Name+": "+bad.Field, "%s: %s", bad.Reason, l.Heal)
	}
	return l, nil
}

// storedSlots is Stored for a limit of slots.
func (l Limit) storedSlots(override bool) store.Limit {
	stored := *store.Slots(l.Name, l.Slots*1000, l.Heal)
	stored.Override = override
	return stored
}

// parseHeal reads a duration.
func parseHeal(text string) (time.Duration, error) {
	heal, window, err := parsePeriod(text)
	if err == nil && window != (calendar.Window{}) {
		err = errors.New("must be a time from 16s to 1h, as in 30s or 5min")
	}
	return heal, err
}
