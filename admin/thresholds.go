package admin

import (
	"context"
	"slices"

	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/internal/policy/record"
)

// Thresholds are the percentages of a limit's burst at which [weir.Observer.NearLimit] is called: from 1 to 100,
// ascending, at most 8. Nil means the default of 80, 95 and 100, and for quotas 50, 80 and 100; empty but not nil means
// none, also for balances, which have no percentages.
type Thresholds []int

// ParseThresholds parses percentages separated by commas, none (or "") for none, and default for the default.
func ParseThresholds(text string) (Thresholds, error) {
	t, err := record.ParseThresholds(text)
	if err != nil {
		return nil, publicError(err)
	}
	return t, Thresholds(t).Validate()
}

// String returns the text that [ParseThresholds] reads.
func (t Thresholds) String() string { return record.FormatThresholds(t) }

// Validate reports what is wrong with thresholds, as a [*weir.ConfigError].
func (t Thresholds) Validate() error {
	return publicError(record.CheckThresholds(t, meter.MaxThresholds))
}

// Equal reports whether both mean the same. The default is not equal to a list of the same values.
func (t Thresholds) Equal(o Thresholds) bool { return slices.Equal(t, o) && (t == nil) == (o == nil) }

// SetNearLimit sets the thresholds at which [weir.Observer.NearLimit] is called for the namespace's limits.
func (s *Limits) SetNearLimit(ctx context.Context, t Thresholds) error {
	if err := t.Validate(); err != nil {
		return err
	}
	return s.change(ctx, Scope{}, "system.near_limit", func(lr *record.Limits) error {
		lr.NearLimit = slices.Clone(t)
		return nil
	})
}

// EntityRule is which entities requests of a namespace may name.
type EntityRule string

// The rules.
const (
	AnyEntity     EntityRule = ""                   // the default: created or not
	KnownEntities EntityRule = record.KnownEntities // those that were created; see [Entities.Create]
)

// Validate reports what is wrong with a rule, as a [*weir.ConfigError].
func (r EntityRule) Validate() error {
	if r != AnyEntity && r != KnownEntities {
		return configErr("entities", "must be known or any: %q", string(r))
	}
	return nil
}

// SetEntities sets which entities requests of the namespace may name. With [KnownEntities], others are refused with
// [weir.ErrUnknownEntity] before they cost a write, whatever on_unavailable is. A new entity is known at once, except
// to another process that has refused it since it last read that there is none: to that one, within
// [weir.Config.CacheTTL].
func (s *Limits) SetEntities(ctx context.Context, r EntityRule) error {
	if err := r.Validate(); err != nil {
		return err
	}
	return s.change(ctx, Scope{}, "system.entities", func(lr *record.Limits) error {
		lr.Entities = string(r)
		return nil
	})
}
