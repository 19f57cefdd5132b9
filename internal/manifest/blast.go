package manifest

import (
	"context"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/delta"
	"github.com/weirlimits/weir/internal/manifest/live"
	"github.com/weirlimits/weir/internal/policy"
)

// Touches is the reach of a change: the live buckets whose limits it changes. An entity that has spent nothing
// recently has none.
type Touches struct {
	Entities int `json:"entities"`
	Buckets  int `json:"buckets"`
	// OnPlan counts the entities whose plan is changed: that name it, or have it from an ancestor.
	OnPlan int `json:"on_plan,omitempty"`
	// Over counts the buckets that have spent more than their new limits allow at once. They refuse until enough
	// tokens are issued. OverLimits are these limits, and OverSome some of the buckets.
	Over       int      `json:"over"`
	OverLimits []string `json:"over_limits,omitempty"`
	OverSome   []Over   `json:"over_some,omitempty"`
	AtLeast    bool     `json:"at_least,omitempty"` // not all buckets were checked

	seen map[string]bool // entities
}

// Over is a bucket that has spent more than its new limits allow at once.
type Over struct {
	Entity   string   `json:"entity"`
	Resource string   `json:"resource"`
	Limits   []string `json:"limits"` // the exceeded limits
}

const (
	maxCounted = 1000 // maximum buckets checked per query
	maxQueries = 16   // above this, one query covers all buckets
)

// reach finds the live buckets whose limits changes touch.
type reach struct {
	changes       []Change
	at            map[admin.Scope]*Change // those that change limits
	moves         map[string]*Change      // those that give an entity another plan, which its descendants may inherit
	before, after live.Scopes
	lv            *reading
	declared      []string // entities
}

func newReach(ctx context.Context, p *Plan, lv *reading) *reach {
	r := &reach{
		changes: p.Changes, at: make(map[admin.Scope]*Change, len(p.Changes)), moves: make(map[string]*Change),
		before: p.before, after: p.limits, lv: lv,
	}
	for k := range p.manifest.Records {
		if k.Own {
			r.declared = append(r.declared, k.Entity)
		}
	}
	for i := range p.Changes {
		c := &p.Changes[i]
		switch {
		case slices.ContainsFunc(c.Fields, func(f delta.Field) bool {
			return f.Limit != "" || f.Name == boundedMember.key
		}):
			r.at[c.key.Scope] = c
		case c.key.Own && r.before.Plan(c.key.Entity) != r.after.Plan(c.key.Entity):
			r.moves[c.key.Entity] = c
		default:
			continue
		}
		c.Touches = &Touches{seen: make(map[string]bool)}
	}
	r.members(ctx)
	return r
}

// mover returns the change that gives an entity another plan: its own, or that of its nearest ancestor that has one.
func (r *reach) mover(id string) *Change {
	for range weir.MaxDepth {
		e := r.after.Entity(id)
		if c := r.moves[id]; c != nil || e == nil || e.Parent == "" {
			return c
		}
		id = e.Parent
	}
	return nil
}

// members counts the entities on the plans that change.
func (r *reach) members(ctx context.Context) {
	count := make(map[string]int)
	if slices.ContainsFunc(r.changes, func(c Change) bool { return c.Touches != nil && c.key.Plan != "" }) {
		ids := slices.Concat(r.lv.Entities(ctx), r.declared)
		slices.Sort(ids)
		for _, id := range slices.Compact(ids) {
			if r.after.Entity(id) != nil {
				count[r.after.Plan(id)]++
			}
		}
	}
	for _, c := range r.at {
		if c.key.Plan != "" {
			c.Touches.OnPlan = count[c.key.Plan]
		}
	}
}

// queries returns one query per affected entity or resource, or one for all.
func (r *reach) queries(ctx context.Context) (queries []admin.BucketQuery) {
	all := admin.BucketQuery{Max: maxCounted}
	for id := range r.moves {
		for _, child := range slices.Concat(r.lv.Children(ctx, id), r.declared) {
			if e := r.after.Entity(child); e != nil && e.Parent == id {
				return []admin.BucketQuery{all}
			}
		}
	}
	for i := range r.changes {
		c := &r.changes[i]
		if c.Touches == nil {
			continue
		}
		q := admin.BucketQuery{Entity: c.key.Entity, Resource: c.key.Resource, Max: maxCounted}
		if !slices.Contains(queries, q) {
			queries = append(queries, q)
		}
		if q == all || len(queries) > maxQueries {
			return []admin.BucketQuery{all}
		}
	}
	return queries
}

