package admin

import (
	"context"
	"fmt"
	"strconv"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Limits changes and reads limits, and the settings that are stored with them.
type Limits struct{ catalog }

// LimitsQuery selects limits: with Entity set, those of the entity; with Resource set, those that entities have of
// their own on it ([weir.DefaultResource] for their default limits); with neither, those of resources.
type LimitsQuery struct {
	Entity   string
	Resource string
	After    string // Next of the previous page
	Max      int    // maximum number of scopes; 0 means 100, more than 1,000 means 1,000
}

// Set replaces the limits of a scope. Requests through this process follow the new limits at once, even if the store
// then stops answering. After an error that leaves it open whether the limits were replaced, the stricter ones apply
// while the store does not answer. Requests elsewhere follow within [weir.Config.CacheTTL], or at the bucket's next
// debit. Tokens already spent stay spent. Setting limits that are equal to the current ones changes nothing.
func (s *Limits) Set(ctx context.Context, scope Scope, limits ...weir.Limit) error {
	valid, err := validLimits(limits)
	if err != nil {
		return err
	}
	return s.change(ctx, scope, "limits.set", func(lr *record.Limits) error {
		lr.Limits = valid
		return nil
	})
}

// Delete removes the limits of a scope, so that those of the next more general scope apply. The scope's on_unavailable
// and near_limit stay. If there are no limits, the error is [weir.ErrNotFound].
func (s *Limits) Delete(ctx context.Context, scope Scope) error {
	return s.change(ctx, scope, "limits.delete", func(lr *record.Limits) error {
		if len(lr.Limits) == 0 {
			return scope.missing()
		}
		lr.Limits = nil
		return nil
	})
}

// Replace is Set (or Delete, if there are no limits), provided that the scope's record has not changed since it was
// read: was is the result of Get, or only a Scope if there was none. It never overwrites a change made in between.
//
// Errors: [weir.ErrConflict] if the record has changed, [weir.ErrNotFound] if there are no limits to delete.
func (s *Limits) Replace(ctx context.Context, was ScopedLimits, limits ...weir.Limit) error {
	var valid []record.Limit
	action := "limits.delete"
	if len(limits) > 0 {
		var err error
		if valid, err = validLimits(limits); err != nil {
			return err
		}
		action = "limits.set"
	}
	return s.change(ctx, was.Scope, action, func(lr *record.Limits) error {
		now := was.Scope.with(lr)
		switch {
		case !now.equal(&was), !sameMark(now.Managed, was.Managed):
			return fmt.Errorf(
				"limits of %q: differ from those that were read: %w", was.Scope.subject(), weir.ErrConflict,
			)
		case len(limits)+len(lr.Limits) == 0:
			return was.Scope.missing()
		}
		lr.Limits = valid
		return nil
	})
}

// SetOnUnavailable sets how requests of a scope are decided when the store does not answer, unless a request sets it
// itself. Of the scopes in which limits are looked up, the first that sets it counts, whichever has the limits; if none
// does, [weir.Config.OnUnavailable] counts. In a chain of entities with different settings, the strictest counts:
// [weir.OnUnavailableDeny], then [weir.OnUnavailableLocal], then [weir.OnUnavailableAllow]. A request that brings its
// own limits ignores the settings of its entity. [weir.OnUnavailableDefault] leaves the decision to the next more
// general scope.
func (s *Limits) SetOnUnavailable(ctx context.Context, scope Scope, u weir.OnUnavailable) error {
	if err := checkOnUnavailable(u); err != nil {
		return err
	}
	action := "limits.on_unavailable"
	if scope == (Scope{}) {
		action = "system.on_unavailable"
	}
	return s.change(ctx, scope, action, func(lr *record.Limits) error {
		lr.OnUnavailable = string(u)
		return nil
	})
}

// change reads the record of a scope, applies f, and writes the record if it has changed.
func (s *Limits) change(ctx context.Context, scope Scope, action string, f func(*record.Limits) error) error {
	space, err := s.space(ctx, scope.Validate())
	if err != nil {
		return err
	}
	return policy.Retry(ctx, "limits of "+strconv.Quote(scope.subject()), func() error {
		r, err := s.get(ctx, scope.key(space))
		if err != nil {
			return err
		}
		lr, err := decodeLimits(r)
		if err != nil {
			return err
		}
		before := scope.with(&lr)
		if err := f(&lr); err != nil {
			return err
		}
		after := scope.with(&lr)
		if after.equal(&before) {
			return nil
		}
		ev := record.Event{Action: action, Subject: scope.subject()}
		if r.Version != 0 {
			ev.Before = before
		}
		if len(after.Limits) == 0 && !after.settings() {
			return s.commit(ctx, space, []record.Event{ev}, record.Remove(r))
		}
		ev.After = after
		return s.commit(ctx, space, []record.Event{ev}, record.Put(r.Key, r.Version, lr))
	})
}

// Get returns the limits of exactly this scope, as stored, or [weir.ErrNotFound]. They may be empty if OnUnavailable or
// NearLimit is set.
func (s *Limits) Get(ctx context.Context, scope Scope) (ScopedLimits, error) {
	space, err := s.space(ctx, scope.Validate())
	if err != nil {
		return ScopedLimits{}, err
	}
	r, err := s.get(ctx, scope.key(space))
	if err != nil {
		return ScopedLimits{}, err
	}
	if r.Version == 0 {
		return ScopedLimits{}, scope.missing()
	}
	return scopedLimits(r)
}

// List returns limits ordered by entity, then resource. An entity's default limits are listed under
// [weir.DefaultResource].
func (s *Limits) List(ctx context.Context, query LimitsQuery) (Page[ScopedLimits], error) {
	sc := Scope{query.Entity, query.Resource}
	if sc.Resource == weir.DefaultResource {
		sc.Resource = ""
	}
	space, err := s.space(ctx, sc.Validate())
	if err != nil {
		return Page[ScopedLimits]{}, err
	}
	q := store.Query{
		Namespace: space, Kind: store.KindEntityLimits, ID: query.Entity, Sub: query.Resource,
		After: query.After, Max: query.Max,
	}
	if query.Entity == "" && query.Resource == "" {
		q.Kind = store.KindResourceLimits
	}
	return pageOf(ctx, s.catalog, q, func(r store.Record) (*ScopedLimits, error) {
		sl, err := scopedLimits(r)
		return &sl, err
	})
}
