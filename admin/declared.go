package admin

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy/declare"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/internal/policy/tree"
	"github.com/weirlimits/weir/store"
)

// Managed marks a record as declared by a manifest. Other changes of the record leave the mark as it is.
type Managed struct {
	Manifest string `json:"manifest"` // its name
	// Hash is that of the declared value; if the record's value differs, it was changed by other means.
	Hash string `json:"hash"`
}

// Declared is a record that a manifest can declare: an entity, or the limits of a scope. Either Entity or Limits is
// set, or neither if there is no record.
type Declared struct {
	Entity  *Entity
	Limits  *ScopedLimits
	Version uint64 // counts changes; 0 means that there is no record
	// Deleting is set if a deletion of the entity has begun and not finished. If Created is zero, the entity was never
	// created, and its limits are being deleted.
	Deleting bool
}

// Managed returns the record's mark, or nil.
func (d *Declared) Managed() *Managed {
	switch {
	case d.Entity != nil:
		return d.Entity.Managed
	case d.Limits != nil:
		return d.Limits.Managed
	}
	return nil
}

// DeclaredQuery selects a page of records.
type DeclaredQuery struct {
	After string // Next of the previous page
	Max   int    // maximum number of records; 0 means 100, more than 1,000 means 1,000
}

// declarable lists the kinds of records that manifests declare, in the order in which they are listed.
var declarable = []store.Kind{
	store.KindSystem, store.KindPlanLimits, store.KindResourceLimits, store.KindEntity, store.KindEntityLimits,
}

// Declarable returns all records of the namespace that a manifest could declare, managed or not: the limits of the
// system, of plans and of resources, the entities, and the limits of entities.
func (s *Manifests) Declarable(ctx context.Context, query DeclaredQuery) (Page[Declared], error) {
	space, err := s.space(ctx)
	if err != nil {
		return Page[Declared]{}, err
	}
	at := 0
	name, after, ok := strings.Cut(query.After, ":")
	if query.After != "" {
		if at = slices.Index(declarable, store.Kind(name)); at < 0 || !ok {
			return Page[Declared]{}, weir.ErrBadCursor
		}
	}
	q := store.Query{Namespace: space, Kind: declarable[at], After: after, Max: query.Max}
	page, err := pageOf(ctx, s.catalog, q, declaredOf)
	switch {
	case err != nil:
	case page.Next != "":
		page.Next = string(declarable[at]) + ":" + page.Next
	case at+1 < len(declarable):
		page.Next = string(declarable[at+1]) + ":"
	}
	return page, err
}

func declaredOf(r store.Record) (*Declared, error) {
	d := Declared{Version: r.Version}
	if r.Key.Kind != store.KindEntity {
		sl, err := scopedLimits(r)
		if d.Limits = &sl; err == nil && sl.Empty() {
			return nil, nil //nolint:nilnil // it has only marks, and declares nothing
		}
		return &d, err
	}
	n, err := nodeOf(r)
	e := n.entity()
	d.Entity, d.Deleting = &e, n.Rec.Deleting
	return &d, err
}

// RecordID names a record that a manifest can declare: the limits of a scope, or an entity.
type RecordID struct {
	Scope
	Own bool `json:"own,omitempty"` // the entity itself
}

// Lookup returns the records that are named, in their order. The Version of one that does not exist is 0.
func (s *Manifests) Lookup(ctx context.Context, ids ...RecordID) ([]Declared, error) {
	space, err := s.space(ctx)
	if err != nil {
		return nil, err
	}
	keys := make([]store.Key, len(ids))
	for i, id := range ids {
		if keys[i] = id.key(space); id.Own {
			keys[i] = record.EntityKey(space, id.Entity)
		}
		if err := id.Validate(); err != nil {
			return nil, err
		}
	}
	got, err := s.parts.Store.Get(ctx, keys...)
	if err != nil {
		return nil, err
	}
	all := make([]Declared, len(ids))
	for i, r := range got.Records {
		if r.Version == 0 {
			continue
		}
		d, err := declaredOf(r)
		if err != nil {
			return nil, err
		}
		if d != nil {
			all[i] = *d
		}
	}
	return all, nil
}

// DeclaredChange sets a record to what a manifest declares.
type DeclaredChange struct {
	Before Declared // as it was read; the record must still be so
	After  Declared // without Entity and Limits, the record is removed. Version is ignored
}

// Declare makes many changes in few calls to the store. It returns one error per change, nil for those that were made;
// it may make some changes and not others. Each change is audited like a single one, and buckets follow it at their
// next debit. A second change of one record is refused with a [*weir.ConfigError].
//
// A parent must exist: declare entities after their parents, in a later call, and remove them before their parents.
// Removing an entity leaves its limits and buckets. A plan must exist before an entity names it, too. It is removed
// with its default limits, and with all others, once no entity names it any more.
//
// Errors: [weir.ErrConflict] if a record is not as it was read; after a store error, the change may have been made.
func (s *Manifests) Declare(ctx context.Context, changes []DeclaredChange) []error {
	return s.declare(ctx, changes, false)
}

// Check returns the errors of [Manifests.Declare] for changes that are not valid, or hide a balance. It makes none.
func (s *Manifests) Check(ctx context.Context, changes []DeclaredChange) []error {
	return s.declare(ctx, changes, true)
}

