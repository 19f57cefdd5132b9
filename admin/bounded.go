package admin

import (
	"context"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/internal/policy/record"
)

// Instant is a time to the second, with the time zone in which it is shown. Its text is that of a local time with its
// zone, as 2026-12-04T18:00@Europe/Berlin, or of RFC 3339. Of a local time that occurs twice, it is the first. The zero
// value is none. Instants that are written alike are equal.
type Instant = calendar.Instant

// InstantOf returns a time as an instant in UTC, cut to the second.
func InstantOf(t time.Time) Instant { return calendar.InstantOf(t) }

// Bounded are limits of a scope that begin or end at a known time. While they last, they cover those that the scope has
// otherwise, by limits of their own, or by Scale (1 to 1,000) times the scope's own. All processes change over at the
// same instant, without a write: what was spent stays spent, and counts at most as one whole window of a quota.
type Bounded struct {
	From   Instant      `json:"from,omitzero"`  // the zero value: at once
	Until  Instant      `json:"until,omitzero"` // the zero value: they do not end
	Scale  int64        `json:"scale,omitempty"`
	Limits []weir.Limit `json:"limits,omitempty"`
}

func publicBounded(rs []record.Bounded) (bs []Bounded) {
	for _, r := range rs {
		bs = append(bs, Bounded{r.From, r.Until, r.Scale, publicLimits(r.Limits)})
	}
	return bs
}

// Ended reports whether the limits have ended by a time.
func (b *Bounded) Ended(at time.Time) bool { return (&record.Bounded{Until: b.Until}).Ended(at) }

// At returns the limits that the scope has at a time, by which those that begin or end are judged.
func (sl *ScopedLimits) At(t time.Time) []weir.Limit {
	for _, b := range sl.Bounded {
		if !b.Ended(t) && !t.Before(b.From.Time()) {
			r := record.Bounded{Scale: b.Scale, Limits: storedLimits(b.Limits)}
			return publicLimits(r.Of(storedLimits(sl.Limits)))
		}
	}
	return sl.Limits
}

// record returns the stored form in a scope, with the bursts of the limits filled in.
func (b *Bounded) record(sc Scope) (r record.Bounded, err error) {
	r = record.Bounded{From: b.From, Until: b.Until, Scale: b.Scale}
	if len(b.Limits) > 0 {
		r.Limits, err = sc.valid(b.Limits)
	}
	return r, err
}

// SetBounded adds limits that begin or end to a scope, at most five sets, in place of those that begin at the same
// time. The first change of a scope a week after some have ended removes them, with the audit event limits.ended.
// Errors, as a [*weir.ConfigError]: neither From nor Until is set, Until is not after From or has passed, the times
// overlap, there are both Limits and a Scale or neither, or nothing to scale, a limit is a balance, or the limits would
// hide one.
func (s *Limits) SetBounded(ctx context.Context, scope Scope, b Bounded) error {
	set, err := b.record(scope)
	if err == nil && set.Ended(time.Now()) {
		err = configErr("until", "has passed: %s", b.Until)
	}
	if err != nil {
		return err
	}
	return s.change(ctx, scope, "limits.bounded", func(lr *record.Limits) error {
		lr.Bounded = slices.DeleteFunc(slices.Clone(lr.Bounded), func(o record.Bounded) bool {
			return o.From == set.From && !o.Ended(time.Now())
		})
		lr.Bounded = append(lr.Bounded, set)
		return nil
	})
}

// DeleteBounded removes all limits of a scope that begin or end. If there are none, it returns [weir.ErrNotFound].
func (s *Limits) DeleteBounded(ctx context.Context, scope Scope) error {
	return s.change(ctx, scope, "limits.bounded", func(lr *record.Limits) error {
		if len(lr.Bounded) == 0 {
			return scope.missing()
		}
		lr.Bounded = nil
		return nil
	})
}
