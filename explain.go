package weir

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Explanation describes how a request would be decided now, and why: which limits apply, where each comes from, and
// which one binds. It is a snapshot: to spend, use [Limiter.Acquire].
type Explanation struct {
	Namespace, Entity, Resource string
	Tokens                      Tokens
	At                          time.Time // the store's time of the snapshot
	// Chain is the entity, then its parents as far as they are charged.
	Chain []ExplainedEntity
	// Err is what [Limiter.Acquire] would return: nil if it would admit the request, else an [*ExceededError], a
	// [*BurstError] or a [*NoLimitsError].
	Err error
	// OnUnavailable is how the request would be decided if the store did not answer. OnUnavailableFrom is where that is
	// set: the [Source] of the scope, "config" ([Config.OnUnavailable]), or "request" if that is stricter. In a chain,
	// the strictest counts.
	OnUnavailable     OnUnavailable
	OnUnavailableFrom string
	// Cached is how long entities and limits are cached ([Config.CacheTTL]): the explanation may lag behind changes
	// made by other processes by that much. It is 0 if nothing is cached.
	Cached time.Duration
	// Manifests holds the last revision of each manifest that declares something in this explanation, except manifests
	// that were never applied to the end.
	Manifests []ExplainedManifest
}

// ExplainedManifest is the last revision of a manifest.
type ExplainedManifest struct {
	Manifest string // its name
	Revision int    // 1, 2, …
	At       time.Time
	By       string // who applied it
}

// ExplainedEntity is one entity of a chain.
type ExplainedEntity struct {
	ID, Name string // the name is for people
	Parent   string
	Plan     string // that it names, or that its nearest ancestor with a plan names
	Exists   bool   // it was created; an entity that was not may have limits, but no parent
	Cascade  bool   // the parent is charged, too, and is next in the chain
	Manifest string // the manifest that declares the entity
	// Scopes are where limits are looked up, in order of precedence; the first that has some applies.
	Scopes []ExplainedScope
	Groups []ExplainedScope // those that count on the resource's group and on the total, as far as these are in use
	// Limits are those that apply, also on the group and the total. If there are none, the entity is not charged.
	Limits []ExplainedLimit
	// Next are the scopes of the limits that apply once limits end or others begin: at most one on the resource, on its
	// group and on the total.
	Next  []ExplainedScope
	Items int // that the store has split its bucket on the resource into; 0 if it is not split
}

// ExplainedScope is a scope in which limits may be set.
type ExplainedScope struct {
	Resource string // in [ExplainedEntity.Groups] and Next: the group or the total; otherwise ""
	Source   Source
	Set      bool // it has limits
	Applies  bool // it is the first that has limits
	// OnUnavailable is the setting of this scope for when the store does not answer, whichever scope's limits apply.
	OnUnavailable OnUnavailable
	// From and Limits are set only in [ExplainedEntity.Next]: when the scope's limits will apply, in the time zone that
	// it is written in, and the limits, as they are set. If no limits will, Set is false.
	From   time.Time
	Limits []Limit
}

// ExplainedLimit is a limit that applies.
type ExplainedLimit struct {
	Limit  Limit       // as it is set
	Status LimitStatus // now; Refused and RetryAfter are for the request
	// Binds marks one limit of the explanation: the one that would refuse for longest, or else the one of which the
	// request leaves the smallest share. Limits in shadow never bind, and neither does a full limit of which nothing is
	// requested.
	Binds bool
}

// Never reports whether the request needs more of the limit than can ever be spent at once.
func (l *ExplainedLimit) Never() bool {
	return !l.Status.Shadow && l.Status.Requested > l.Status.params.Burst/1000
}

// Used returns the share of the burst that is spent now: 0 if the bucket is full or a balance, more than 1 in debt.
func (l *ExplainedLimit) Used() float64 {
	return max(0, float64(l.Status.Burst-l.Status.Available)/float64(max(1, l.Status.Burst)))
}

// Binding returns the limit that binds, and its entity; nil if none does.
func (x *Explanation) Binding() (*ExplainedEntity, *ExplainedLimit) {
	for i := range x.Chain {
		for j := range x.Chain[i].Limits {
			if l := &x.Chain[i].Limits[j]; l.Binds {
				return &x.Chain[i], l
			}
		}
	}
	return nil, nil
}

