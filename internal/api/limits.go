package api

import (
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

// Scope selects the limits of an entity, a resource or both; neither means the system.
type Scope struct {
	Entity   string `json:"entity" in:"query" flag:"-"`
	Resource string `json:"resource" in:"query"`
}

func (s Scope) of() admin.Scope { return admin.Scope{Entity: s.Entity, Resource: s.Resource} }

// Preconditions are what must hold for a change: Match, that the limits are still those it was based on, or NoneMatch,
// which must be *, that there are none.
type Preconditions struct {
	Match     []string `json:"If-Match" in:"header" flag:"-"`
	NoneMatch []string `json:"If-None-Match" in:"header" flag:"-"`
}

// LimitsChange sets the limits of a scope, its answer while the store does not answer, or both.
type LimitsChange struct {
	Scope
	Preconditions
	Limits        []weir.Limit        `json:"limits" flag:"limit,l"`
	OnUnavailable *weir.OnUnavailable `json:"on_unavailable" values:"deny,allow,local,default"`
}

// LimitsDeletion deletes the limits of a scope.
type LimitsDeletion struct {
	Scope
	Preconditions
}

// LimitsQuery selects limits: all of an entity, or all entities' on a resource.
type LimitsQuery struct {
	Entity   string `json:"entity" in:"query"`
	Resource string `json:"resource" in:"query"`
	Page
}

// SystemChange sets the settings of the namespace.
type SystemChange struct {
	Preconditions
	OnUnavailable *weir.OnUnavailable `json:"on_unavailable"`
	NearLimit     *admin.Thresholds   `json:"near_limit"`
}

// Limits is the limits of a scope.
type Limits struct {
	Entity        string             `json:"entity,omitempty"`
	Resource      string             `json:"resource,omitempty"`
	Source        weir.Source        `json:"source"`
	Limits        []weir.Limit       `json:"limits"`
	OnUnavailable weir.OnUnavailable `json:"on_unavailable,omitempty"`
	NearLimit     admin.Thresholds   `json:"near_limit,omitzero"`
	Managed       *admin.Managed     `json:"managed,omitempty"`
	Tag           string             `json:"etag"`
}

// ETag returns the entity tag as it is written in headers.
func (l *Limits) ETag() string { return `"` + l.Tag + `"` }

func limitsOf(l admin.ScopedLimits) *Limits {
	v := &Limits{l.Scope.Entity, l.Scope.Resource, l.Source, l.Limits, l.OnUnavailable, l.NearLimit, l.Managed, ""}
	if v.Limits == nil {
		v.Limits = []weir.Limit{}
	}
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(v) // cannot fail: it writes to memory
	v.Tag = strconv.FormatUint(h.Sum64(), 16)
	return v
}

// ChangedError is the error of a change whose precondition does not hold. Nothing was changed.
type ChangedError struct{ Detail string }

// Error returns the detail.
func (e *ChangedError) Error() string { return e.Detail }

var (
	errStale = &ChangedError{"the limits are not those that If-Match names: read them again; nothing was changed"}
	errTaken = &ChangedError{
		"there are limits, or an on_unavailable, already: read them, and send If-Match; nothing was changed",
	}
)

// check checks the preconditions. It returns the current limits, or nil if there is no precondition.
func (p *Preconditions) check(ctx context.Context, lim *weir.Limiter, scope admin.Scope) (*admin.ScopedLimits, error) {
	switch {
	case len(p.Match)+len(p.NoneMatch) == 0:
		return nil, nil //nolint:nilnil // no precondition
	case len(p.Match) > 0 && len(p.NoneMatch) > 0:
		return nil, &weir.ConfigError{Field: "If-Match", Reason: "and If-None-Match exclude each other"}
	case len(p.NoneMatch) > 1 || len(p.NoneMatch) == 1 && p.NoneMatch[0] != "*":
		return nil, &weir.ConfigError{Field: "If-None-Match", Reason: "must be *: that there are no limits yet"}
	}
	now, err := admin.New(lim).Limits.Get(ctx, scope)
	exists := err == nil
	if err != nil && !errors.Is(err, weir.ErrNotFound) {
		return nil, err
	}
	if now.Scope = scope; len(p.NoneMatch) > 0 {
		if exists {
			return nil, errTaken
		}
		return &now, nil
	}
	current := limitsOf(now)
	for tag := range strings.SplitSeq(strings.Join(p.Match, ","), ",") {
		if tag = strings.TrimSpace(tag); exists && (tag == current.ETag() || tag == "*") {
			return &now, nil
		}
	}
	return nil, errStale
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
			was, err := q.check(ctx, lim, q.of())
			switch {
			case err != nil:
			case was == nil:
				err = admin.New(lim).Limits.Delete(ctx, q.of())
			default:
				err = replace(ctx, lim, was, nil)
			}
			return None{}, err
		})
	ListLimits = declare(Op{Name: "listLimits", Method: "GET", Path: "/v1/limits/list"},
		func(ctx context.Context, lim *weir.Limiter, q *LimitsQuery) (List[*Limits], error) {
			p, err := admin.New(lim).Limits.List(ctx, admin.LimitsQuery{
				Entity: q.Entity, Resource: q.Resource, After: q.After, Max: q.Max,
			})
			return pageOf(p.Items, p.Next, limitsOf), err
		})
	ListResources = declare(Op{Name: "listResources", Method: "GET", Path: "/v1/resources"},
		func(ctx context.Context, lim *weir.Limiter, q *Page) (List[*Limits], error) {
			p, err := admin.New(lim).Limits.List(ctx, admin.LimitsQuery{After: q.After, Max: q.Max})
			return pageOf(p.Items, p.Next, limitsOf), err
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

// replace replaces the limits that were read, unless they have changed since.
func replace(ctx context.Context, lim *weir.Limiter, was *admin.ScopedLimits, limits []weir.Limit) error {
	err := admin.New(lim).Limits.Replace(ctx, *was, limits...)
	if errors.Is(err, weir.ErrConflict) {
		return errStale
	}
	return err
}

func setLimits(ctx context.Context, lim *weir.Limiter, q *LimitsChange) (*Limits, error) {
	was, err := q.check(ctx, lim, q.of())
	switch {
	case err != nil:
	case was != nil && q.OnUnavailable != nil:
		err = &weir.ConfigError{
			Field:  "on_unavailable",
			Reason: "is changed without regard to the limits: send it without If-Match and If-None-Match",
		}
	case q.Limits == nil && q.OnUnavailable != nil: // leave the limits as they are
	case was == nil || len(q.Limits) == 0: // SetLimits refuses an empty list
		err = admin.New(lim).Limits.Set(ctx, q.of(), q.Limits...)
	default:
		err = replace(ctx, lim, was, q.Limits)
	}
	if err == nil && q.OnUnavailable != nil {
		err = admin.New(lim).Limits.SetOnUnavailable(ctx, q.of(), *q.OnUnavailable)
	}
	if err != nil {
		return nil, err
	}
	return shown(ctx, lim, q.of())
}

func setSystem(ctx context.Context, lim *weir.Limiter, q *SystemChange) (*Limits, error) {
	switch {
	case len(q.Match)+len(q.NoneMatch) > 0:
		return nil, &weir.ConfigError{
			Field:  "If-Match",
			Reason: "is for the limits, at /v1/limits: a setting is changed without regard to the others",
		}
	case q.OnUnavailable == nil && q.NearLimit == nil:
		return nil, &weir.ConfigError{
			Field: "body", Reason: "sets nothing: on_unavailable, deny, allow or local; near_limit, percentages",
		}
	}
	if q.NearLimit != nil {
		if err := q.NearLimit.Validate(); err != nil { // validate before anything is set
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
