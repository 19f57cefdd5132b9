package weir

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/policy"
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
	// set: "request", the [Source] of the scope, or "config" ([Config.OnUnavailable]). In a chain, the strictest
	// counts.
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
	ID       string
	Exists   bool   // it was created; an entity that was not may have limits, but no parent
	Name     string // for people
	Parent   string
	Cascade  bool   // the parent is charged, too, and is next in the chain
	Manifest string // the manifest that declares the entity
	// Scopes are where limits are looked up, in order of precedence; the first that has some applies.
	Scopes []ExplainedScope
	// Limits are those that apply. If there are none, the entity is not charged.
	Limits []ExplainedLimit
}

// ExplainedScope is a scope in which limits may be set.
type ExplainedScope struct {
	Source  Source
	Set     bool // it has limits
	Applies bool // it is the first that has limits
	// OnUnavailable is the setting of this scope for when the store does not answer, whichever scope's limits apply.
	OnUnavailable OnUnavailable
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
func (l *ExplainedLimit) Never() bool { return !l.Status.Shadow && l.Status.Requested > l.Status.Burst }

// Used returns the share of the burst that is spent now: 0 if the bucket is full, more than 1 if it is in debt.
func (l *ExplainedLimit) Used() float64 {
	return float64(l.Status.Burst-l.Status.Available) / float64(l.Status.Burst)
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
// never will.
func (x *Explanation) RetryAfter() time.Duration {
	var over *ExceededError
	if errors.As(x.Err, &over) {
		return over.RetryAfter
	}
	return 0
}

// Explain returns how Acquire would decide a request now, and why. It spends and writes nothing. Besides what Acquire
// needs, it reads the buckets, and the revisions of the manifests involved.
//
// It is not an error if the request would be refused; see [Explanation]. Errors: [*ConfigError], [ErrNotFound] if the
// namespace does not exist, and store errors, regardless of on_unavailable.
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
		ID: m.ID, Exists: m.Exists, Name: rec.Name, Parent: rec.Parent, Cascade: rec.Cascade && rec.Parent != "",
		Manifest: rec.Managed.Name(),
	}
	e.declaredBy(n.Manifest)
	if m.Scopes == nil {
		n.Scopes = []ExplainedScope{{Source: SourceRequest, Set: true, Applies: true}}
	}
	for _, l := range m.Scopes {
		n.Scopes = append(n.Scopes, ExplainedScope{
			Source: Source(l.Source), Set: len(l.Limits) > 0, OnUnavailable: OnUnavailable(l.OnUnavailable),
		})
	}
	e.x.Chain = append(e.x.Chain, n)
	charged := len(e.x.Chain) == 1 || m.Charged
	mode := policy.Mode(e.x.OnUnavailable)
	switch {
	case e.req.OnUnavailable != "":
		e.x.OnUnavailable, e.x.OnUnavailableFrom = e.req.OnUnavailable, "request"
	case charged && policy.Stricter(mode, m.Setting.Mode) != mode:
		e.x.OnUnavailable, e.x.OnUnavailableFrom = OnUnavailable(m.Setting.Mode), m.Setting.From
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
			n, _ := e.req.amount(c.Limit.Name)
			c.Amount = max(0, min(n, MaxTokens)) * 1000
		}
	}
	states, err := lease.peek(ctx)
	if err != nil {
		return false, d, err
	}
	d = lease.decision(true)
	e.x.At = d.At
	n := 0
	for i := range lease.debits {
		debit, st := &lease.debits[i], &states[i]
		at := slices.IndexFunc(e.x.Chain, func(c ExplainedEntity) bool { return c.ID == debit.Bucket.Entity })
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
	for i := range n.Scopes {
		n.Scopes[i].Applies = n.Scopes[i].Source == s.Source
	}
	e.declaredBy(s.Manifest)
	l := limitOf(c.Limit)
	for _, scope := range e.chain[at].Scopes {
		if Source(scope.Source) == s.Source && scope.Enforce != nil {
			i := slices.IndexFunc(scope.Limits, func(o store.Limit) bool { return o.Name == l.Name })
			l.Enforce = Enforce(scope.Enforce[i])
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
	return float64(l.Status.Available-l.Status.Requested) / float64(l.Status.Burst)
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
