package record

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/calendar"
)

// Bounded are limits that begin or end at a known time. While they last, they cover those that their scope has
// otherwise: by limits of their own, or by Scale times the covered ones.
type Bounded struct {
	From   calendar.Instant `json:"from,omitzero"`  // none: they have begun
	Until  calendar.Instant `json:"until,omitzero"` // none: they never end
	Scale  int64            `json:"scale,omitempty"`
	Limits []Limit          `json:"limits,omitempty"`
}

const (
	// MaxBounded is how many bounded sets of limits a scope has, with those that have ended.
	MaxBounded = 5
	// MaxScale is the largest scale.
	MaxScale = 1000
	// KeepEnded is how long a bounded set of limits is kept once it has ended.
	KeepEnded = 7 * 24 * time.Hour
)

// bounds returns when the limits begin and end, in nanoseconds since the clock's epoch.
func (b *Bounded) bounds() (from, until int64) {
	from, until = math.MinInt64, math.MaxInt64
	if !b.From.IsZero() {
		from = clock.Nanos(b.From.Time())
	}
	if !b.Until.IsZero() {
		until = clock.Nanos(b.Until.Time())
	}
	return from, until
}

// Ended reports whether the limits have ended by a time.
func (b *Bounded) Ended(now time.Time) bool {
	return !b.Until.IsZero() && !now.Before(b.Until.Time())
}

// Of returns the limits by which covered ones are covered. Balances are not scaled.
func (b *Bounded) Of(covered []Limit) []Limit {
	if b.Scale == 0 {
		return b.Limits
	}
	scaled := slices.Clone(covered)
	for i := range scaled {
		l := &scaled[i]
		l.Burst = cmp.Or(l.Burst, l.Amount) * b.Scale
		l.Amount *= b.Scale
		l.Slots *= b.Scale
		l.Former.Amount *= b.Scale
		l.Former.Burst *= b.Scale
		l.Former.Slots *= b.Scale
	}
	return scaled
}

// validate returns the set with the bursts of its limits filled in, given the limits that it covers.
func (b Bounded) validate(covered []Limit) (_ Bounded, err error) {
	switch {
	case b.From.IsZero() && b.Until.IsZero():
		return b, Invalid("until", "is missing: limits that neither begin nor end are those of the scope itself")
	case !b.From.IsZero() && !b.Until.IsZero() && !b.From.Time().Before(b.Until.Time()):
		return b, Invalid("until", "must be after from: %s is not after %s", b.Until, b.From)
	case b.Scale != 0 && len(b.Limits) > 0:
		return b, Invalid("scale", "cannot be combined with limits: give either")
	case b.Scale < 0 || b.Scale > MaxScale:
		return b, Invalid("scale", "must be between 1 and %d", MaxScale)
	case b.Scale > 0 && len(covered) == 0:
		return b, Invalid("scale", "has nothing to scale: the scope has no limits of its own, and those of a plan "+
			"or another level are not scaled: give limits instead")
	}
	limits, err := ValidateLimits(b.Of(covered))
	if err != nil {
		return b, err
	}
	balances := func(l Limit) bool { return l.Balance }
	if at := slices.IndexFunc(b.Limits, balances); at >= 0 {
		return b, Invalid("limit "+b.Limits[at].Name, "is a balance, which neither begins nor ends: with scale, it is "+
			"spent as before")
	}
	if at := slices.IndexFunc(covered, balances); at >= 0 && b.Scale == 0 {
		return b, Invalid("limits", "would hide the balance %q: use scale, which leaves it as it is", covered[at].Name)
	}
	if b.Scale == 0 {
		b.Limits = limits
	}
	return b, nil
}

// Forget leaves out the bounded sets of limits that ended longer than [KeepEnded] ago.
func (l *Limits) Forget(now time.Time) {
	l.Bounded = slices.DeleteFunc(slices.Clone(l.Bounded), func(b Bounded) bool { return b.Ended(now.Add(-KeepEnded)) })
}

// CheckBounded checks the bounded sets of limits and sorts them. Those that ended long ago are left out, and so is the
// oldest that has ended if there are too many.
func (l *Limits) CheckBounded(now time.Time) error {
	l.Forget(now)
	var all []Bounded
	for _, b := range l.Bounded {
		valid, err := b.validate(l.Limits)
		if err != nil {
			return err
		}
		all = append(all, valid)
	}
	slices.SortFunc(all, func(a, b Bounded) int {
		from, _ := a.bounds()
		other, _ := b.bounds()
		return cmp.Compare(from, other)
	})
	for i := 1; i < len(all); i++ {
		_, until := all[i-1].bounds()
		if from, _ := all[i].bounds(); from < until {
			return Invalid("from", "the limits %s overlap those %s: give times that do not, or remove the others first",
				all[i].Span(), all[i-1].Span())
		}
	}
	if len(all) > MaxBounded && all[0].Ended(now) {
		all = all[len(all)-MaxBounded:]
	}
	if len(all) > MaxBounded {
		return Invalid("limits", "of a scope begin and end at most %d times: remove others first", MaxBounded)
	}
	l.Bounded = all
	return nil
}

// Span returns when the limits hold: "from … until …".
func (b *Bounded) Span() string {
	switch {
	case b.From.IsZero():
		return "until " + b.Until.String()
	case b.Until.IsZero():
		return "from " + b.From.String()
	}
	return "from " + b.From.String() + " until " + b.Until.String()
}

// Stage is what a scope's limits are from a time on, until the next stage.
type Stage struct {
	From   int64            // nanoseconds since the clock's epoch; of the first stage, the least int64
	At     calendar.Instant // the same; none of the first stage
	Limits []Limit
}

// Stages returns what the scope's limits are in the course of time; nil if they always are the same.
func (l *Limits) Stages() (stages []Stage) {
	if len(l.Bounded) == 0 {
		return nil
	}
	last, at := int64(math.MinInt64), calendar.Instant{}
	for i := range l.Bounded {
		b := &l.Bounded[i]
		from, until := b.bounds()
		if from > last {
			stages = append(stages, Stage{last, at, l.Limits})
		}
		stages = append(stages, Stage{from, b.From, b.Of(l.Limits)})
		last, at = until, b.Until
	}
	if last < math.MaxInt64 {
		stages = append(stages, Stage{last, at, l.Limits})
	}
	return stages
}
