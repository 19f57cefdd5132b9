package admin

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/internal/policy/record"
)

// Thresholds are the percentages of a limit's burst at which [weir.Observer.NearLimit] is called: from 1 to 100,
// ascending, at most 8. Nil means the default of 80, 95 and 100; empty but not nil means none.
type Thresholds []int

// ParseThresholds parses percentages separated by commas, none (or "") for none, and default for the default.
func ParseThresholds(text string) (Thresholds, error) {
	switch text {
	case "default":
		return nil, nil
	case "", "none":
		return Thresholds{}, nil
	}
	t := Thresholds{}
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil {
			return nil, configErr("near_limit", "%q is not a percentage such as 80", part)
		}
		t = append(t, n)
	}
	return t, t.Validate()
}

// String returns the text that [ParseThresholds] reads.
func (t Thresholds) String() string {
	switch {
	case t == nil:
		return "default"
	case len(t) == 0:
		return "none"
	}
	texts := make([]string, len(t))
	for i, n := range t {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ",")
}

// Validate reports what is wrong with thresholds, as a [*weir.ConfigError].
func (t Thresholds) Validate() error {
	if len(t) > meter.MaxThresholds {
		return configErr("near_limit", "has %d thresholds, at most %d are allowed", len(t), meter.MaxThresholds)
	}
	for i, n := range t {
		switch {
		case n < 1 || n > 100:
			return configErr("near_limit", "%d is not a percentage from 1 to 100", n)
		case i > 0 && n <= t[i-1]:
			return configErr("near_limit", "%d comes after %d: the thresholds must ascend", n, t[i-1])
		}
	}
	return nil
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
