package policy

import (
	"errors"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Limits that begin and end. All processes know when, and switch by their own clocks. A bucket then follows the limits
// of the new phase: its epoch is that of the records, followed by how many of their switches have passed. A process
// whose clock is behind gets the bucket's time, see [store.Phase].

// span is the oldest and the newest of some epochs.
type span struct{ min, max uint64 }

func (s *span) add(epoch uint64) { s.min, s.max = min(s.min, epoch), max(s.max, epoch) }

// phase is the part of a course of limits that a policy is for.
type phase struct {
	passed      int
	last, until int64 // 0: none
}

func (ph *phase) add(c *course) {
	if c != nil {
		ph.last, ph.until = max(ph.last, c.last), firstOf(ph.until, c.until)
	}
}

// firstOf returns the earlier of two times; 0 is none.
func firstOf(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// phaseBits is how many bits of an epoch count switches: those of six scopes.
const phaseBits = 6

const _ = uint(1<<phaseBits - 1 - 6*2*record.MaxBounded)

// setEpoch sets the target's epoch. All scopes count, used or not, so that the number of switches never goes back.
func (t *Target) setEpoch(cs []candidate, phases bool) {
	for _, c := range cs {
		if c.course != nil {
			t.phase.passed += c.course.passed
			t.read.add(c.epoch)
			phases = true
		}
	}
	if t.Epoch = t.read.min; phases {
		t.Epoch = t.Epoch<<phaseBits + uint64(t.phase.passed)
	}
	if t.phase.last == 0 && t.phase.until == 0 {
		return
	}
	t.Phase = new(store.Phase)
	if t.phase.last != 0 {
		t.Phase.From = clock.Time(t.phase.last)
	}
	if t.phase.until != 0 {
		t.Phase.Until = clock.Time(t.phase.until)
	}
}

// switched reports whether only the time has passed since another target of the bucket was made.
func (t *Target) switched(since *Target) bool { return t.read == since.read && t.phase != since.phase }

// adjustment is how far the store's time is ahead of this process's clock, while that matters.
type adjustment struct {
	by    time.Duration
	until int64 // nanoseconds since the resolver's start
}

// Stale makes the resolver find out again what applies, because a bucket follows other limits: as of the bucket's time,
// if that is why, which counts until the clock that is behind has caught up, and otherwise by [Policy.Forget].
func (p *Policy) Stale(err error) {
	var other *store.PhaseError
	if !errors.As(err, &other) {
		p.Forget()
		return
	}
	r, by := p.state.resolver, time.Until(other.At)
	r.adjusted.Store(&adjustment{by, r.elapsed() + int64(max(by, -by))})
	for _, id := range p.chain() {
		p.state.changed(change{entity: id, resource: p.Resource})
	}
}

// holds reports whether the policy's limits are still in force at a time.
func (p *Policy) holds(now int64) bool { return p.until == 0 || now < p.until }

// Over reports whether other limits have begun since the policy was made.
func (p *Policy) Over() bool { return p.until != 0 && !p.holds(p.state.resolver.asOf()) }

// get reads records, as they are at the time of the lookup.
func (from lookup) get(keys []store.Key) ([]*catalogRecord, time.Time, error) {
	rs, good, err := from.records(keys)
	if slices.ContainsFunc(rs, func(rec *catalogRecord) bool { return rec.course != nil }) {
		rs = slices.Clone(rs)
		for i, rec := range rs {
			rs[i] = rec.at(from.now)
		}
	}
	return rs, good, err
}

// Change is when the limits of a bucket begin or end next, and what applies from then on.
type Change struct {
	Resource string
	At       calendar.Instant
	Source   Source // of the limits; "" if there are none
	Limits   []record.Limit
}

// next returns what changes next for a bucket, given the candidates of now; nil if nothing is known to.
func next(r *Resolver, p *Policy, b store.Bucket, cs []candidate) *Change {
	var ph phase
	for _, c := range cs {
		if ph.add(c.course); c.bad != nil || len(c.Limits) > 0 {
			break
		}
	}
	if ph.until == 0 {
		return nil
	}
	ch, then := &Change{Resource: b.Resource}, slices.Clone(cs)
	for i, c := range cs {
		if c.course != nil && c.course.until == ph.until {
			ch.At = c.course.next
		}
		then[i].catalogRecord = c.at(ph.until)
	}
	later := &Policy{Share: p.Share}
	if err := r.charge(later, b, then); err != nil || len(later.Targets) == 0 {
		return ch
	}
	t := &later.Targets[0]
	ch.Source = t.Source
	from := then[slices.IndexFunc(then, func(c candidate) bool { return len(c.Limits) > 0 })]
	for i := range t.Limits {
		l := record.Of(t.Charge(i))
		if from.enforce != nil {
			l.Enforce = from.enforce[i]
		}
		ch.Limits = append(ch.Limits, l)
	}
	return ch
}