// RetryAfter returns how long until the request would pass if nobody else spent: 0 if it would pass now, and also if it
// exceeds a burst; math.MaxInt64 if a balance refuses it.
func (x *Explanation) RetryAfter() time.Duration {
	if over, ok := errors.AsType[*ExceededError](x.Err); ok {
		return over.RetryAfter
	}
	return 0
}

// Explain returns how Acquire would decide a request now, and why. It spends and writes nothing. Besides what Acquire
// needs, it reads the buckets, and the revisions of the manifests involved.
//
// It is not an error if the request would be refused; see [Explanation]. Errors: [*ConfigError], [ErrNotFound] if the
// namespace does not exist, [ErrUnknownEntity], and store errors, regardless of on_unavailable.
func (l *Limiter) Explain(ctx context.Context, req Request) (Explanation, error) {
	if err := req.OnUnavailable.validate("on_unavailable"); err != nil {
		return Explanation{}, err
	}
	var e *explainer
	for try := 0; ; try++ {
		e = &explainer{lim: l, req: &req}
		stale, err := e.explain(ctx)
		if err != nil {
			return Explanation{}, err
		}
		if !stale || try == maxStale {
			break
		}
		e.policy.Forget() // as Acquire would find out by its debit
	}
	return e.x, e.addManifests(ctx)
}

// explainer builds an explanation.
type explainer struct {
	lim       *Limiter
	req       *Request
	policy    *policy.Policy
	chain     []policy.Member
	manifests []string
	x         Explanation
}

// explain reads everything that the explanation needs. It is stale if a bucket follows newer limits.
func (e *explainer) explain(ctx context.Context) (stale bool, err error) {
	e.x = Explanation{
		Namespace: e.lim.Namespace(), Entity: e.req.Entity, Resource: e.req.Resource, Tokens: e.req.Tokens,
		Cached: max(0, e.lim.cfg.CacheTTL),
	}
	e.policy, e.chain, err = e.lim.policies.Trace(ctx, e.req.Entity, e.req.Resource, e.req.usesOwn())
	for i := range e.chain {
		e.see(&e.chain[i])
	}
	e.setMode(policy.Setting{Mode: policy.Mode(e.req.OnUnavailable), From: "request"})
	var none *NoLimitsError
	if err != nil {
		err = resolveError(err)
	}
	switch {
	case errors.As(err, &none):
		e.x.At, e.x.Err = time.Now(), none
		return false, nil
	case err != nil:
		return false, err
	}
	it := item{req: *e.req, policy: e.policy}
	err = it.prepare(e.lim)
	var burst *BurstError
	if err != nil && !errors.As(err, &burst) {
		return false, err
	}
	stale, over, err := e.look(ctx, it.lease)
	switch {
	case err != nil:
	case burst != nil:
		e.x.Err = burst
	case !over.Allowed:
		e.x.Err = &ExceededError{Decision: over}
	}
	return stale, err
}

// see records what was found about an entity of the chain.
func (e *explainer) see(m *policy.Member) {
	rec := &m.Record
	n := ExplainedEntity{
		ID: m.ID, Exists: m.Exists, Name: rec.Name, Parent: rec.Parent, Plan: m.Plan,
		Cascade: rec.Cascade && rec.Parent != "", Manifest: rec.Managed.Name(),
	}
	e.declaredBy(n.Manifest)
	if m.Scopes == nil {
		n.Scopes = []ExplainedScope{{Source: SourceRequest, Set: true, Applies: true}}
	}
	for i, on := range append([]policy.Aggregate{{Scopes: m.Scopes}}, m.On...) {
		to := []*[]ExplainedScope{&n.Scopes, &n.Groups}[min(i, 1)]
		for _, l := range on.Scopes {
			mode := OnUnavailable(l.OnUnavailable)
			*to = append(*to, ExplainedScope{
				Resource: on.Resource, Source: Source(l.Source), Set: len(l.Limits) > 0, OnUnavailable: mode,
			})
		}
	}
	for _, ch := range m.Next {
		on := ExplainedScope{Source: Source(ch.Source), Set: len(ch.Limits) > 0, From: ch.At.Time()}
		if ch.Resource != e.req.Resource {
			on.Resource = ch.Resource
		}
		for _, l := range ch.Limits {
			on.Limits = append(on.Limits, Limit(l))
		}
		n.Next = append(n.Next, on)
	}
	e.x.Chain = append(e.x.Chain, n)
	if len(e.x.Chain) == 1 || m.Charged {
		e.setMode(m.Setting)
	}
}

