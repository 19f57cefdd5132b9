package policy

import (
	"context"
	"math"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/policy/coarse"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// MaxDepth is the maximum number of entities in a chain: an entity, its parent, and so on.
const MaxDepth = 8

// Resolve returns the policy for requests of an entity on a resource. own is false for a request that brings its own
// limits: the policy then has only the limits of the parents. If the share allows no decision, it returns the policy
// and [ErrNoShare] or [ErrShareExpired].
//
// Other errors: [*record.FieldError], [*record.NoLimitsError], [*record.UnknownEntityError], [*record.CellError],
// [ErrNotFound] if the namespace does not exist, store errors.
func (n *Namespace) Resolve(ctx context.Context, entity, resource string, own bool) (*Policy, error) {
	if p := n.fresh(entity, resource, own); p != nil {
		n.Hit(p)
		return p, p.usable()
	}
	now := n.elapsed()
	owned := n.owning(ctx) // beside what else is read
	s, err := n.lookUp(ctx, now)
	if err != nil {
		return nil, err
	}
	cached := s.policies(own)
	before := cached.find(entity, resource)
	if before != nil && now < before.expires.Load() && s.current(before) {
		n.Hit(before)
		return before, before.usable()
	}
	p, err := n.build(s, entity, resource, own, n.fromStore(ctx, owned), nil)
	if err == nil && before != nil && p.behind(before) {
		n.records.Expire(p.keys()...)
		p, err = n.build(s, entity, resource, own, n.fromStore(ctx, owned), nil)
	}
	if err != nil {
		return nil, err
	}
	if n.cfg.TTL > 0 {
		n.keep(cached, p, n.cfg.Entries)
	}
	return p, p.usable()
}

// Cached returns a cached policy with Requests that charge one limit of one bucket; nil if there is none that is
// certainly valid. If it is used, the caller must call Hit.
func (n *Namespace) Cached(entity, resource string) *Policy {
	if p := n.fresh(entity, resource, true); p != nil && p.Single != nil {
		return p
	}
	return nil
}

// fresh returns a cached policy that is valid even if the coarse clock is a tick behind; nil if there is none.
func (n *Namespace) fresh(entity, resource string, own bool) *Policy {
	now := int64(n.clock.Read(n.start)+1) * coarse.Tick
	s := n.pinned
	if s == nil {
		f := n.found.Load()
		if f == nil || f.registry != n.registry.Load() || now >= f.until {
			return nil
		}
		s = f.state
	}
	generation := s.generation.Load()
	p := s.policies(own).find(entity, resource)
	if p == nil || now >= p.expires.Load() || p.generation.Load() != generation {
		return nil
	}
	return p
}

// Hit counts the use of a cached policy. Names differ most at either end.
func (r *Resolver) Hit(p *Policy) { r.hits.Add(p.Entity[0] + p.Entity[len(p.Entity)-1]) }

// lookup is where the contents of a policy come from.
type lookup struct {
	now int64 // the time as of which limits apply, in nanoseconds since the clock's epoch
	// share also returns until when at most the policy may be used; the zero time: no bound.
	share   func() (Share, time.Time, error)
	records func([]store.Key) ([]*catalogRecord, time.Time, error)
	// expected returns what a resource is probably charged to besides itself, so that its records are read with the
	// others in one call; optional.
	expected func(namespaceID, resource string) []string
}

func (n *Namespace) fromStore(ctx context.Context, owned func() (time.Time, error)) lookup {
	return lookup{
		now: n.asOf(),
		share: func() (Share, time.Time, error) {
			until, err := owned()
			return n.shareOf(ctx, n.name), until, err
		},
		records: func(keys []store.Key) ([]*catalogRecord, time.Time, error) {
			return n.records.Get(ctx, keys, n.load)
		},
		expected: n.expected,
	}
}

// expected returns what a resource was last known to be charged to besides itself.
func (r *Resolver) expected(namespaceID, resource string) []string {
	var group string
	var totals bool
	if rs, ok := r.records.Known([]store.Key{record.Scope{Resource: resource}.Key(namespaceID)}); ok {
		group = rs[0].group
	}
	if rs, ok := r.records.Known([]store.Key{record.SystemKey(namespaceID)}); ok {
		totals = rs[0].totals
	}
	return record.Aggregates(group, totals)
}

// build makes a policy. If seen is not nil, it is called with what is found about each entity.
func (r *Resolver) build(
	s *namespaceState, entity, resource string, own bool, from lookup, seen func(*Policy, *member),
) (*Policy, error) {
	if err := record.CheckIDs(entity, resource); err != nil {
		return nil, err
	}
	p := &Policy{NamespaceID: s.id, Entity: entity, Resource: resource, made: made{state: s}}
	p.generation.Store(s.generation.Load()) // before anything is read
	began := r.elapsed()
	sh, until, err := from.share()
	if err != nil {
		return nil, err
	}
	if p.Share = &Whole; sh != Whole {
		p.Share = new(sh)
	}
	c, err := from.chain(s.id, entity, resource, !own)
	if err != nil {
		return nil, err
	}
	if len(c.parents)+len(c.plans)+len(c.above)+len(c.aggregates) > 0 {
		found := c.others
		p.beside = &found
	}
	system := c.members[0].rs[slotSystem]
	if p.phases = system.phases; system.good() {
		s.read(system.settings, p.generation.Load())
	}
	for i := range c.members {
		m := &c.members[i]
		if err := r.add(p, m, i == 0 && !own); err != nil {
			return nil, err
		}
		if seen != nil {
			seen(p, m)
		}
		if i == 0 && m.rs[slotSystem].known && !m.rs[slotEntity].created() {
			return nil, &record.UnknownEntityError{Entity: entity}
		}
		if i == 0 && own && len(p.Targets) == 0 {
			return nil, &record.NoLimitsError{Entity: entity, Resource: resource}
		}
	}
	expires := int64(c.until.Sub(r.start))
	if !until.IsZero() {
		expires = min(expires, int64(until.Sub(r.start)))
	}
	if !p.Share.Until.IsZero() {
		expires = min(expires, r.elapsed()+int64(max(clock.Left(p.Share.Until, time.Now()), shareRetry)))
	}
	if p.until > 0 { // no later by the monotonic clock than by the other
		expires = min(expires, clock.Add(began, p.until-from.now))
	}
	p.expires.Store(expires)
	p.prepare()
	if p.OnUnavailable == ModeLocal {
		r.cfg.OnLocal()
	}
	return p, nil
}

// add adds an entity to a policy: a target on the resource, unless the request brings the limits there, and one on each
// aggregate, as far as it has limits. The error is why limits are not known, if they matter.
func (r *Resolver) add(p *Policy, m *member, brings bool) error {
	p.Thresholds = m.rs[slotSystem].nearLimit
	b := store.Bucket{Namespace: p.NamespaceID, Entity: m.id, Resource: p.Resource}
	targets := len(p.Targets)
	if !brings {
		if err := r.charge(p, b, m.candidates()); err != nil {
			return err
		}
	}
	for i, cs := range m.on {
		b.Resource = p.others().aggregates[i]
		if err := r.charge(p, b, cs); err != nil {
			return err
		}
	}
	if brings || len(p.Targets) > targets {
		p.OnUnavailable = Stricter(p.OnUnavailable, r.setting(m).Mode)
	}
	return nil
}

// candidates returns the scopes of the member's limits on the resource, in order of precedence.
func (m *member) candidates() []candidate {
	cs := make([]candidate, len(scopes))
	for i, l := range scopes {
		if cs[i] = (candidate{m.rs[l.slot], l.source, m.rs[l.slot].epoch, nil}); cs[i].unreadable {
			cs[i].bad = m.bad
		}
		if l.slot == slotPlan {
			cs[i].epoch = min(cs[i].epoch, m.named)
		}
	}
	return cs
}

// charge adds a target for a bucket to a policy, with the limits of the first scope that has some.
func (r *Resolver) charge(p *Policy, b store.Bucket, cs []candidate) error {
	t := Target{read: span{math.MaxUint64, 0}}
	from := &catalogRecord{}
	for _, c := range cs {
		// Including scopes without limits: they may have some by now. A plan's record may be newer than what named it.
		t.read.add(c.epoch)
		t.read.max = max(t.read.max, c.catalogRecord.epoch)
		if c.bad != nil {
			return c.bad
		}
		t.phase.add(c.course)
		if len(c.Limits) > 0 {
			from = c.catalogRecord
			break
		}
	}
	if p.until = firstOf(p.until, t.phase.until); len(from.Limits) == 0 {
		return nil
	}
	t.limitSet = r.scaled.of(p.Share, from.set())
	p.Requests = append(p.Requests, store.Debit{Bucket: b})
	t.Debit = &p.Requests[len(p.Targets)]
	t.setEpoch(cs, p.phases)
	t.Epoch += p.Share.Epoch // neither ever decreases
	t.Shadow = shadowsOf(b.Entity, from.Limits, from.enforce)
	t.useFormer(from.former, p.Share)
	if err := p.Share.divides(t.Limits); err != nil {
		return err
	}
	p.Shadowed = p.Shadowed || t.Shadow != 0
	p.Targets = append(p.Targets, t)
	for i := range p.Targets {
		p.Targets[i].Debit = &p.Requests[i] // they may have moved
	}
	return nil
}

// setting returns the mode that applies to a member of a chain: that of the first scope that has one or, if that is
// stricter, that of an aggregate. A scope that cannot be read means ModeDeny.
func (r *Resolver) setting(m *member) Setting {
	if m.rs[slotEntity].unreadable {
		return Setting{ModeDeny, string(SourceEntity)}
	}
	set, ok := firstSetting(m.candidates())
	if !ok {
		set = Setting{r.cfg.Default, "config"}
	}
	for _, cs := range m.on {
		if on, ok := firstSetting(cs); ok && Stricter(set.Mode, on.Mode) != set.Mode {
			set = on
		}
	}
	return set
}

// firstSetting returns the mode of the first scope that has one.
func firstSetting(cs []candidate) (set Setting, ok bool) {
	for _, c := range cs {
		switch {
		case c.unreadable:
			return Setting{ModeDeny, string(c.from)}, true
		case c.onUnavailable != ModeDefault:
			return Setting{c.onUnavailable, string(c.from)}, true
		}
	}
	return Setting{}, false
}

// Owned returns a [*record.CellError] if the store belongs to a cell, and this process does not use the cell's share.
// The answer is cached like a record, and may be used until the given time. Other errors are those of the store.
func (r *Resolver) Owned(ctx context.Context) (until time.Time, err error) { return r.owning(ctx)() }

// owning is Owned in two steps: it begins to read, and the function that it returns waits.
func (r *Resolver) owning(ctx context.Context) func() (time.Time, error) {
	if r.shares != nil || r.cfg.Restricted {
		return func() (until time.Time, err error) { return until, nil }
	}
	get := r.records.Begin(ctx, []store.Key{record.SharesKey}, r.load)
	return func() (time.Time, error) {
		rs, until, err := get()
		if err == nil {
			err = rs[0].cell.Err()
		}
		return until, err
	}
}

// shareOf returns the part of a namespace's limits that applies.
func (r *Resolver) shareOf(ctx context.Context, namespace string) Share {
	if stale := r.staleShare.Swap(0); stale > 0 && r.shares != nil {
		r.shares.Stale(ctx, stale)
	}
	return r.lastShare(namespace)
}

// lastShare returns the part that applies as far as is known.
func (r *Resolver) lastShare(namespace string) Share {
	if r.shares == nil {
		return Whole
	}
	sh := r.shares.Share(namespace)
	if sh.Den <= 0 || sh.Num < 0 || sh.Num > sh.Den {
		sh.Num, sh.Den = 0, 1
	}
	return sh
}