func (s *Manifests) declare(ctx context.Context, changes []DeclaredChange, check bool) []error {
	space, err := s.space(ctx)
	if err != nil {
		return slices.Repeat([]error{err}, len(changes))
	}
	errs := make([]error, len(changes))
	all := make([]declare.Change, len(changes))
	first := make(map[store.Key]int, len(changes))
	for i, ch := range changes {
		if errs[i] = ch.validate(); errs[i] != nil {
			continue
		}
		k := cmp.Or(ch.After.key(space), ch.Before.key(space))
		if at, twice := first[k]; twice {
			errs[i] = configErr("change", "is about the same record as change %d of this call", at)
			continue
		}
		first[k] = i
		all[i] = ch.records(k)
	}
	d := &declare.Declaration{Tree: s.tree(), Namespace: space, Removed: limitsRemoved, Check: check}
	d.Run(ctx, all, errs)
	for i, err := range errs {
		errs[i] = publicError(err)
	}
	return errs
}

// limitsRemoved returns the event of the removal of limits.
func limitsRemoved(r store.Record) (record.Event, error) {
	before, err := scopedLimits(r)
	ev := record.Event{Action: "limits.delete", Subject: before.subject(), Before: before}
	if before.source() == weir.SourcePlanDefault {
		ev.Action = "plan.delete"
	}
	return ev, err
}

// records returns the change as one of records.
func (ch *DeclaredChange) records(k store.Key) declare.Change {
	out := declare.Change{Key: k, Version: ch.Before.Version, Event: ch.event()}
	if b := ch.Before.Limits; b != nil {
		out.Before = storedLimits(b.Limits)
	}
	if b := ch.Before.Entity; b != nil {
		out.Was = ch.node(k.Namespace, b).Rec
	}
	if a := ch.After.Entity; a != nil {
		out.Entity = new(ch.node(k.Namespace, a).Rec)
	}
	if l := ch.After.Limits; l != nil {
		lr, _ := l.records() // the change was validated; there may be none
		lr.OnUnavailable, lr.NearLimit, lr.Entities = string(l.OnUnavailable), l.NearLimit, string(l.Entities)
		lr.Group, lr.Managed = l.Group, (*record.Managed)(l.Managed)
		out.Limits = &lr
	}
	return out
}

func (ch *DeclaredChange) validate() error {
	b, a := &ch.Before, &ch.After
	was, is, none := b.key(""), a.key(""), store.Key{}
	switch {
	case was == none && is == none, was != none && is != none && was != is, (b.Version == 0) != (was == none),
		b.Entity != nil && b.Limits != nil, a.Entity != nil && a.Limits != nil:
		return configErr("change", "must be about exactly one record")
	}
	if m := a.Managed(); m != nil {
		if err := checkID("manifest", m.Manifest); err != nil {
			return err
		}
	}
	switch {
	case a.Entity != nil:
		return a.Entity.Validate()
	case a.Limits != nil:
		return a.Limits.Validate()
	}
	return nil
}

// key returns the key of the record in a namespace; the zero key if there is none.
func (d *Declared) key(space string) store.Key {
	switch {
	case d.Entity != nil:
		return record.EntityKey(space, d.Entity.ID)
	case d.Limits != nil:
		return d.Limits.Scope.key(space)
	}
	return store.Key{}
}

// node returns the entity's record with its new contents, at the version that was read.
func (ch *DeclaredChange) node(space string, e *Entity) node {
	n := node{tree.Node{Key: record.EntityKey(space, e.ID), Version: ch.Before.Version}}
	n.set(e)
	n.Rec.Created = record.Stamp()
	if b := ch.Before.Entity; b != nil && !b.Created.IsZero() {
		n.Rec.Created = b.Created
	}
	return n
}

// event returns the audit event of the change, the same as for a single change.
func (ch *DeclaredChange) event() (ev record.Event) {
	b, a := ch.Before, ch.After
	kept := map[bool]string{true: "release", false: "adopt"}[a.Managed() == nil]
	if b.Entity != nil || a.Entity != nil {
		ev = record.Event{Action: "entity.update", Subject: "entity:" + cmp.Or(a.Entity, b.Entity).ID}
		switch {
		case a.Entity == nil:
			ev.Action = "entity.delete"
		case b.Entity == nil || b.Entity.Created.IsZero():
			ev.Action = "entity.create"
		case a.Entity.equal(b.Entity):
			ev.Action = "entity." + kept
		}
		if b.Entity != nil {
			ev.Before = b.Entity
		}
		if a.Entity != nil {
			ev.After = a.Entity
		}
		return ev
	}
	ev = record.Event{Action: "limits.set", Subject: cmp.Or(a.Limits, b.Limits).subject()}
	switch {
	case a.Limits == nil && b.Limits.source() == weir.SourcePlanDefault:
		ev.Action = "plan.delete"
	case a.Limits == nil:
		ev.Action = "limits.delete"
	case b.Limits != nil && a.Limits.equal(b.Limits):
		ev.Action = "limits." + kept
	}
	if b.Limits != nil {
		ev.Before = b.Limits
	}
	if a.Limits != nil {
		ev.After = a.Limits
	}
	return ev
}
