package manifest

import (
	"context"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/delta"
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
	before, after scopes
}

func newReach(changes []Change, before, after scopes) *reach {
	r := &reach{changes, make(map[admin.Scope]*Change, len(changes)), make(map[string]*Change), before, after}
	for i := range changes {
		c := &changes[i]
		switch {
		case slices.ContainsFunc(c.Fields, func(f delta.Field) bool {
			return f.Limit != "" || f.Name == boundedMember.key
		}):
			r.at[c.key.Scope] = c
		case c.key.Own && before.plan(c.key.Entity) != after.plan(c.key.Entity):
			r.moves[c.key.Entity] = c
		default:
			continue
		}
		c.Touches = &Touches{seen: make(map[string]bool)}
	}
	r.members()
	return r
}

// mover returns the change that gives an entity another plan: its own, or that of its nearest ancestor that has one.
func (r *reach) mover(id string) *Change {
	for range weir.MaxDepth {
		e := r.after.entities[id]
		if c := r.moves[id]; c != nil || e == nil || e.Parent == "" {
			return c
		}
		id = e.Parent
	}
	return nil
}

// members counts the entities on the plans that change.
func (r *reach) members() {
	count := make(map[string]int)
	if slices.ContainsFunc(r.changes, func(c Change) bool { return c.Touches != nil && c.key.Plan != "" }) {
		for id := range r.after.entities {
			count[r.after.plan(id)]++
		}
	}
	for _, c := range r.at {
		if c.key.Plan != "" {
			c.Touches.OnPlan = count[c.key.Plan]
		}
	}
}

// queries returns one query per affected entity or resource, or one for all.
func (r *reach) queries() (queries []admin.BucketQuery) {
	all := admin.BucketQuery{Max: maxCounted}
	for _, e := range r.after.entities {
		if r.moves[e.Parent] != nil {
			return []admin.BucketQuery{all}
		}
	}
	for i := range r.changes {
		c := &r.changes[i]
		if c.Touches == nil {
			continue
		}
		q := admin.BucketQuery{Entity: c.key.Entity, Max: maxCounted}
		if c.key.Entity == "" {
			q.Resource = c.key.Resource
		}
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
	queries := r.queries()
	counted := make(map[[2]string]bool)
	for _, q := range queries {
		for {
			page, err := admin.New(lim).Buckets.List(ctx, q)
			if err != nil {
				return err
			}
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
	times := []time.Time{r.after.at}
	for _, w := range []scopes{r.before, r.after} {
		for _, sc := range policy.Scopes(b.Entity, w.plan(b.Entity), b.Resource) {
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
	was, is := r.before.as(at).first(b.Entity, b.Resource), r.after.as(at).first(b.Entity, b.Resource)
	had, has := len(was.limits) > 0, len(is.limits) > 0
	over, now := []string(nil), at.Equal(r.after.at)
	if now { // what will be outstanding later is not known
		over = overrun(b, is.limits)
	}
	moved := was.scope != is.scope
	of := func(l layer) *Change {
		if c := r.at[l.scope]; c != nil && c.begins.Equal(at) {
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
