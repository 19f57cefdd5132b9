package weir

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/weirlimits/weir/store"
)

// Scope selects limits. With both fields set, it is the limits of an entity on a resource; with Entity alone, those of
// the entity on all resources without limits of their own; with Resource alone, those of the resource for all entities;
// with neither, those of the whole namespace. The entity and the resource need not exist.
type Scope struct {
	Entity   string `json:"entity,omitempty"`
	Resource string `json:"resource,omitempty"`
}

// ScopedLimits are the limits of one scope. They are not merged with those of any other scope.
type ScopedLimits struct {
	Scope
	Source        Source        `json:"source"`
	Limits        []Limit       `json:"limits,omitempty"`
	OnUnavailable OnUnavailable `json:"on_unavailable,omitempty"` // see SetOnUnavailable
	NearLimit     Thresholds    `json:"near_limit,omitzero"`      // only in the namespace's scope; see SetNearLimit
	Managed       *Managed      `json:"managed,omitempty"`        // set only by Declare
}

// LimitsQuery selects limits: with Entity set, those of the entity; with Resource set, those that entities have of
// their own on it ([DefaultResource] for their default limits); with neither, those of resources.
type LimitsQuery struct {
	Entity   string
	Resource string
	After    string // LimitsPage.Next of the previous page
	Max      int    // maximum number of scopes; 0 means 100, more than 1,000 means 1,000
}

// LimitsPage is one page of limits. Next is "" on the last page.
type LimitsPage struct {
	Limits []ScopedLimits `json:"limits"`
	Next   string         `json:"next,omitempty"`
}

func (sc Scope) validate() error {
	if sc.Entity != "" {
		if err := checkID("entity", sc.Entity); err != nil {
			return err
		}
	}
	if sc.Resource != "" {
		return checkID("resource", sc.Resource)
	}
	return nil
}

func (sc Scope) key(space string) store.Key {
	switch {
	case sc.Entity != "" && sc.Resource != "":
		return entityLimitsKey(space, sc.Entity, sc.Resource)
	case sc.Entity != "":
		return entityLimitsKey(space, sc.Entity, DefaultResource)
	case sc.Resource != "":
		return resourceKey(space, sc.Resource)
	}
	return systemKey(space)
}

func (sc Scope) source() Source {
	switch {
	case sc.Entity != "" && sc.Resource != "":
		return SourceEntity
	case sc.Entity != "":
		return SourceEntityDefault
	case sc.Resource != "":
		return SourceResource
	}
	return SourceSystem
}

// subject returns the subject of audit events about the limits.
func (sc Scope) subject() string {
	switch {
	case sc.Entity != "":
		return "entity:" + sc.Entity
	case sc.Resource != "":
		return "resource:" + sc.Resource
	}
	return "system"
}

func (sc Scope) missing() error {
	switch sc.source() {
	case SourceEntity:
		return notFound("limits of entity "+strconv.Quote(sc.Entity)+" on resource", sc.Resource)
	case SourceEntityDefault:
		return notFound("default limits of entity", sc.Entity)
	case SourceResource:
		return notFound("limits of resource", sc.Resource)
	default:
		return fmt.Errorf("limits of the system: %w", ErrNotFound)
	}
}

// scopeOf is the inverse of Scope.key.
func scopeOf(k store.Key) Scope {
	switch {
	case k.Kind == store.KindResourceLimits:
		return Scope{Resource: k.ID}
	case k.Kind == store.KindEntityLimits && k.Sub == DefaultResource:
		return Scope{Entity: k.ID}
	case k.Kind == store.KindEntityLimits:
		return Scope{Entity: k.ID, Resource: k.Sub}
	}
	return Scope{}
}

func scopedLimits(r store.Record) (ScopedLimits, error) {
	var lr limitsRecord
	if r.Version != 0 {
		if err := decodeRecord(r, &lr); err != nil {
			return ScopedLimits{}, err
		}
	}
	sc := scopeOf(r.Key)
	return ScopedLimits{sc, sc.source(), lr.Limits, lr.OnUnavailable, lr.NearLimit, lr.Managed}, nil
}

