package admin

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/prepaid"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Limits changes and reads limits, and the settings that are stored with them.
type Limits struct {
	catalog
	was *ScopedLimits // of [Limits.If]
}

// LimitsQuery selects limits: with Entity or Plan set, those of the entity or the plan; with Resource set, those that
// entities have of their own on it ([weir.DefaultResource] for their default limits); with nothing, those of resources.
type LimitsQuery struct {
	Entity   string
	Plan     string
	Resource string
	After    string // Next of the previous page
	Max      int    // maximum number of scopes; 0 means 100, more than 1,000 means 1,000
}

// Set replaces the limits of a scope. Requests through this process follow the new limits at once, even if the store
// then stops answering. After an error that leaves it open whether the limits were replaced, the stricter ones apply
// while the store does not answer. Requests elsewhere follow within [weir.Config.CacheTTL], or at the bucket's next
// debit. Tokens already spent stay spent. Setting limits that are equal to the current ones changes nothing. A plan is
// created with its first limits. A scope has 1 to 64 limits, each with a name of its own.
//
// A balance is set for the total, a group or a named resource. Changes that would hide a balance which is not 0 are
// refused with a [*weir.ConfigError]; a credit at the same time may go unnoticed.
func (s *Limits) Set(ctx context.Context, scope Scope, limits ...weir.Limit) error {
	valid, err := scope.valid(limits)
	if err != nil {
		return err
	}
	return s.change(ctx, scope, "limits.set", func(lr *record.Limits) error {
		lr.Limits = valid
		return nil
	})
}

// Delete removes the limits of a scope, also those that begin or end, so that those of the next more general scope
// apply. The scope's on_unavailable and near_limit stay, and so does its plan. If there are no limits, the error is
// [weir.ErrNotFound].
func (s *Limits) Delete(ctx context.Context, scope Scope) error {
	return s.change(ctx, scope, "limits.delete", func(lr *record.Limits) error {
		if len(lr.Limits)+len(lr.Bounded) == 0 {
			return scope.missing()
		}
		lr.Limits, lr.Bounded = nil, nil
		return nil
	})
}

// If returns s for changes of a scope that has not changed since it was read: was is the result of Get, or only a Scope
// if there was none. A change that would overwrite one made in between returns [weir.ErrConflict].
func (s *Limits) If(was ScopedLimits) *Limits { return &Limits{s.catalog, &was} }

// SetOnUnavailable sets how requests of a scope are decided when the store does not answer. Of the scopes in which
// limits are looked up, the first that sets it counts, whichever has the limits; if none does,
// [weir.Config.OnUnavailable] counts. In a chain of entities with different settings, and if the request has one, the
// strictest counts: [weir.OnUnavailableDeny], then [weir.OnUnavailableLocal], then [weir.OnUnavailableAllow]. It counts
// for requests that bring their own limits, too. [weir.OnUnavailableDefault] leaves the decision to the next more
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

// SetGroup makes a resource a member of a group, and of no other: its requests are also charged to the limits that are
// set for exactly that group; see [weir.GroupResource]. A group exists by being named. "" removes the resource from its
// group. Requests elsewhere follow within [weir.Config.CacheTTL].
func (s *Limits) SetGroup(ctx context.Context, resource, group string) error {
	sl := ScopedLimits{Scope: Scope{Resource: resource}, Group: group}
	if err := cmp.Or(sl.checkGroup(), checkID("resource", resource)); err != nil {
		return err
	}
	return s.change(ctx, sl.Scope, "limits.group", func(lr *record.Limits) error {
		lr.Group = group
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
		read, was, now := scope.with(&lr), lr.Limits, time.Now()
		if err := read.mustBe(s.was); err != nil {
			return err
		}
		kept := lr
		kept.Forget(now)
		before := scope.with(&kept)
		if err := f(&lr); err != nil {
			return err
		}
		if err := lr.CheckBounded(now); err != nil {
			return publicError(err)
		}
		after := scope.with(&lr)
		var events []record.Event
		if len(before.Bounded) < len(read.Bounded) {
			events = append(events, read.event("limits.ended", &before))
		}
		if !after.equal(&before) {
			events = append(events, before.event(action, &after))
		}
		if r.Version == 0 && len(events) > 0 {
			events[0].Before = nil
		}
		if len(events) == 0 {
			return nil
		}
		write := record.Put(r.Key, r.Version, lr)
		c := prepaid.Change{Record: write.Record, Before: was, After: lr}
		if c.Record.Version = max(r.Version, 1); after.Empty() {
			c.Record.Version, write = 0, record.Remove(r)
		}
		writes, err := s.beside(ctx, space, scope)
		if err = cmp.Or(err, s.keep(ctx, c)); err != nil {
			return err
		}
		return s.commit(ctx, space, events, append(writes, write)...)
	})
}

// event returns the audit event of a change.
func (sl *ScopedLimits) event(action string, after *ScopedLimits) record.Event {
	ev := record.Event{Action: action, Subject: sl.subject(), Before: *sl}
	if !after.Empty() {
		ev.After = *after
	}
	return ev
}

// Get returns the limits of exactly this scope, as stored, or [weir.ErrNotFound]. They may be empty if OnUnavailable,
// NearLimit, Entities or Group is set.
func (s *Limits) Get(ctx context.Context, scope Scope) (ScopedLimits, error) {
	space, err := s.space(ctx, scope.Validate())
	if err != nil {
		return ScopedLimits{}, err
	}
	r, err := s.get(ctx, scope.key(space))
	if err != nil {
		return ScopedLimits{}, err
	}
	sl, err := scopedLimits(r)
	if err == nil && (r.Version == 0 || sl.Empty()) {
		err = scope.missing()
	}
	return sl, err
}

// List returns limits ordered by entity, then resource. Default limits are listed under [weir.DefaultResource].
func (s *Limits) List(ctx context.Context, query LimitsQuery) (Page[ScopedLimits], error) {
	sc := Scope{Entity: query.Entity, Resource: query.Resource, Plan: query.Plan}
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
	switch {
	case query.Plan != "":
		q.Kind, q.ID = store.KindPlanLimits, query.Plan
	case query.Entity == "" && query.Resource == "":
		q.Kind = store.KindResourceLimits
	}
	return pageOf(ctx, s.catalog, q, func(r store.Record) (*ScopedLimits, error) {
		sl, err := scopedLimits(r)
		return &sl, err
	})
}
