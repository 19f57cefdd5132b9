package weir

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/meter"
)

// NearLimitEvent reports that an entity has used much of a limit, or that the limit refused it.
//
// An event is sent once per window, and only again in a later window after usage was below the threshold, as far as
// this process has seen. The same event has the same ID in every process, so a receiver can recognize repetitions from
// a fleet.
type NearLimitEvent struct {
	ID                          string // 32 hexadecimal digits
	Namespace, Entity, Resource string // of the limit: the entity may be a parent of the one in the request
	Limit                       string
	Override                    bool // the limit came with the request
	Shadow                      bool // the limit does not refuse this entity; see [Enforce]
	Kind                        NearLimitKind
	// Percent is the threshold that was reached; for a refusal, the used percentage of the burst, rounded down.
	Percent int
	Used    int64 // tokens used of the burst, rounded up; more than Of in debt
	Of      int64 // the burst in tokens
	// WindowStart and WindowLength are the window in which the event is sent once: for a threshold the limit's period,
	// at least a minute; for a refusal an hour. Windows are aligned to 2024-01-01T00:00:00Z, so to minutes, hours and
	// days in UTC.
	WindowStart  time.Time
	WindowLength time.Duration
	At           time.Time // the store's time
}

// NearLimitKind is the kind of a [NearLimitEvent].
type NearLimitKind string

// The kinds of NearLimitEvent.
const (
	NearThreshold NearLimitKind = meter.Threshold // usage of the burst has reached a threshold
	NearRefused   NearLimitKind = meter.Refusal   // the first refusal in an hour
)

// Thresholds are the percentages of a limit's burst at which [Observer.NearLimit] is called: from 1 to 100, ascending,
// at most 8. Nil means the default of 80, 95 and 100; empty but not nil means none.
type Thresholds []int

// maxThresholds is the maximum number of thresholds.
const maxThresholds = meter.MaxThresholds

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

// Validate reports what the limiter would reject in thresholds, as a [*ConfigError].
func (t Thresholds) Validate() error {
	if len(t) > maxThresholds {
		return configErr("near_limit", "has %d thresholds, at most %d are allowed", len(t), maxThresholds)
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

// SetNearLimit sets the thresholds at which [Observer.NearLimit] is called for the namespace's limits.
//
// Errors: [*ConfigError], [ErrConflict], [ErrNotFound] if the namespace does not exist, store errors.
func (l *Limiter) SetNearLimit(ctx context.Context, t Thresholds) error {
	if err := t.Validate(); err != nil {
		return err
	}
	return l.changeLimits(ctx, Scope{}, "system.near_limit", func(lr *limitsRecord) error {
		lr.NearLimit = slices.Clone(t)
		return nil
	})
}
