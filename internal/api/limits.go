package api

import (
	"context"
	"errors"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

// Scope selects the limits of an entity or a plan, of a resource, or of both; nothing means the system.
type Scope struct {
	Entity   string `json:"entity" in:"query" flag:"-" about:"entity"`
	Plan     string `json:"plan" in:"query" flag:"-"`
	Resource string `json:"resource" in:"query" about:"resource"`
}

func (s Scope) of() admin.Scope {
	return admin.Scope{Entity: s.Entity, Resource: s.Resource, Plan: s.Plan}
}

// LimitsChange sets the limits of a scope, its answer while the store does not answer, or both.
type LimitsChange struct {
	Scope
	Preconditions
	Limits        []weir.Limit        `json:"limits" flag:"limit,l"`
	OnUnavailable *weir.OnUnavailable `json:"on_unavailable" values:"deny,allow,local,default"`
	// The group that a resource belongs to, "" for none.
	Group *string `json:"group"`
	Bounds
}

// Bounds are when limits begin and end. Without them, they are the limits of the scope itself.
type Bounds struct {
	From  admin.Instant `json:"from,omitzero"`
	Until admin.Instant `json:"until,omitzero"`
	Scale int64         `json:"scale,omitempty"`
}

// PlanKey names a plan.
type PlanKey struct {
	ID string `json:"id" in:"path" arg:"PLAN"`
}

// LimitsDeletion deletes the limits of a scope.
type LimitsDeletion struct {
	Scope
	Preconditions
	Bounded bool `json:"bounded" in:"query"`
}

// LimitsQuery selects limits: all of an entity or a plan, or all entities' on a resource.
type LimitsQuery struct {
	Entity   string `json:"entity" in:"query" about:"entity"`
	Plan     string `json:"plan" in:"query" flag:"-"`
	Resource string `json:"resource" in:"query" about:"resource"`
	Page
}

// SystemChange sets the settings of the namespace.
type SystemChange struct {
	OnUnavailable *weir.OnUnavailable `json:"on_unavailable"`
	NearLimit     *admin.Thresholds   `json:"near_limit"`
	Entities      *string             `json:"entities" values:"known,any"`
}

// Limits is the limits of a scope.
type Limits struct {
	Entity        string             `json:"entity,omitempty"`
	Plan          string             `json:"plan,omitempty"`
	Resource      string             `json:"resource,omitempty"`
	Source        weir.Source        `json:"source"`
	Limits        []weir.Limit       `json:"limits"`
	Bounded       []admin.Bounded    `json:"bounded,omitempty"`
	OnUnavailable weir.OnUnavailable `json:"on_unavailable,omitempty"`
	NearLimit     admin.Thresholds   `json:"near_limit,omitzero"`
	Entities      admin.EntityRule   `json:"entities,omitempty"`
	Group         string             `json:"group,omitempty"` // of a resource
	Managed       *admin.Managed     `json:"managed,omitempty"`
	Tag           string             `json:"etag"`
}

// ETag returns the entity tag as it is written in headers.
func (l *Limits) ETag() string { return `"` + l.Tag + `"` }

func limitsOf(l admin.ScopedLimits) *Limits {
	v := &Limits{
		l.Scope.Entity, l.Scope.Plan, l.Scope.Resource, l.Source, l.Limits, l.Bounded, l.OnUnavailable,
		l.NearLimit, l.Entities, l.Group, l.Managed, "",
	}
	if v.Limits == nil {
		v.Limits = []weir.Limit{}
	}
	v.Tag = tagOf(v)
	return v
}

var (
	errStale = &ChangedError{"the limits have changed since their ETag was read: read them again; nothing was changed"}
	errTaken = &ChangedError{
		"there are limits, or an on_unavailable, already: read them, and send If-Match; nothing was changed",
	}
)

// ofLimits checks the preconditions of a change. It returns what makes the change only if they still hold, and whether
// there are any.
func (p *Preconditions) ofLimits(
	ctx context.Context, lim *weir.Limiter, scope admin.Scope,
) (set *admin.Limits, conditional bool, err error) {
	set = admin.New(lim).Limits
	err = p.check(func() (string, error) {
		now, err := set.Get(ctx, scope)
		if err != nil {
			now.Scope = scope
		}
		set, conditional = set.If(now), true
		return limitsOf(now).Tag, err
	}, errStale, errTaken)
	return set, conditional, err
}

// stale returns the error of a change whose precondition held when it was checked.
func stale(conditional bool, err error) error {
	if conditional && errors.Is(err, weir.ErrConflict) {
		return errStale
	}
	return err
}

// The operations on limits and settings. After a change that leaves nothing set, there is nothing to return.
var (
	ShowLimits = declare(Op{Name: "showLimits", Method: "GET", Path: "/v1/limits"},
		func(ctx context.Context, lim *weir.Limiter, q *Scope) (*Limits, error) {
			return showLimits(ctx, lim, q.of())
		})
	SetLimits = declare(
		Op{Name: "setLimits", Method: "PUT", Path: "/v1/limits", Need: Admin, Creates: true}, setLimits,
	)
	DeleteLimits = declare(Op{Name: "deleteLimits", Method: "DELETE", Path: "/v1/limits", Need: Admin},
		func(ctx context.Context, lim *weir.Limiter, q *LimitsDeletion) (None, error) {
			set, conditional, err := q.ofLimits(ctx, lim, q.of())
			switch {
			case err != nil:
			case q.Bounded:
				err = set.DeleteBounded(ctx, q.of())
			default:
				err = set.Delete(ctx, q.of())
			}
			return None{}, stale(conditional, err)
		})
	ListLimits = declare(Op{Name: "listLimits", Method: "GET", Path: "/v1/limits/list"},
		func(ctx context.Context, lim *weir.Limiter, q *LimitsQuery) (List[*Limits], error) {
			p, err := admin.New(lim).Limits.List(ctx, admin.LimitsQuery{
				Entity: q.Entity, Plan: q.Plan, Resource: q.Resource, After: q.After, Max: q.Max,
			})
			return pageOf(p.Items, p.Next, limitsOf), err
		})
	ListResources = declare(Op{Name: "listResources", Method: "GET", Path: "/v1/resources"},
		func(ctx context.Context, lim *weir.Limiter, q *Page) (List[*Limits], error) {
			p, err := admin.New(lim).Limits.List(ctx, admin.LimitsQuery{After: q.After, Max: q.Max})
			return pageOf(p.Items, p.Next, limitsOf), err
		})
	ListPlans = declare(Op{Name: "listPlans", Method: "GET", Path: "/v1/plans"},
		func(ctx context.Context, lim *weir.Limiter, q *Page) (List[*Limits], error) {
			p, err := admin.New(lim).Plans.List(ctx, admin.PlanQuery{After: q.After, Max: q.Max})
			return pageOf(p.Items, p.Next, limitsOf), err
		})
	DeletePlan = declare(Op{Name: "deletePlan", Method: "DELETE", Path: "/v1/plans/{id}", Need: Admin},
		func(ctx context.Context, lim *weir.Limiter, q *PlanKey) (None, error) {
			return None{}, admin.New(lim).Plans.Delete(ctx, q.ID)
		})
	ShowSystem = declare(Op{Name: "showSystem", Method: "GET", Path: "/v1/system"},
		func(ctx context.Context, lim *weir.Limiter, _ *None) (*Limits, error) {
			return showLimits(ctx, lim, admin.Scope{})
		})
	SetSystem = declare(Op{Name: "setSystem", Method: "PUT", Path: "/v1/system", Need: Admin, Creates: true}, setSystem)
)

func showLimits(ctx context.Context, lim *weir.Limiter, scope admin.Scope) (*Limits, error) {
	l, err := admin.New(lim).Limits.Get(ctx, scope)
	if err != nil {
		return nil, err
	}
	return limitsOf(l), nil
}

// shown is showLimits after a change, which may have left nothing set.
func shown(ctx context.Context, lim *weir.Limiter, scope admin.Scope) (*Limits, error) {
	l, err := showLimits(ctx, lim, scope)
	if errors.Is(err, weir.ErrNotFound) {
		return nil, nil //nolint:nilnil // nothing is set
	}
	return l, err
}

func setLimits(ctx context.Context, lim *weir.Limiter, q *LimitsChange) (*Limits, error) {
	set, conditional, err := q.ofLimits(ctx, lim, q.of())
	settings := q.OnUnavailable != nil || q.Group != nil
	if err == nil && q.Group != nil && *q.Group != "" { // validate before anything is set
		err = (&admin.ScopedLimits{Scope: q.of(), Group: *q.Group}).Validate()
	}
	switch {
	case err != nil:
	case q.Group != nil && (q.Resource == "" || q.Entity != "" || q.Plan != ""):
		err = &weir.ConfigError{Field: "group", Reason: "can be set only for a resource"}
	case q.Bounds != (Bounds{}) && settings:
		err = &weir.ConfigError{
			Field:  "until",
			Reason: "cannot be combined with on_unavailable or group: send limits that begin or end alone",
		}
	case q.Bounds != (Bounds{}):
		err = set.SetBounded(ctx, q.of(), admin.Bounded{From: q.From, Until: q.Until, Scale: q.Scale, Limits: q.Limits})
	case conditional && settings:
		err = &weir.ConfigError{
			Field:  "on_unavailable",
			Reason: "is changed without regard to the limits: send it without If-Match and If-None-Match",
		}
	case q.Limits == nil && settings: // leave the limits as they are
	default: // Set refuses an empty list
		err = set.Set(ctx, q.of(), q.Limits...)
	}
	if err = stale(conditional, err); err == nil && q.OnUnavailable != nil {
		err = set.SetOnUnavailable(ctx, q.of(), *q.OnUnavailable)
	}
	if err == nil && q.Group != nil {
		err = set.SetGroup(ctx, q.Resource, *q.Group)
	}
	if err != nil {
		return nil, err
	}
	return shown(ctx, lim, q.of())
}

func setSystem(ctx context.Context, lim *weir.Limiter, q *SystemChange) (*Limits, error) {
	if *q == (SystemChange{}) {
		return nil, &weir.ConfigError{
			Field: "body",
			Reason: "sets nothing: on_unavailable, deny, allow or local; near_limit, percentages; " +
				"entities, known or any",
		}
	}
	if q.NearLimit != nil {
		if err := q.NearLimit.Validate(); err != nil { // validate before anything is set
			return nil, err
		}
	}
	if q.Entities != nil {
		rule := admin.EntityRule(*q.Entities)
		if rule == "any" {
			rule = admin.AnyEntity
		}
		if err := admin.New(lim).Limits.SetEntities(ctx, rule); err != nil {
			return nil, err
		}
	}
	if q.OnUnavailable != nil {
		if err := admin.New(lim).Limits.SetOnUnavailable(ctx, admin.Scope{}, *q.OnUnavailable); err != nil {
			return nil, err
		}
	}
	if q.NearLimit != nil {
		if err := admin.New(lim).Limits.SetNearLimit(ctx, *q.NearLimit); err != nil {
			return nil, err
		}
	}
	return shown(ctx, lim, admin.Scope{})
}