// SetLimits replaces the limits of a scope. Requests through this process follow the new limits at once, even if the
// store then stops answering. After an error that leaves it open whether the limits were replaced, the stricter ones
// apply while the store does not answer. Requests elsewhere follow within [Config.CacheTTL], or at the bucket's next
// debit. Tokens already spent stay spent. Setting limits that are equal to the current ones changes nothing.
//
// Errors: [*ConfigError], [ErrConflict], [ErrNotFound] if the namespace does not exist, store errors.
func (l *Limiter) SetLimits(ctx context.Context, scope Scope, limits ...Limit) error {
	valid, err := validateLimits(limits)
	if err != nil {
		return err
	}
	return l.changeLimits(ctx, scope, "limits.set", func(lr *limitsRecord) error {
		lr.Limits = valid
		return nil
	})
}

// DeleteLimits removes the limits of a scope, so that those of the next more general scope apply. The scope's
// on_unavailable and near_limit stay.
//
// Errors: [ErrNotFound] if there are none, [*ConfigError], [ErrConflict], store errors.
func (l *Limiter) DeleteLimits(ctx context.Context, scope Scope) error {
	return l.changeLimits(ctx, scope, "limits.delete", func(lr *limitsRecord) error {
		if len(lr.Limits) == 0 {
			return scope.missing()
		}
		lr.Limits = nil
		return nil
	})
}

// ReplaceLimits is SetLimits (or DeleteLimits, if there are no limits), provided that the scope's record has not
// changed since it was read: was is the result of Limits, or only a Scope if there was none. It never overwrites a
// change made in between.
//
// Errors: [ErrConflict] if the record has changed, [ErrNotFound] if there are no limits to delete, [*ConfigError],
// store errors.
func (l *Limiter) ReplaceLimits(ctx context.Context, was ScopedLimits, limits ...Limit) error {
	var valid []Limit
	action := "limits.delete"
	if len(limits) > 0 {
		var err error
		if valid, err = validateLimits(limits); err != nil {
			return err
		}
		action = "limits.set"
	}
	return l.changeLimits(ctx, was.Scope, action, func(lr *limitsRecord) error {
		now := ScopedLimits{was.Scope, was.Source, lr.Limits, lr.OnUnavailable, lr.NearLimit, lr.Managed}
		switch {
		case !now.equal(&was), (now.Managed == nil) != (was.Managed == nil), now.Managed != nil &&
			*now.Managed != *was.Managed:
			return fmt.Errorf("limits of %q: differ from those that were read: %w", was.Scope.subject(), ErrConflict)
		case len(limits)+len(lr.Limits) == 0:
			return was.Scope.missing()
		}
		lr.Limits = valid
		return nil
	})
}

// SetOnUnavailable sets how requests of a scope are decided when the store does not answer, unless a request says so
// itself. Of the scopes in which limits are looked up, the first that sets it counts, whichever has the limits; if none
// does, [Config.OnUnavailable] counts. In a chain of entities with different settings, the strictest counts:
// [OnUnavailableDeny], then [OnUnavailableLocal], then [OnUnavailableAllow]. A request that brings its own limits
// ignores the settings of its entity. [OnUnavailableDefault] leaves the decision to the next more general scope.
//
// Errors: [*ConfigError], [ErrConflict], [ErrNotFound] if the namespace does not exist, store errors.
func (l *Limiter) SetOnUnavailable(ctx context.Context, scope Scope, u OnUnavailable) error {
	if err := u.validate("on_unavailable"); err != nil {
		return err
	}
	action := "limits.on_unavailable"
	if scope == (Scope{}) {
		action = "system.on_unavailable"
	}
	return l.changeLimits(ctx, scope, action, func(lr *limitsRecord) error {
		lr.OnUnavailable = u
		return nil
	})
}

