package admin

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Scope selects limits. With an Entity or a Plan, of which at most one is set, and a Resource, it is the limits of the
// entity, or of the entities on the plan, on the resource; without the resource, those on all resources without limits
// of their own; with Resource alone, those of the resource for all entities; with nothing, those of the whole
// namespace. The entity and the resource need not exist.
//
// The resource may be a group ([weir.GroupResource]) or [weir.TotalResource]: limits that are set for exactly that are
// charged by all requests that belong to it, for each entity apart. Default limits do not apply there.
type Scope struct {
	Entity   string `json:"entity,omitempty"`
	Resource string `json:"resource,omitempty"`
	Plan     string `json:"plan,omitempty"`
}

// ScopedLimits are the limits of one scope. They are not merged with those of any other scope.
type ScopedLimits struct {
	Scope
	Source        weir.Source        `json:"source"`
	Limits        []weir.Limit       `json:"limits,omitempty"`
	Bounded       []Bounded          `json:"bounded,omitempty"`        // in order of time; see SetBounded
	OnUnavailable weir.OnUnavailable `json:"on_unavailable,omitempty"` // see SetOnUnavailable
	// NearLimit is set only in the namespace's scope; see SetNearLimit.
	NearLimit Thresholds `json:"near_limit,omitzero"`
	Entities  EntityRule `json:"entities,omitempty"` // set only in the namespace's scope; see SetEntities
	Group     string     `json:"group,omitempty"`    // set only in a resource's scope; see SetGroup
	Managed   *Managed   `json:"managed,omitempty"`  // set only by Declare
}

// Validate reports what is wrong with a scope, as a [*weir.ConfigError].
func (sc Scope) Validate() error {
	if err := checkOptional("entity", sc.Entity); err != nil {
		return err
	}
	if sc.Entity != "" && sc.Plan != "" {
		return configErr("plan", "cannot be combined with an entity: an entity names its plan")
	}
	if err := checkOptional("plan", sc.Plan); err != nil {
		return err
	}
	return checkResource(sc.Resource)
}

func (sc Scope) key(space string) store.Key { return record.Scope(sc).Key(space) }

func (sc Scope) source() weir.Source { return weir.Source(policy.SourceOf(record.Scope(sc))) }

func (sc Scope) subject() string { return record.Scope(sc).Subject() }

func (sc Scope) missing() error {
	return fmt.Errorf("%s: %w", record.Scope(sc).Name(), weir.ErrNotFound)
}

func scopedLimits(r store.Record) (ScopedLimits, error) {
	lr, err := decodeLimits(r)
	if err != nil {
		return ScopedLimits{}, err
	}
	return Scope(record.ScopeOf(r.Key)).with(&lr), nil
}

func decodeLimits(r store.Record) (lr record.Limits, err error) {
	if r.Version != 0 {
		err = record.Decode(r, &lr)
	}
	return lr, err
}

// with returns the limits and settings of the scope's record.
func (sc Scope) with(r *record.Limits) ScopedLimits {
	return ScopedLimits{
		Scope: sc, Source: sc.source(), Limits: publicLimits(r.Limits), Bounded: publicBounded(r.Bounded),
		OnUnavailable: weir.OnUnavailable(r.OnUnavailable),
		NearLimit:     r.NearLimit, Entities: EntityRule(r.Entities), Group: r.Group, Managed: (*Managed)(r.Managed),
	}
}

func publicLimits(rs []record.Limit) (ls []weir.Limit) {
	for _, r := range rs {
		ls = append(ls, weir.Limit(r))
	}
	return ls
}

func storedLimits(ls []weir.Limit) (rs []record.Limit) {
	for _, l := range ls {
		rs = append(rs, record.Limit(l))
	}
	return rs
}