// setMode records how the request would be decided if the store did not answer, if that is stricter than what was found
// before.
func (e *explainer) setMode(s policy.Setting) {
	if mode := policy.Mode(e.x.OnUnavailable); policy.Stricter(mode, s.Mode) != mode {
		e.x.OnUnavailable, e.x.OnUnavailableFrom = OnUnavailable(s.Mode), s.From
	}
}

func (e *explainer) declaredBy(manifest string) {
	if manifest != "" && !slices.Contains(e.manifests, manifest) {
		e.manifests = append(e.manifests, manifest)
	}
}

// look reads the buckets that a request would debit, and returns how it would be decided.
func (e *explainer) look(ctx context.Context, lease *Lease) (stale bool, d Decision, err error) {
	for i := range lease.debits {
		for j := range lease.debits[i].Charges { // also those that demand did not get to
			c := &lease.debits[i].Charges[j]
			n, _ := e.req.demand().Of(c.Limit)
			c.Amount = max(0, min(n, MaxTokens)) * 1000
		}
	}
	d, states, err := lease.peek(ctx)
	if err != nil {
		return false, d, err
	}
	e.x.At = d.At
	n := 0
	for i := range lease.debits {
		debit, st := &lease.debits[i], &states[i]
		at := slices.IndexFunc(e.x.Chain, func(c ExplainedEntity) bool { return c.ID == debit.Bucket.Entity })
		if debit.Bucket.Resource == e.req.Resource {
			e.x.Chain[at].Items = st.Items
		}
		for _, c := range debit.Charges {
			s := d.Statuses[n]
			n++
			e.add(at, c, s)
			d.Allowed = d.Allowed && !s.Refused
			stale = stale || s.Source != SourceRequest && st.ID != 0 && st.Epoch > debit.Epoch
		}
	}
	e.bind()
	return stale, d, nil
}

// add records a limit that applies.
func (e *explainer) add(at int, c store.Charge, s LimitStatus) {
	n := &e.x.Chain[at]
	scopes, found := n.Scopes, e.chain[at].Scopes
	for _, on := range e.chain[at].On {
		if on.Resource == s.Resource {
			scopes, found = n.Groups, on.Scopes
		}
	}
	for i := range scopes {
		l := &scopes[i]
		l.Applies = l.Applies || l.Source == s.Source && (l.Resource == "" || l.Resource == s.Resource)
	}
	e.declaredBy(s.Manifest)
	l := Limit(record.Of(c))
	for _, scope := range found {
		if Source(scope.Source) == s.Source && scope.Enforce != nil {
			i := slices.IndexFunc(scope.Limits, func(o store.Limit) bool { return o.Name == l.Name })
			l.Enforce = scope.Enforce[i]
		}
	}
	n.Limits = append(n.Limits, ExplainedLimit{Limit: l, Status: s})
}

// bind marks the limit that binds.
func (e *explainer) bind() {
	var most *ExplainedLimit
	for i := range e.x.Chain {
		for j := range e.x.Chain[i].Limits {
			if l := &e.x.Chain[i].Limits[j]; !l.Status.Shadow && l.left() < 1 && (most == nil || l.bindsMore(most)) {
				most = l
			}
		}
	}
	if most != nil {
		most.Binds = true
	}
}

// left returns the share of the burst that the request leaves, or would leave.
func (l *ExplainedLimit) left() float64 {
	return float64(l.Status.Available-l.Status.Requested) / float64(max(1, l.Status.Burst))
}

func (l *ExplainedLimit) bindsMore(o *ExplainedLimit) bool {
	switch {
	case l.Never() != o.Never():
		return l.Never()
	case l.Status.RetryAfter != o.Status.RetryAfter:
		return l.Status.RetryAfter > o.Status.RetryAfter
	}
	return l.left() < o.left()
}

// addManifests looks up the last revisions of the manifests involved.
func (e *explainer) addManifests(ctx context.Context) error {
	if len(e.manifests) == 0 {
		return nil
	}
	last, err := e.lim.policies.Manifests(ctx, e.manifests)
	for i, m := range last {
		if m.Revision > 0 {
			e.x.Manifests = append(e.x.Manifests, ExplainedManifest{e.manifests[i], m.Revision, m.At, m.By})
		}
	}
	return publicError(err)
}
