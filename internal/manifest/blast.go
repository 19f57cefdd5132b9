package manifest

import (
	"context"
	"slices"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

// Touches is the reach of a change: the live buckets whose limits it changes. An entity that has spent nothing
// recently has none.
type Touches struct {
	Entities int `json:"entities"`
	Buckets  int `json:"buckets"`
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

// reach finds the live buckets that changes of limits touch.
type reach struct {
	changes       []Change
	at            map[admin.Scope]*Change // those that change limits
	before, after scopes
}

func newReach(changes []Change, before, after scopes) *reach {
	r := &reach{changes, make(map[admin.Scope]*Change, len(changes)), before, after}
	for i := range changes {
		c := &changes[i]
		if slices.ContainsFunc(c.Fields, func(f Field) bool { return f.Limit != "" }) {
			c.Touches = &Touches{seen: make(map[string]bool)}
			r.at[c.key.Scope] = c
		}
	}
	return r
}

// queries returns one query per affected entity or resource, or one for all.
func (r *reach) queries() (queries []admin.BucketQuery) {
	all := admin.BucketQuery{Max: maxCounted}
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
	for _, c := range r.at {
		c.Touches.Entities = len(c.Touches.seen)
	}
	return nil
}

// atLeast marks the changes that a query covered as incomplete.
func (r *reach) atLeast(q admin.BucketQuery) {
	for _, c := range r.at {
		if (q.Entity == "" || q.Entity == c.key.Entity) && (q.Resource == "" || q.Resource == c.key.Resource) {
			c.Touches.AtLeast = true
		}
	}
}

// touch counts a bucket for the changes of the scopes that limit it before and after.
func (r *reach) touch(b *admin.Bucket) {
	was, is := r.before.first(b.Entity, b.Resource), r.after.first(b.Entity, b.Resource)
	had, has := len(was.limits) > 0, len(is.limits) > 0
	over := overrun(b, is.limits)
	count := func(sc admin.Scope, over []string) {
		c := r.at[sc]
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
	if has {
		count(is.scope, over)
	}
	if had && (was.scope != is.scope || !has) {
		if has && r.at[is.scope] != nil { // count it once, for the new limits
			over = nil
		}
		count(was.scope, over)
	}
}

// overrun returns the limits of which more is outstanding than the new limits allow to be spent at once. Changing
// limits leaves outstanding tokens outstanding.
func overrun(b *admin.Bucket, limits []weir.Limit) (over []string) {
	for _, bl := range b.Limits {
		i, ok := slices.BinarySearchFunc(limits, bl.Limit, byName)
		if ok && !bl.Override && bl.Limit.Burst-bl.Available > limits[i].Burst && limits[i].EnforcedFor(b.Entity) {
			over = append(over, bl.Limit.Name)
		}
	}
	return over
}
