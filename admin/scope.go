package admin

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy/record"
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
	Source        weir.Source        `json:"source"`
	Limits        []weir.Limit       `json:"limits,omitempty"`
	OnUnavailable weir.OnUnavailable `json:"on_unavailable,omitempty"` // see SetOnUnavailable
	// NearLimit is set only in the namespace's scope; see SetNearLimit.
	NearLimit Thresholds `json:"near_limit,omitzero"`
	Managed   *Managed   `json:"managed,omitempty"` // set only by Declare
}

// Validate reports what is wrong with a scope, as a [*weir.ConfigError].
func (sc Scope) Validate() error {
	if err := checkOptional("entity", sc.Entity); err != nil {
		return err
	}
	return checkOptional("resource", sc.Resource)
}

func (sc Scope) key(space string) store.Key { return record.LimitsKey(space, sc.Entity, sc.Resource) }

func (sc Scope) source() weir.Source {
	switch {
	case sc.Entity != "" && sc.Resource != "":
		return weir.SourceEntity
	case sc.Entity != "":
		return weir.SourceEntityDefault
	case sc.Resource != "":
		return weir.SourceResource
	}
	return weir.SourceSystem
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
	case weir.SourceEntity:
		return notFound("limits of entity "+strconv.Quote(sc.Entity)+" on resource", sc.Resource)
	case weir.SourceEntityDefault:
		return notFound("default limits of entity", sc.Entity)
	case weir.SourceResource:
		return notFound("limits of resource", sc.Resource)
	default:
		return fmt.Errorf("limits of the system: %w", weir.ErrNotFound)
	}
}

func scopedLimits(r store.Record) (ScopedLimits, error) {
	lr, err := decodeLimits(r)
	if err != nil {
		return ScopedLimits{}, err
	}
	entity, resource := record.LimitsOf(r.Key)
	return Scope{entity, resource}.with(&lr), nil
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
		Scope: sc, Source: sc.source(), Limits: publicLimits(r.Limits),
		OnUnavailable: weir.OnUnavailable(r.OnUnavailable),
		NearLimit:     r.NearLimit, Managed: (*Managed)(r.Managed),
	}
}

func publicLimits(rs []record.Limit) (ls []weir.Limit) {
	for _, r := range rs {
		ls = append(ls, weir.Limit{
			Name: r.Name, Amount: r.Amount, Period: r.Period, Burst: r.Burst, Enforce: weir.Enforce(r.Enforce),
			Former: weir.Rate(r.Former),
		})
	}
	return ls
}

// validLimits returns limits with their bursts filled in. It refuses an empty set, invalid limits, and a name that
// appears twice.
func validLimits(ls []weir.Limit) ([]record.Limit, error) {
	rs := make([]record.Limit, len(ls))
	for i, l := range ls {
		rs[i] = record.Limit{
			Name: l.Name, Amount: l.Amount, Period: l.Period, Burst: l.Burst, Enforce: record.Enforce(l.Enforce),
			Former: record.Rate(l.Former),
		}
	}
	rs, err := record.ValidateLimits(rs)
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
	if err := sl.Scope.Validate(); err != nil {
		return err
	}
	if err := checkOnUnavailable(sl.OnUnavailable); err != nil {
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
	_, err := validLimits(sl.Limits)
	return err
}

// settings reports whether anything other than limits is set.
func (sl *ScopedLimits) settings() bool { return sl.OnUnavailable != "" || sl.NearLimit != nil }

// equal reports whether both set the same.
func (sl *ScopedLimits) equal(o *ScopedLimits) bool {
	return slices.Equal(sl.Limits, o.Limits) && sl.OnUnavailable == o.OnUnavailable && sl.NearLimit.Equal(o.NearLimit)
}

// sameMark reports whether two records are declared by the same manifest with the same value, or both by none.
func sameMark(a, b *Managed) bool { return a == b || a != nil && b != nil && *a == *b }
