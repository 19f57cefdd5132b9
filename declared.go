package weir

import (
	"context"
	"slices"
	"strings"

	"github.com/weirlimits/weir/store"
)

// Managed marks a record as declared by a manifest. Other changes of the record leave the mark as it is.
type Managed struct {
	Manifest string `json:"manifest"` // its name
	// Of the declared value; if the record's value differs, it was changed by other means.
	Hash string `json:"hash"`
}

func (m *Managed) name() string {
	if m == nil {
		return ""
	}
	return m.Manifest
}

// Declared is a record that a manifest can declare: an entity, or the limits of a scope. Either Entity or Limits is
// set, or neither if there is no record.
type Declared struct {
	Entity  *Entity
	Limits  *ScopedLimits
	Version uint64 // counts changes; 0 means that there is no record
	// Deleting says that a deletion of the entity has begun and not finished. If Created is zero, the entity was never
	// created, and its limits and buckets are being deleted.
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
	After string // DeclaredPage.Next of the previous page
	Max   int    // maximum number of records; 0 means 100, more than 1,000 means 1,000
}

// DeclaredPage is one page of records. It may hold fewer than requested, even none. Next is "" on the last page.
type DeclaredPage struct {
	Records []Declared
	Next    string
}

// declarable lists the kinds of records that manifests declare, in the order in which they are listed.
var declarable = []store.Kind{store.KindSystem, store.KindResourceLimits, store.KindEntity, store.KindEntityLimits}

// Declarable returns all records of the namespace that a manifest could declare, managed or not: the limits of the
// system, the limits of resources, the entities, and the limits of entities.
//
// Errors: [ErrBadCursor], [*ConfigError], [ErrNotFound] if the namespace does not exist, store errors.
func (l *Limiter) Declarable(ctx context.Context, query DeclaredQuery) (DeclaredPage, error) {
	s, err := l.space(ctx, l.admin().elapsed())
	if err != nil {
		return DeclaredPage{}, err
	}
	at := 0
	name, after, ok := strings.Cut(query.After, ":")
	if query.After != "" {
		if at = slices.Index(declarable, store.Kind(name)); at < 0 || !ok {
			return DeclaredPage{}, ErrBadCursor
		}
	}
	page, err := l.admin().list(ctx, store.Query{Namespace: s.id, Kind: declarable[at], After: after, Max: query.Max})
	if err != nil {
		return DeclaredPage{}, err
	}
	var out DeclaredPage
	switch {
	case page.Next != "":
		out.Next = string(declarable[at]) + ":" + page.Next
	case at+1 < len(declarable):
		out.Next = string(declarable[at+1]) + ":"
	}
	for _, r := range page.Records {
		d := Declared{Version: r.Version}
		if r.Key.Kind == store.KindEntity {
			n, err := nodeOf(r)
			if err != nil {
				return DeclaredPage{}, err
			}
			e := n.entity()
			d.Entity, d.Deleting = &e, n.rec.Deleting
		} else {
			sl, err := scopedLimits(r)
			if err != nil {
				return DeclaredPage{}, err
			}
			d.Limits = &sl
		}
		out.Records = append(out.Records, d)
	}
	return out, nil
}

// Declared returns the limits of a scope as a record that a manifest can declare. Its Version is 0 if there is none.
//
// Errors: [*ConfigError], [ErrNotFound] if the namespace does not exist, store errors.
func (l *Limiter) Declared(ctx context.Context, scope Scope) (Declared, error) {
	if err := scope.validate(); err != nil {
		return Declared{}, err
	}
	s, err := l.space(ctx, l.admin().elapsed())
	if err != nil {
		return Declared{}, err
	}
	r, err := l.admin().get(ctx, scope.key(s.id))
	if err != nil || r.Version == 0 {
		return Declared{}, err
	}
	sl, err := scopedLimits(r)
	return Declared{Limits: &sl, Version: r.Version}, err
}

// DeclaredChange sets a record to what a manifest declares.
type DeclaredChange struct {
	Before Declared // as it was read; the record must still be so
	After  Declared // without Entity and Limits, the record is removed. Version is ignored
}

