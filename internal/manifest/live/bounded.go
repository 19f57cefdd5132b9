package live

import (
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/delta"
)

// Lasting returns a record without limits that had ended by a time.
func Lasting(d admin.Declared, at time.Time) admin.Declared {
	if d.Limits == nil || !slices.ContainsFunc(d.Limits.Bounded, func(b admin.Bounded) bool { return b.Ended(at) }) {
		return d
	}
	l := *d.Limits
	l.Bounded = slices.DeleteFunc(slices.Clone(l.Bounded), func(b admin.Bounded) bool { return b.Ended(at) })
	d.Limits = &l
	return d
}

// Blank reports whether a record sets nothing.
func Blank(d *admin.Declared) bool { return d.Limits != nil && d.Limits.Empty() }

// LimitsAt returns the limits that a record has at a time, by name; nil if it has none.
func LimitsAt(d *admin.Declared, at time.Time) []weir.Limit {
	if d.Limits == nil {
		return nil
	}
	return delta.Sorted(d.Limits.At(at))
}

// Course returns when the limits of any of the records change: now, and whenever some begin or end from then on.
func Course(now time.Time, records ...*admin.Declared) []time.Time {
	all := []time.Time{now}
	for _, d := range records {
		if d.Limits == nil {
			continue
		}
		for _, b := range d.Limits.Bounded {
			for _, t := range []time.Time{b.From.Time(), b.Until.Time()} {
				if t.After(now) {
					all = append(all, t)
				}
			}
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return slices.CompactFunc(all, time.Time.Equal)
}
