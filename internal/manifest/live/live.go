// Package live reads the live records that a plan needs, and no others.
package live

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

// Records are live records of a namespace, which are read when they are needed. After an error, all others are missing.
type Records struct {
	lim *weir.Limiter

	found    map[admin.RecordID]admin.Declared // with those that do not exist
	children map[string][]string               // of entities
	after    string                            // the page at which scan goes on
	all      bool                              // found has every record that exists
	listed   map[string]bool                   // lists that were read as a whole
	err      error
}

// New returns the records of a limiter's namespace. It reads none yet.
func New(lim *weir.Limiter) *Records {
	return &Records{
		lim: lim, found: make(map[admin.RecordID]admin.Declared), children: make(map[string][]string),
		listed: make(map[string]bool),
	}
}

// Err returns the first error.
func (r *Records) Err() error { return r.err }

// All reads every record that a manifest could declare.
func (r *Records) All(ctx context.Context) { r.scan(ctx, -1) }

// None finds that there are no records, because there is no namespace.
func (r *Records) None() { r.all = true }

// scan reads all records, unless they are on more than that many pages.
func (r *Records) scan(ctx context.Context, pages int) {
	q := admin.DeclaredQuery{After: r.after, Max: 1000}
	if r.all {
		return
	}
	for ; !r.all && r.err == nil && pages != 0; pages-- {
		page, err := admin.New(r.lim).Manifests.Declarable(ctx, q)
		r.err = err
		for _, d := range page.Items {
			r.found[idOf(&d)] = d
		}
		q.After, r.after = page.Next, page.Next
		r.all = err == nil && page.Next == ""
	}
	if !r.all {
		return
	}
	clear(r.children)
	for id, d := range r.found {
		if id.Own && exists(&d) && d.Entity.Parent != "" {
			r.children[d.Entity.Parent] = append(r.children[d.Entity.Parent], id.Entity)
		}
	}
}

func idOf(d *admin.Declared) admin.RecordID {
	if d.Entity != nil {
		return Entity(d.Entity.ID)
	}
	return admin.RecordID{Scope: d.Limits.Scope}
}

// Entity returns the name of an entity's own record.
func Entity(id string) admin.RecordID {
	return admin.RecordID{Scope: admin.Scope{Entity: id}, Own: true}
}

// exists reports whether a record is one of an entity that was created.
func exists(d *admin.Declared) bool {
	return d.Version != 0 && d.Entity != nil && !d.Entity.Created.IsZero()
}

// dense is how many records are read at once before listing all may be cheaper: about 100 of a page cost what one does
// that is read by its name.
const dense = 1000

// Load reads records that are not there yet, in few calls.
func (r *Records) Load(ctx context.Context, ids ...admin.RecordID) {
	missing := r.missing(ids)
	if len(missing) > dense {
		r.scan(ctx, len(missing)/100)
		missing = r.missing(missing)
	}
	for some := range slices.Chunk(missing, dense) {
		var got []admin.Declared
		if got, r.err = admin.New(r.lim).Manifests.Lookup(ctx, some...); r.err != nil {
			return
		}
		for i, id := range some {
			r.found[id] = got[i]
		}
	}
}

func (r *Records) missing(ids []admin.RecordID) (missing []admin.RecordID) {
	if r.all || r.err != nil {
		return nil
	}
	seen := make(map[admin.RecordID]bool)
	for _, id := range ids {
		if _, has := r.found[id]; !has && !seen[id] {
			seen[id] = true
			missing = append(missing, id)
		}
	}
	return missing
}

// Get returns a record. The Version of one that does not exist is 0.
func (r *Records) Get(ctx context.Context, id admin.RecordID) admin.Declared {
	r.Load(ctx, id)
	return r.found[id]
}

// Entity returns an entity; nil if it was not created.
func (r *Records) Entity(ctx context.Context, id string) *admin.Entity {
	if d := r.Get(ctx, Entity(id)); exists(&d) {
		return d.Entity
	}
	return nil
}

// LoadChains reads entities and their ancestors, as they are and as another function has them.
func (r *Records) LoadChains(ctx context.Context, ids []string, planned func(id string) *admin.Entity) {
	for range weir.MaxDepth {
		var names []admin.RecordID
		for _, id := range ids {
			names = append(names, Entity(id))
		}
		r.Load(ctx, names...)
		above := make(map[string]bool)
		for _, id := range ids {
			for _, e := range []*admin.Entity{r.Entity(ctx, id), planned(id)} {
				if e != nil && e.Parent != "" {
					above[e.Parent] = true
				}
			}
		}
		if ids = slices.Sorted(maps.Keys(above)); len(ids) == 0 {
			return
		}
	}
}

// Children returns the entities whose parent is an entity.
func (r *Records) Children(ctx context.Context, id string) []string {
	if below, has := r.children[id]; has || r.all {
		return below
	}
	r.children[id] = r.entities(ctx, admin.EntityQuery{Parent: id})
	return r.children[id]
}

// OnPlan returns the entities that name a plan.
func (r *Records) OnPlan(ctx context.Context, plan string) []string {
	return r.entities(ctx, admin.EntityQuery{Plan: plan})
}

// Entities returns all entities.
func (r *Records) Entities(ctx context.Context) (ids []string) {
	if !r.all && !r.listed["entities"] {
		r.listed["entities"] = true
		return r.entities(ctx, admin.EntityQuery{})
	}
	for id, d := range r.found {
		if id.Own && exists(&d) {
			ids = append(ids, id.Entity)
		}
	}
	return ids
}

// entities lists entities, and keeps them.
func (r *Records) entities(ctx context.Context, q admin.EntityQuery) (ids []string) {
	for q.Max = 1000; r.err == nil; {
		var page admin.Page[admin.Entity]
		page, r.err = admin.New(r.lim).Entities.List(ctx, q)
		for _, e := range page.Items {
			ids = append(ids, e.ID)
			if _, has := r.found[Entity(e.ID)]; !has {
				r.found[Entity(e.ID)] = admin.Declared{Entity: &e, Version: 1}
			}
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	return ids
}

// Resources returns the scopes of resources, groups and the total for which something is set.
func (r *Records) Resources(ctx context.Context) (scopes []admin.Scope) {
	q := admin.LimitsQuery{Max: 1000}
	for !r.all && !r.listed["resources"] && r.err == nil {
		var page admin.Page[admin.ScopedLimits]
		page, r.err = admin.New(r.lim).Limits.List(ctx, q)
		for i := range page.Items {
			id := admin.RecordID{Scope: page.Items[i].Scope}
			if _, has := r.found[id]; !has {
				r.found[id] = admin.Declared{Limits: &page.Items[i], Version: 1}
			}
		}
		q.After = page.Next
		r.listed["resources"] = q.After == ""
	}
	for id, d := range r.found {
		if d.Limits != nil && id.Entity+id.Plan == "" && id.Resource != "" {
			scopes = append(scopes, id.Scope)
		}
	}
	slices.SortFunc(scopes, func(a, b admin.Scope) int { return cmp.Compare(a.Resource, b.Resource) })
	return scopes
}

// Known returns the records that were read and exist.
func (r *Records) Known() map[admin.RecordID]admin.Declared {
	known := make(map[admin.RecordID]admin.Declared, len(r.found))
	for id, d := range r.found {
		if d.Version != 0 {
			known[id] = d
		}
	}
	return known
}