// Declare makes many changes in few calls to the store. It returns one error per change, nil for those that were made;
// it may make some changes and not others. Each change is audited like a single one, and buckets follow it at their
// next debit.
//
// A parent must exist: declare entities after their parents, in a later call, and remove them before their parents.
// Removing an entity leaves its limits and buckets.
//
// Errors: [*ConfigError], [ErrConflict] if a record is not as it was read, [ErrNotFound] if the namespace does not
// exist, and store errors, after which the change may have been made.
func (l *Limiter) Declare(ctx context.Context, changes []DeclaredChange) []error {
	errs := make([]error, len(changes))
	s, err := l.space(ctx, l.admin().elapsed())
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	d := &declaration{core: l.admin(), space: s.id, errs: errs, nodes: make(map[string]node)}
	var leaving []leaver
	for i := range changes {
		ch := &changes[i]
		if errs[i] = ch.validate(); errs[i] != nil {
			continue
		}
		switch {
		case ch.After.Entity == nil && ch.Before.Entity != nil:
			leaving = append(leaving, leaver{i, ch.node(s.id, ch.Before.Entity)})
		case ch.moves():
			d.move(ctx, i, ch)
		default:
			d.add(ctx, i, ch)
		}
	}
	d.flush(ctx)
	d.remove(ctx, leaving)
	return errs
}

func (ch *DeclaredChange) validate() error {
	b, a := &ch.Before, &ch.After
	switch {
	case b.Entity == nil && b.Limits == nil && a.Entity == nil && a.Limits == nil,
		a.Entity != nil && a.Limits != nil, b.Entity != nil && b.Limits != nil,
		a.Entity != nil && b.Limits != nil, a.Limits != nil && b.Entity != nil,
		a.Entity != nil && b.Entity != nil && a.Entity.ID != b.Entity.ID,
		a.Limits != nil && b.Limits != nil && a.Limits.Scope != b.Limits.Scope,
		(b.Version == 0) != (b.Entity == nil && b.Limits == nil):
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

// moves reports whether an existing entity gets another parent, which may take several steps.
func (ch *DeclaredChange) moves() bool {
	b, a := ch.Before.Entity, ch.After.Entity
	return a != nil && b != nil && a.Parent != "" && a.Parent != b.Parent
}

// node returns the entity's record with its new contents, at the version that was read.
func (ch *DeclaredChange) node(space string, e *Entity) node {
	n := node{key: entityKey(space, e.ID), version: ch.Before.Version}
	n.set(e)
	if b := ch.Before.Entity; b != nil && !b.Created.IsZero() {
		n.rec.Created = b.Created
	} else {
		n.rec.Created = stamp()
	}
	return n
}

// event returns the audit event of the change, the same as for a single change.
func (ch *DeclaredChange) event() event {
	b, a := ch.Before, ch.After
	var ev event
	switch {
	case b.Entity != nil || a.Entity != nil:
		ev = event{action: "entity.update", subject: "entity:"}
		switch {
		case a.Entity == nil:
			ev.action = "entity.delete"
		case b.Entity == nil || b.Entity.Created.IsZero():
			ev.action = "entity.create"
		case a.Entity.equal(b.Entity):
			ev.action = "entity.adopt"
		}
		if b.Entity != nil {
			ev.subject, ev.before = ev.subject+b.Entity.ID, b.Entity
		}
		if a.Entity != nil {
			ev.subject, ev.after = "entity:"+a.Entity.ID, a.Entity
		}
	default:
		ev = event{action: "limits.set"}
		switch {
		case a.Limits == nil:
			ev.action = "limits.delete"
		case b.Limits != nil && a.Limits.equal(b.Limits):
			ev.action = "limits.adopt"
		}
		if b.Limits != nil {
			ev.subject, ev.before = b.Limits.Scope.subject(), b.Limits
		}
		if a.Limits != nil {
			ev.subject, ev.after = a.Limits.Scope.subject(), a.Limits
		}
	}
	return ev
}

// Validate reports what the limiter would reject in an entity, as a [*ConfigError]. It does not check that the parent
// exists.
func (e *Entity) Validate() error { return e.validate() }

// Validate reports what the limiter would reject in a scope's limits, as a [*ConfigError].
func (sl *ScopedLimits) Validate() error {
	if err := sl.Scope.Validate(); err != nil {
		return err
	}
	if err := sl.OnUnavailable.validate("on_unavailable"); err != nil {
		return err
	}
	if err := sl.NearLimit.Validate(); err != nil {
		return err
	}
	if sl.Scope != (Scope{}) && sl.NearLimit != nil {
		return configErr("near_limit", "can be set only for the system")
	}
	if len(sl.Limits) == 0 && sl.settings() {
		return nil
	}
	_, err := validateLimits(sl.Limits)
	return err
}

// Validate reports what the limiter would reject in a scope, as a [*ConfigError].
func (sc Scope) Validate() error { return sc.validate() }

// Validate reports what the limiter would reject in a limit, as a [*ConfigError].
func (l Limit) Validate() error {
	_, err := l.validate()
	return err
}

func hasChildren(id, child string) error {
	return configErr("entity", "%q has children that stay, including %q: remove or move them first", id, child)
}