// count counts what the changes touch: all buckets if exact, otherwise the first of each query.
func (r *reach) count(ctx context.Context, lim *weir.Limiter, exact bool) error {
	queries := r.queries(ctx)
	counted := make(map[[2]string]bool)
	for _, q := range queries {
		for {
			page, err := admin.New(lim).Buckets.List(ctx, q)
			if err != nil {
				return err
			}
			r.load(ctx, page.Items)
			for i := range page.Items {
				b := &page.Items[i]
				if id := [2]string{b.Entity, b.Resource}; len(queries) == 1 || !counted[id] {
					counted[id] = len(queries) > 1
					r.touch(b)
				}
			}
			if q.After = page.Next; q.After == "" {
				break
			}
			if !exact {
				r.atLeast(q)
				break
			}
		}
	}
	for i := range r.changes {
		if t := r.changes[i].Touches; t != nil {
			t.Entities = len(t.seen)
		}
	}
	return nil
}

// load reads what decides about the limits of buckets.
func (r *reach) load(ctx context.Context, buckets []admin.Bucket) {
	ids := make([]string, len(buckets))
	for i := range buckets {
		ids[i] = buckets[i].Entity
	}
	r.lv.LoadChains(ctx, ids, r.after.Entity)
	var deciding []admin.RecordID
	for i := range buckets {
		for _, w := range []live.Scopes{r.before, r.after} {
			b := &buckets[i]
			deciding = append(deciding, w.Deciding(admin.Scope{Entity: b.Entity, Resource: b.Resource})...)
		}
	}
	r.lv.Load(ctx, deciding...)
}

// atLeast marks the changes that a query covered as incomplete.
func (r *reach) atLeast(q admin.BucketQuery) {
	for i := range r.changes {
		t, k := r.changes[i].Touches, r.changes[i].key
		if t != nil && (q.Entity == "" || q.Entity == k.Entity) && (q.Resource == "" || q.Resource == k.Resource) {
			t.AtLeast = true
		}
	}
}

// touch counts a bucket for the changes of the scopes that limit it before and after, at the time at which each begins.
func (r *reach) touch(b *admin.Bucket) {
	times := []time.Time{r.after.At}
	for _, w := range []live.Scopes{r.before, r.after} {
		for _, sc := range policy.Scopes(b.Entity, w.Plan(b.Entity), b.Resource) {
			if c := r.at[admin.Scope(sc)]; c != nil && !slices.Contains(times, c.begins) {
				times = append(times, c.begins)
			}
		}
	}
	for _, at := range times {
		r.touchAt(b, at)
	}
}

// touchAt is touch for the changes that begin at a time.
func (r *reach) touchAt(b *admin.Bucket, at time.Time) {
	was, is := r.before.As(at).First(b.Entity, b.Resource), r.after.As(at).First(b.Entity, b.Resource)
	had, has := len(was.Limits) > 0, len(is.Limits) > 0
	over, now := []string(nil), at.Equal(r.after.At)
	if now { // what will be outstanding later is not known
		over = overrun(b, is.Limits)
	}
	moved := was.Scope != is.Scope
	of := func(l live.Layer) *Change {
		if c := r.at[l.Scope]; c != nil && c.begins.Equal(at) {
			return c
		}
		return nil
	}
	to, from := of(is), of(was)
	if to == nil && from == nil && moved && now {
		to = r.mover(b.Entity)
	}
	if has {
		to.count(b, over)
	}
	if had && (moved || !has) {
		if has && to != nil { // count it once, for the new limits
			over = nil
		}
		from.count(b, over)
	}
}

// count counts a bucket that the change touches, and which of its limits it would be over.
func (c *Change) count(b *admin.Bucket, over []string) {
	if c == nil {
		return
	}
	t := c.Touches
	t.seen[b.Entity] = true
	t.Buckets++
	if len(over) == 0 {
		return
	}
	if t.Over++; len(t.OverSome) < maxSome {
		t.OverSome = append(t.OverSome, Over{b.Entity, b.Resource, over})
	}
	for _, name := range over {
		if i, ok := slices.BinarySearch(t.OverLimits, name); !ok {
			t.OverLimits = slices.Insert(t.OverLimits, i, name)
		}
	}
}

// overrun returns the limits of which more is outstanding than the new limits allow to be spent at once. Changing
// limits leaves outstanding tokens outstanding.
func overrun(b *admin.Bucket, limits []weir.Limit) (over []string) {
	for _, bl := range b.Limits {
		i, ok := slices.BinarySearchFunc(limits, bl.Limit, delta.ByName)
		if !ok || bl.Override || !limits[i].EnforcedFor(b.Entity) {
			continue
		}
		if max(bl.Limit.Burst, bl.Limit.Slots)-bl.Available > max(limits[i].Burst, limits[i].Slots) {
			over = append(over, bl.Limit.Name)
		}
	}
	return over
}
