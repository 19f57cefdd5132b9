// Package reach finds which live buckets the changes of a plan touch.
package reach

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
	maxSome    = 5    // buckets that are listed next to their number
)

// Change is a change to the limits of a scope, or to what an entity inherits its plan from.
type Change struct {
	admin.Scope
	Own bool // the change is to the entity: it gets another plan
	// Begins is when the limits differ from those before for the first time.
	Begins  time.Time
	Touches *Touches // what Count finds
}

// Reach is what changes touch.
type Reach struct {
	Changes       []Change
	Before, After live.Scopes
	Live          *live.Records
	Declared      []string // entities

	at    map[admin.Scope]*Change // those that change limits
	moves map[string]*Change      // those that give an entity another plan, which its descendants may inherit
}

// Prepare sets what the changes touch to nothing, and counts the entities on the plans that change.
func (r *Reach) Prepare(ctx context.Context) {
	r.at, r.moves = make(map[admin.Scope]*Change, len(r.Changes)), make(map[string]*Change)
	for i := range r.Changes {
		c := &r.Changes[i]
		if c.Touches = (&Touches{seen: make(map[string]bool)}); c.Own {
			r.moves[c.Entity] = c
		} else {
			r.at[c.Scope] = c
		}
	}
	r.members(ctx)
}

// mover returns the change that gives an entity another plan: its own, or that of its nearest ancestor that has one.
func (r *Reach) mover(id string) *Change {
	for range weir.MaxDepth {
		e := r.After.Entity(id)
		if c := r.moves[id]; c != nil || e == nil || e.Parent == "" {
			return c
		}
		id = e.Parent
	}
	return nil
}

// members counts the entities on the plans that change.
func (r *Reach) members(ctx context.Context) {
	count := make(map[string]int)
	if slices.ContainsFunc(r.Changes, func(c Change) bool { return c.Plan != "" }) {
		ids := slices.Concat(r.Live.Entities(ctx), r.Declared)
		slices.Sort(ids)
		for _, id := range slices.Compact(ids) {
			if r.After.Entity(id) != nil {
				count[r.After.Plan(id)]++
			}
		}
	}
	for _, c := range r.at {
		if c.Plan != "" {
			c.Touches.OnPlan = count[c.Plan]
		}
	}
}

// queries returns one query per affected entity or resource, or one for all.
func (r *Reach) queries(ctx context.Context) (queries []admin.BucketQuery) {
	all := admin.BucketQuery{Max: maxCounted}
	for id := range r.moves {
		for _, child := range slices.Concat(r.Live.Children(ctx, id), r.Declared) {
			if e := r.After.Entity(child); e != nil && e.Parent == id {
				return []admin.BucketQuery{all}
			}
		}
	}
	for i := range r.Changes {
		c := &r.Changes[i]
		q := admin.BucketQuery{Entity: c.Entity, Resource: c.Resource, Max: maxCounted}
		if !slices.Contains(queries, q) {
			queries = append(queries, q)
		}
		if q == all || len(queries) > maxQueries {
			return []admin.BucketQuery{all}
		}
	}
	return queries
}

// Count counts the live buckets that the changes touch: all buckets if exact, otherwise the first of each query.
func (r *Reach) Count(ctx context.Context, lim *weir.Limiter, exact bool) error {
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
	for i := range r.Changes {
		t := r.Changes[i].Touches
		t.Entities = len(t.seen)
	}
	return nil
}

// load reads what decides about the limits of buckets.
func (r *Reach) load(ctx context.Context, buckets []admin.Bucket) {
	ids := make([]string, len(buckets))
	for i := range buckets {
		ids[i] = buckets[i].Entity
	}
	r.Live.LoadChains(ctx, ids, r.After.Entity)
	var deciding []admin.RecordID
	for i := range buckets {
		for _, w := range []live.Scopes{r.Before, r.After} {
			b := &buckets[i]
			deciding = append(deciding, w.Deciding(admin.Scope{Entity: b.Entity, Resource: b.Resource})...)
		}
	}
	r.Live.Load(ctx, deciding...)
}

// atLeast marks the changes that a query covered as incomplete.
func (r *Reach) atLeast(q admin.BucketQuery) {
	for i := range r.Changes {
		c := &r.Changes[i]
		if (q.Entity == "" || q.Entity == c.Entity) && (q.Resource == "" || q.Resource == c.Resource) {
			c.Touches.AtLeast = true
		}
	}
}

// touch counts a bucket for the changes of the scopes that limit it before and after, at the time at which each begins.
func (r *Reach) touch(b *admin.Bucket) {
	times := []time.Time{r.After.At}
	for _, w := range []live.Scopes{r.Before, r.After} {
		for _, sc := range policy.Scopes(b.Entity, w.Plan(b.Entity), b.Resource) {
			if c := r.at[admin.Scope(sc)]; c != nil && !slices.Contains(times, c.Begins) {
				times = append(times, c.Begins)
			}
		}
	}
	for _, at := range times {
		r.touchAt(b, at)
	}
}

// touchAt is touch for the changes that begin at a time.
func (r *Reach) touchAt(b *admin.Bucket, at time.Time) {
	was, is := r.Before.As(at).First(b.Entity, b.Resource), r.After.As(at).First(b.Entity, b.Resource)
	had, has := len(was.Limits) > 0, len(is.Limits) > 0
	over, now := []string(nil), at.Equal(r.After.At)
	if now { // what will be outstanding later is not known
		over = overrun(b, is.Limits)
	}
	moved := was.Scope != is.Scope
	of := func(l live.Layer) *Change {
		if c := r.at[l.Scope]; c != nil && c.Begins.Equal(at) {
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