// valid returns limits of a scope with their bursts filled in. It refuses an empty set, invalid limits, a name that
// appears twice, and a balance for resources that are not named, of which each would have its own.
func (sc Scope) valid(ls []weir.Limit) ([]record.Limit, error) {
	for _, l := range ls {
		if err := record.CheckVisible("limit name", l.Name); err != nil {
			return nil, publicError(err)
		}
	}
	rs, err := record.ValidateLimits(storedLimits(ls))
	i := slices.IndexFunc(rs, func(l record.Limit) bool { return l.Balance })
	if err == nil && i >= 0 && sc.Resource == "" {
		err = configErr("limits", "have the balance %q: set it for the total, a group or a named resource", rs[i].Name)
	}
	return rs, publicError(err)
}

func checkOnUnavailable(u weir.OnUnavailable) error {
	switch u {
	case weir.OnUnavailableDefault, weir.OnUnavailableDeny, weir.OnUnavailableAllow, weir.OnUnavailableLocal:
		return nil
	}
	return configErr("on_unavailable", "must be deny, allow or local: %q", string(u))
}

// Validate reports what is wrong with a scope's limits, as a [*weir.ConfigError].
func (sl *ScopedLimits) Validate() error {
	for _, err := range []error{
		sl.Scope.Validate(), checkOnUnavailable(sl.OnUnavailable), sl.NearLimit.Validate(), sl.Entities.Validate(),
	} {
		if err != nil {
			return err
		}
	}
	if sl.Scope != (Scope{}) && (sl.NearLimit != nil || sl.Entities != AnyEntity) {
		return configErr("near_limit", "and entities can be set only for the system")
	}
	if err := sl.checkGroup(); err != nil {
		return err
	}
	if len(sl.Limits)+len(sl.Bounded) == 0 && !sl.Empty() {
		return nil
	}
	_, err := sl.records()
	return err
}

// records returns the limits as they are stored.
func (sl *ScopedLimits) records() (lr record.Limits, err error) {
	if len(sl.Limits) > 0 || len(sl.Bounded) == 0 {
		lr.Limits, err = sl.valid(sl.Limits)
	}
	for i := range sl.Bounded {
		b, bad := sl.Bounded[i].record(sl.Scope)
		lr.Bounded, err = append(lr.Bounded, b), cmp.Or(err, bad)
	}
	return lr, cmp.Or(err, publicError(lr.CheckBounded(time.Time{}))) // whether they have ended or not
}

// checkGroup reports what is wrong with the group of a resource.
func (sl *ScopedLimits) checkGroup() error {
	switch {
	case sl.Group == "":
		return nil
	case store.Aggregate(sl.Resource):
		return configErr("group", "cannot be set for %q: a group, or the total, belongs to no group", sl.Resource)
	case sl.source() != weir.SourceResource:
		return configErr("group", "can be set only for a resource")
	}
	if err := record.CheckVisible("group", sl.Group); err != nil {
		return publicError(err)
	}
	return publicError(record.CheckGroup("group", sl.Group))
}

// Empty reports whether nothing is set, so that there is no record. A plan has one until it is deleted.
func (sl *ScopedLimits) Empty() bool {
	return len(sl.Limits)+len(sl.Bounded) == 0 && sl.OnUnavailable == "" && sl.NearLimit == nil &&
		sl.Entities == AnyEntity && sl.Group == "" && sl.source() != weir.SourcePlanDefault
}

// equal reports whether both set the same.
func (sl *ScopedLimits) equal(o *ScopedLimits) bool {
	return slices.Equal(sl.Limits, o.Limits) && reflect.DeepEqual(sl.Bounded, o.Bounded) &&
		sl.OnUnavailable == o.OnUnavailable && sl.NearLimit.Equal(o.NearLimit) &&
		sl.Entities == o.Entities && sl.Group == o.Group
}

// mustBe returns [weir.ErrConflict] unless the limits are as they were read. They may be anything if was is nil.
func (sl *ScopedLimits) mustBe(was *ScopedLimits) error {
	if was == nil || sl.Scope == was.Scope && sl.equal(was) && sameMark(sl.Managed, was.Managed) {
		return nil
	}
	return fmt.Errorf("limits of %q: differ from those that were read: %w", sl.subject(), weir.ErrConflict)
}

// sameMark reports whether two records are declared by the same manifest with the same value, or both by none.
func sameMark(a, b *Managed) bool { return a == b || a != nil && b != nil && *a == *b }