// changeLimits reads the record of a scope, applies f, and writes the record if it has changed.
func (l *Limiter) changeLimits(ctx context.Context, scope Scope, action string, f func(*limitsRecord) error) error {
	if err := scope.validate(); err != nil {
		return err
	}
	s, err := l.space(ctx, l.admin().elapsed())
	if err != nil {
		return err
	}
	return l.admin().retry(ctx, "limits of "+strconv.Quote(scope.subject()), func() error {
		r, err := l.admin().get(ctx, scope.key(s.id))
		if err != nil {
			return err
		}
		before, err := scopedLimits(r)
		if err != nil {
			return err
		}
		lr := limitsRecord{before.Limits, before.OnUnavailable, before.NearLimit, before.Managed}
		if err := f(&lr); err != nil {
			return err
		}
		after := ScopedLimits{scope, before.Source, lr.Limits, lr.OnUnavailable, lr.NearLimit, lr.Managed}
		if after.equal(&before) {
			return nil
		}
		ev := event{action: action, subject: scope.subject()}
		if r.Version != 0 {
			ev.before = before
		}
		if after.empty() {
			return l.admin().commit(ctx, s.id, []event{ev}, remove(r))
		}
		ev.after = after
		return l.admin().commit(ctx, s.id, []event{ev}, put(r.Key, r.Version, lr))
	})
}

func (sl *ScopedLimits) empty() bool { return len(sl.Limits) == 0 && !sl.settings() }

// settings reports whether anything other than limits is set.
func (sl *ScopedLimits) settings() bool { return sl.OnUnavailable != "" || sl.NearLimit != nil }

// equal reports whether both set the same.
func (sl *ScopedLimits) equal(o *ScopedLimits) bool {
	return slices.Equal(sl.Limits, o.Limits) && sl.OnUnavailable == o.OnUnavailable && sl.NearLimit.Equal(o.NearLimit)
}

// Limits returns the limits of exactly this scope, as stored. They may be empty if OnUnavailable or NearLimit is set.
//
// Errors: [ErrNotFound] if there are none, [*ConfigError], store errors.
func (l *Limiter) Limits(ctx context.Context, scope Scope) (ScopedLimits, error) {
	if err := scope.validate(); err != nil {
		return ScopedLimits{}, err
	}
	s, err := l.space(ctx, l.admin().elapsed())
	if err != nil {
		return ScopedLimits{}, err
	}
	r, err := l.admin().get(ctx, scope.key(s.id))
	if err != nil {
		return ScopedLimits{}, err
	}
	if r.Version == 0 {
		return ScopedLimits{}, scope.missing()
	}
	return scopedLimits(r)
}

// ListLimits returns limits ordered by entity, then resource. An entity's default limits are listed under
// [DefaultResource].
//
// Errors: [ErrBadCursor], [*ConfigError], [ErrNotFound] if the namespace does not exist, store errors.
func (l *Limiter) ListLimits(ctx context.Context, query LimitsQuery) (LimitsPage, error) {
	sc := Scope{query.Entity, query.Resource}
	if sc.Resource == DefaultResource {
		sc.Resource = ""
	}
	if err := sc.validate(); err != nil {
		return LimitsPage{}, err
	}
	s, err := l.space(ctx, l.admin().elapsed())
	if err != nil {
		return LimitsPage{}, err
	}
	q := store.Query{
		Namespace: s.id, Kind: store.KindEntityLimits, ID: query.Entity, Sub: query.Resource,
		After: query.After, Max: query.Max,
	}
	if query.Entity == "" && query.Resource == "" {
		q.Kind = store.KindResourceLimits
	}
	page, err := l.admin().list(ctx, q)
	if err != nil {
		return LimitsPage{}, err
	}
	out := LimitsPage{Next: page.Next}
	for _, r := range page.Records {
		sl, err := scopedLimits(r)
		if err != nil {
			return LimitsPage{}, err
		}
		out.Limits = append(out.Limits, sl)
	}
	return out, nil
}
