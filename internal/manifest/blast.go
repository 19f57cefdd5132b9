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

// count finds what the changes touch, with one query per affected entity or resource, or one for all.
func (p *Plan) count(ctx context.Context, lim *weir.Limiter, before, after world, exact bool) error {
	at := make(map[admin.Scope]*Change, len(p.Changes))
	var queries []admin.BucketQuery
	for i := range p.Changes {
		c := &p.Changes[i]
		if !slices.ContainsFunc(c.Fields, func(f Field) bool { return f.Limit != "" }) {
			continue
		}
		c.Touches = &Touches{seen: make(map[string]bool)}
		at[c.key.Scope] = c
		q := admin.BucketQuery{Entity: c.key.Entity, Max: maxCounted}
		if c.key.Entity == "" {
			q.Resource = c.key.Resource
		}
		if len(queries) <= maxQueries && !slices.Contains(queries, q) {
			queries = append(queries, q)
		}
	}
	if p.CreateNamespace || len(at) == 0 {
		return nil
	}
	all := admin.BucketQuery{Max: maxCounted}
	if len(queries) > maxQueries || slices.Contains(queries, all) {
		queries = []admin.BucketQuery{all}
	}
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
					touch(b, at, before, after)
				}
			}
			if q.After = page.Next; q.After == "" {
				break
			}
			if !exact {
				p.atLeast(q)
				break
			}
		}
	}
	for _, c := range at {
		c.Touches.Entities = len(c.Touches.seen)
	}
	return nil
}

// atLeast marks the changes that a query covered as incomplete.
func (p *Plan) atLeast(q admin.BucketQuery) {
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Touches != nil && (q.Entity == "" || q.Entity == c.key.Entity) &&
			(q.Resource == "" || q.Resource == c.key.Resource) {
			c.Touches.AtLeast = true
		}
	}
}

// touch counts a bucket for the changes of the scopes that limit it before and after.
func touch(b *admin.Bucket, at map[admin.Scope]*Change, before, after world) {
	_, was, had := before.limits(b.Entity, b.Resource)
	limits, is, has := after.limits(b.Entity, b.Resource)
	over := overrun(b, limits)
	count := func(sc admin.Scope, over []string) {
		c := at[sc]
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
		count(is, over)
	}
	if had && (was != is || !has) {
		if has && at[is] != nil { // count it once, for the new limits
			over = nil
		}
		count(was, over)
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
