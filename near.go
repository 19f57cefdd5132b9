package weir

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir/store"
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
	NearThreshold NearLimitKind = "threshold" // usage of the burst has reached a threshold
	NearRefused   NearLimitKind = "refused"   // the first refusal in an hour
)

// Thresholds are the percentages of a limit's burst at which [Observer.NearLimit] is called: from 1 to 100, ascending,
// at most 8. Nil means the default of 80, 95 and 100; empty but not nil means none.
type Thresholds []int

// maxThresholds is the maximum number of thresholds.
const maxThresholds = 8

var defaultThresholds = Thresholds{80, 95, 100}

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

// id returns the event's ID for receivers. Ids of entities and limits contain no zero byte.
func (e *NearLimitEvent) id(space string) string {
	percent := e.Percent
	if e.Kind == NearRefused {
		percent = 0
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{
		space, e.Entity, e.Resource, e.Limit, strconv.FormatBool(e.Override), string(e.Kind), strconv.Itoa(percent),
		strconv.FormatInt(e.WindowStart.UnixNano(), 10), strconv.FormatInt(int64(e.WindowLength), 10),
	}, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// observeNear reports the limits that a decision has brought near their end, and those that refused.
func (l *Limiter) observeNear(ctx context.Context, t Thresholds, debits []store.Debit, out store.Outcome) {
	n := l.core.near
	if n == nil {
		return
	}
	o := nearLook{thresholds: t.orDefault(), at: out.At, now: nanosOf(out.At)}
	at := 0
	for i := range debits {
		for j := range debits[i].Charges {
			c, lv := &debits[i].Charges[j], &out.Levels[at]
			at++
			o.shadow, o.refused, o.moved = c.Shadow, lv.Refused && !c.Shadow && !out.Allowed, 0
			if out.Allowed && !(c.Shadow && lv.Refused) {
				o.moved = c.Amount
			}
			n.look(ctx, l, debits[i].Bucket, lv, &o)
		}
	}
}

// nearAdjusted is observeNear for a change of what the lease holds.
func (le *Lease) nearAdjusted(ctx context.Context, debits []store.Debit, out store.Outcome) {
	n := le.lim.core.near
	if n == nil {
		return
	}
	charges := 0
	for i := range debits {
		charges += len(debits[i].Charges)
	}
	if charges != len(out.Levels) {
		return // tokens came back to a bucket that is gone: the next decision reports the others
	}
	p := le.plan
	if p.chain == nil { // the plan of a lease that was held
		var err error
		if _, p, err = le.lim.plan(context.WithoutCancel(ctx), p.entity, p.resource, !le.overrides()); err != nil {
			return // the next decision reports it
		}
	}
	o := nearLook{thresholds: p.nearLimit.orDefault(), at: out.At, now: nanosOf(out.At)}
	at := 0
	for i := range debits {
		for _, c := range debits[i].Charges {
			o.shadow, o.moved = !c.Limit.Override && p.shadowed(debits[i].Bucket, c.Limit.Name), c.Amount
			n.look(ctx, le.lim, debits[i].Bucket, &out.Levels[at], &o)
			at++
		}
	}
}

func (t Thresholds) orDefault() Thresholds {
	if t == nil {
		return defaultThresholds
	}
	return t
}

// overrides reports whether the request brought its own limits.
func (le *Lease) overrides() bool {
	return slices.ContainsFunc(le.debits, func(d store.Debit) bool {
		return slices.ContainsFunc(d.Charges, func(c store.Charge) bool { return c.Limit.Override })
	})
}

// shadowed reports whether a limit is in shadow for the bucket's entity.
func (p *plan) shadowed(b store.Bucket, limit string) bool {
	for i := range p.links {
		if p.links[i].bucket == b {
			at := slices.IndexFunc(p.links[i].limits, func(l store.Limit) bool { return l.Name == limit })
			return at >= 0 && p.links[i].shadow.has(at)
		}
	}
	return false
}
