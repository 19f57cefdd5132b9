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

// Enforce says whom a limit refuses: everybody (the zero value), nobody ([EnforceShadow]), or that percentage of the
// entities, from 1 to 99. For those whom it does not refuse it is in shadow: it counts what it would have admitted, and
// tells of what it would have refused.
//
// Which entities belong to a percentage goes by their ids and the limit's name alone: the first eight bytes of
// SHA-256(id, a zero byte, name) as a big-endian number, modulo 100, are below it. So it is the same for every process,
// and those of a smaller percentage are among those of a larger one.
type Enforce int8

// Whom a limit refuses, other than a percentage.
const (
	EnforceOn     Enforce = 0
	EnforceShadow Enforce = -1
)

// ParseEnforce reads on, shadow, or a percentage from 1% to 99%.
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
		return 0, configErr("enforce", "%q is none of on, shadow, or 1%% to 99%%", text)
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

// MarshalText writes what String returns.
func (e Enforce) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads what [ParseEnforce] does.
func (e *Enforce) UnmarshalText(text []byte) (err error) {
	*e, err = ParseEnforce(string(text))
	return err
}

func (e Enforce) valid() bool { return e >= EnforceShadow && e <= 99 }

// WithEnforce returns the limit with another say in whom it refuses.
func (l Limit) WithEnforce(e Enforce) Limit {
	l.Enforce = e
	return l
}

// EnforcedFor reports whether the limit refuses an entity's requests: that it is not in shadow for it.
func (l Limit) EnforcedFor(entity string) bool { return l.Enforce.covers(entity, l.Name) }

func (e Enforce) covers(entity, limit string) bool {
	if e == EnforceOn || e == EnforceShadow {
		return e == EnforceOn
	}
	sum := sha256.Sum256([]byte(entity + "\x00" + limit))
	return binary.BigEndian.Uint64(sum[:8])%100 < uint64(e)
}

// shadows are the limits of a set that are in shadow for an entity, a bit for each.
type shadows uint64

const _ = uint(64 - maxLimits) // a bit for each

func (s shadows) has(i int) bool { return s>>i&1 != 0 }

// shadowsOf returns which limits are in shadow for an entity. Of a set that is enforced for all, enforce is nil.
func shadowsOf(entity string, limits []store.Limit, enforce []Enforce) (s shadows) {
	for i, e := range enforce {
		if !e.covers(entity, limits[i].Name) {
			s |= 1 << i
		}
	}
	return s
}

// leaveOut has the limits be what they were for an entity that their percentages leave out, where they say what that is.
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

// leaveOut takes what the store has left out of what the lease holds, once it was decided. What was never taken is
// never given back, and nothing is forced on a limit that would have refused the request: the lease would not exist. A
// charge that is in shadow after this was left out.
func (le *Lease) leaveOut() {
	le.decisionLocked() // from what was asked for
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

// observeShadows counts, and tells of, each limit in shadow that would have refused.
func (l *Limiter) observeShadows(ctx context.Context, s *space, d *Decision) {
	f := l.core.cfg.Observer.WouldRefuse
	for i := range d.Statuses {
		st := &d.Statuses[i]
		if !st.WouldRefuse {
			continue
		}
		l.core.tallies.countWouldRefuse(store.Bucket{Namespace: s.id, Entity: st.Entity, Resource: st.Resource}, d.At, st.Limit, st.Requested*1000)
		if f != nil {
			f(ctx, WouldRefuseEvent{l.name, st.Entity, st.Resource, st.Limit, st.Requested, d.Allowed})
		}
	}
}

// observeAllow is observeShadows for a take of Allow.
func (l *Limiter) observeAllow(ctx context.Context, debits []store.Debit, out store.Outcome) {
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

// watchesShadows reports whether somebody is to know what limits in shadow would have refused.
func (c *core) watchesShadows() bool { return c.cfg.Observer.WouldRefuse != nil || c.tallies != nil }
