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

// NearLimitEvent says that an entity has used much of a limit, or that the limit refused it.
//
// It is told once per window and not again until usage was below the threshold in a later one, as far as this process
// has seen. Of the same event every process has the same ID, so that a receiver can tell a fleet's repetitions.
type NearLimitEvent struct {
	ID                          string // 32 hexadecimal digits
	Namespace, Entity, Resource string // of the limit: the entity may be a parent of who asked
	Limit                       string
	Override                    bool // the limit came with the request
	Shadow                      bool // the limit does not refuse this entity; see [Enforce]
	Kind                        NearLimitKind
	// Percent is the threshold that was reached; of a refusal, how much of the burst was used, rounded down.
	Percent int
	Used    int64 // tokens of the burst, rounded up; more than Of in debt
	Of      int64 // tokens: the burst
	// WindowStart and WindowLength are the window in which it is told once: of a threshold the limit's period, at least
	// a minute; of a refusal an hour. Windows are aligned to 2024-01-01T00:00:00Z, so to minutes, hours and days UTC.
	WindowStart  time.Time
	WindowLength time.Duration
	At           time.Time // the store's time
}

// NearLimitKind is what a [NearLimitEvent] tells of.
type NearLimitKind string

// What a NearLimitEvent tells of.
const (
	NearThreshold NearLimitKind = "threshold" // so much of the burst is used
	NearRefused   NearLimitKind = "refused"   // the first refusal in an hour
)

// Thresholds are the percentages of a limit's burst at which [Observer.NearLimit] is called: from 1 to 100, ascending,
// at most 8. Nil is the default, 80, 95 and 100; empty but not nil is none.
type Thresholds []int

// maxThresholds is how many thresholds there are at most.
const maxThresholds = 8

var defaultThresholds = Thresholds{80, 95, 100}

// ParseThresholds reads percentages with commas between them, none (or "") for none, and default for the default.
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

// Validate reports what the limiter would refuse of thresholds, as a [*ConfigError].
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

// Equal reports whether both say the same: the default is not equal to a list that is the same now.
func (t Thresholds) Equal(o Thresholds) bool { return slices.Equal(t, o) && (t == nil) == (o == nil) }

// SetNearLimit sets at which shares of the namespace's limits [Observer.NearLimit] is called.
//
// Errors: [*ConfigError], [ErrConflict], [ErrNotFound] if the namespace does not exist, store trouble.
func (l *Limiter) SetNearLimit(ctx context.Context, t Thresholds) error {
	if err := t.Validate(); err != nil {
		return err
	}
	return l.changeLimits(ctx, Scope{}, "system.near_limit", func(lr *limitsRecord) error {
		lr.NearLimit = slices.Clone(t)
		return nil
	})
}

// id returns what names the event to receivers. Ids hold no zero byte.
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

// observeNear tells of the limits that a decision has brought near their end, or that refused it.
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
		return // something came back to a bucket that is gone: the next decision tells of the others
	}
	p := le.plan
	if p.chain == nil { // of a lease that was held
		var err error
		if _, p, err = le.lim.plan(context.WithoutCancel(ctx), p.entity, p.resource, !le.overrides()); err != nil {
			return // the next decision tells
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

// overrides reports whether the request brought its entity's limits along.
func (le *Lease) overrides() bool {
	return slices.ContainsFunc(le.debits, func(d store.Debit) bool {
		return slices.ContainsFunc(d.Charges, func(c store.Charge) bool { return c.Limit.Override })
	})
}

// shadowed reports whether a limit is in shadow for its bucket's entity.
func (p *plan) shadowed(b store.Bucket, limit string) bool {
	for i := range p.links {
		if p.links[i].bucket == b {
			at := slices.IndexFunc(p.links[i].limits, func(l store.Limit) bool { return l.Name == limit })
			return at >= 0 && p.links[i].shadow.has(at)
		}
	}
	return false
}
