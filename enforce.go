package weir

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimits/weir/store"
)

// Enforce says which entities a limit refuses: all (the zero value), none ([EnforceShadow]), or a percentage of them
// from 1 to 99. For entities that it does not refuse, the limit is in shadow: it counts what it would have admitted,
// and reports what it would have refused.
//
// Whether an entity belongs to a percentage depends only on its id and the limit's name: it does if the first eight
// bytes of SHA-256(id, a zero byte, name), as a big-endian number modulo 100, are below the percentage. The result is
// the same in every process, and the entities of a smaller percentage are among those of a larger one.
type Enforce int8

// Values of Enforce other than percentages.
const (
	EnforceOn     Enforce = 0
	EnforceShadow Enforce = -1
)

// ParseEnforce parses on, shadow, or a percentage from 1% to 99%.
func ParseEnforce(text string) (Enforce, error) {
	switch text {
	case "on":
		return EnforceOn, nil
	case "shadow":
		return EnforceShadow, nil
	}
	digits, percent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(digits)
	if !percent || err != nil || digits != strconv.Itoa(n) || n < 1 || n > 99 {
		return 0, configErr("enforce", "must be on, shadow, or 1%% to 99%%: %q", text)
	}
	return Enforce(n), nil
}

// String returns the text that [ParseEnforce] reads.
func (e Enforce) String() string {
	switch e {
	case EnforceOn:
		return "on"
	case EnforceShadow:
		return "shadow"
	}
	return strconv.Itoa(int(e)) + "%"
}

// MarshalText returns what String returns.
func (e Enforce) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText parses what [ParseEnforce] does.
func (e *Enforce) UnmarshalText(text []byte) (err error) {
	*e, err = ParseEnforce(string(text))
	return err
}

func (e Enforce) valid() bool { return e >= EnforceShadow && e <= 99 }

// WithEnforce returns the limit with the given Enforce.
func (l Limit) WithEnforce(e Enforce) Limit {
	l.Enforce = e
	return l
}

// EnforcedFor reports whether the limit refuses requests of an entity, that is, whether it is not in shadow for it.
func (l Limit) EnforcedFor(entity string) bool { return l.Enforce.covers(entity, l.Name) }

func (e Enforce) covers(entity, limit string) bool {
	if e == EnforceOn || e == EnforceShadow {
		return e == EnforceOn
	}
	sum := sha256.Sum256([]byte(entity + "\x00" + limit))
	return binary.BigEndian.Uint64(sum[:8])%100 < uint64(e)
}

// shadows is the set of limits that are in shadow for an entity, one bit for each.
type shadows uint64

const _ = uint(64 - maxLimits) // one bit for each

func (s shadows) has(i int) bool { return s>>i&1 != 0 }

// shadowsOf returns which limits are in shadow for an entity. If all limits are enforced for everybody, enforce is nil.
func shadowsOf(entity string, limits []store.Limit, enforce []Enforce) (s shadows) {
	for i, e := range enforce {
		if !e.covers(entity, limits[i].Name) {
			s |= 1 << i
		}
	}
	return s
}

// leaveOut replaces limits by their former rate, if they have one, for an entity outside their percentage.
func (lk *link) leaveOut(former []store.Limit) {
	if former == nil || lk.shadow == 0 {
		return
	}
	lk.limits = slices.Clone(lk.limits)
	for i := range former {
		if lk.shadow.has(i) && former[i].Name != "" {
			lk.limits[i] = former[i]
			lk.shadow &^= 1 << i
		}
	}
	lk.one = oneCharge(lk.limits)
}

// leaveOut removes from a decided lease what the store left out. What was never taken is never given back, and nothing
// is forced on a limit that would have refused the request: if it were enforced, there would be no lease. From here on,
// a charge in shadow is one that was left out.
func (le *Lease) leaveOut() {
	le.decisionLocked() // from the amounts that were requested
	n := 0
	for i := range le.debits {
		for j := range le.debits[i].Charges {
			c := &le.debits[i].Charges[j]
			if c.Shadow = c.Shadow && le.levels[n].Refused; c.Shadow {
				c.Amount = 0
			}
			n++
		}
	}
}

// observeShadows counts and reports each limit in shadow that would have refused.
func (l *Limiter) observeShadows(ctx context.Context, debits []store.Debit, out store.Outcome) {
	f := l.core.cfg.Observer.WouldRefuse
	n := 0
	for i := range debits {
		for _, c := range debits[i].Charges {
			if c.Shadow && out.Levels[n].Refused {
				b := debits[i].Bucket
				l.core.tallies.countWouldRefuse(b, out.At, c.Limit.Name, c.Amount)
				if f != nil {
					f(ctx, WouldRefuseEvent{l.name, b.Entity, b.Resource, c.Limit.Name, c.Amount / 1000, out.Allowed})
				}
			}
			n++
		}
	}
}

// watchesShadows reports whether anybody wants to know what limits in shadow would have refused.
func (c *core) watchesShadows() bool { return c.cfg.Observer.WouldRefuse != nil || c.tallies != nil }
