package api

import (
	"cmp"
	"context"
	"errors"
	"net/url"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

// NewEntity describes an entity to create.
type NewEntity struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Parent   string            `json:"parent"`
	Plan     string            `json:"plan"`
	Cascade  bool              `json:"cascade"`
	Metadata map[string]string `json:"metadata"`
}

// Entity is an entity with its entity tag.
type Entity struct {
	admin.Entity
	Tag string `json:"etag"`
}

// ETag returns the entity tag as it is written in headers.
func (e Entity) ETag() string { return `"` + e.Tag + `"` }

func entityOf(e admin.Entity) Entity { return Entity{e, tagOf(e)} }

// EntityKey names an entity.
type EntityKey struct {
	ID string `json:"id" in:"path" about:"entity"`
}

// EntityUpdate describes changes to an entity. What is nil stays as it is.
type EntityUpdate struct {
	ID string `json:"id" in:"path"`
	Preconditions
	Name     *string           `json:"name"`
	Parent   *string           `json:"parent"`
	Plan     *string           `json:"plan"`
	Cascade  *bool             `json:"cascade"`
	Metadata map[string]string `json:"metadata"`
}

// EntityDeletion selects an entity to delete.
type EntityDeletion struct {
	ID string `json:"id" in:"path"`
	Preconditions
	Children bool `json:"children" in:"query"`
}

// EntityQuery selects entities.
type EntityQuery struct {
	Parent string `json:"parent" in:"query"`
	Plan   string `json:"plan" in:"query"`
	Prefix string `json:"prefix" in:"query" about:"entities"`
	Page
}

// ChildrenQuery selects the children of an entity.
type ChildrenQuery struct {
	ID string `json:"id" in:"path"`
	Page
}

// The operations on entities.
var (
	ListEntities = declare(Op{Name: "listEntities", Method: "GET", Path: "/v1/entities"},
		func(ctx context.Context, lim *weir.Limiter, q *EntityQuery) (List[Entity], error) {
			p, err := admin.New(lim).Entities.List(ctx, admin.EntityQuery{
				Parent: q.Parent, Plan: q.Plan, Prefix: q.Prefix, After: q.After, Max: q.Max,
			})
			return pageOf(p.Items, p.Next, entityOf), err
		})
	CreateEntity = declare(Op{
		Name: "createEntity", Method: "POST", Path: "/v1/entities", Need: Admin, Creates: true,
		Location: func(e any) string { return "/v1/entities/" + url.PathEscape(e.(Entity).ID) },
	}, createEntity)
	ShowEntity = declare(Op{Name: "showEntity", Method: "GET", Path: "/v1/entities/{id}"},
		func(ctx context.Context, lim *weir.Limiter, q *EntityKey) (Entity, error) {
			return showEntity(ctx, lim, q.ID)
		})
	UpdateEntity = declare(
		Op{Name: "updateEntity", Method: "PATCH", Path: "/v1/entities/{id}", Need: Admin}, updateEntity,
	)
	DeleteEntity = declare(Op{Name: "deleteEntity", Method: "DELETE", Path: "/v1/entities/{id}", Need: Admin},
		func(ctx context.Context, lim *weir.Limiter, q *EntityDeletion) (None, error) {
			was, err := q.ofEntity(ctx, lim, q.ID)
			if err != nil {
				return None{}, err
			}
			opts := admin.DeleteOptions{Children: q.Children, Was: was}
			return None{}, q.blame(ctx, lim, q.ID, admin.New(lim).Entities.Delete(ctx, q.ID, opts))
		})
	ListChildren = declare(Op{Name: "listChildren", Method: "GET", Path: "/v1/entities/{id}/children"},
		func(ctx context.Context, lim *weir.Limiter, q *ChildrenQuery) (List[Entity], error) {
			// a mistyped id is not found, not childless
			if _, err := admin.New(lim).Entities.Get(ctx, q.ID); err != nil {
				return List[Entity]{}, err
			}
			p, err := admin.New(lim).Entities.List(ctx, admin.EntityQuery{Parent: q.ID, After: q.After, Max: q.Max})
			return pageOf(p.Items, p.Next, entityOf), err
		})
)

func showEntity(ctx context.Context, lim *weir.Limiter, id string) (Entity, error) {
	e, err := admin.New(lim).Entities.Get(ctx, id)
	if err != nil {
		return Entity{}, err
	}
	return entityOf(e), nil
}

func createEntity(ctx context.Context, lim *weir.Limiter, q *NewEntity) (Entity, error) {
	err := admin.New(lim).Entities.Create(ctx, admin.Entity{
		ID: q.ID, Name: q.Name, Parent: q.Parent, Plan: q.Plan, Cascade: q.Cascade, Metadata: q.Metadata,
	})
	if bad, ok := errors.AsType[*weir.ConfigError](err); ok && bad.Field == "entity" {
		return Entity{}, &weir.ConfigError{Field: "id", Reason: bad.Reason} // the field's name in a request
	}
	if err != nil {
		return Entity{}, err
	}
	return showEntity(ctx, lim, q.ID)
}

func updateEntity(ctx context.Context, lim *weir.Limiter, q *EntityUpdate) (Entity, error) {
	was, err := q.ofEntity(ctx, lim, q.ID)
	if err != nil {
		return Entity{}, err
	}
	e, err := admin.New(lim).Entities.Update(ctx, q.ID, admin.EntityUpdate{
		Name: q.Name, Parent: q.Parent, Plan: q.Plan, Cascade: q.Cascade, Metadata: q.Metadata, Was: was,
	})
	return entityOf(e), q.blame(ctx, lim, q.ID, err)
}

var (
	errOtherEntity  = &ChangedError{"the entity has changed since its ETag was read: read it again; nothing changed"}
	errEntityExists = &ChangedError{"the entity exists already: read it, and send If-Match; nothing was changed"}
)

// ofEntity checks the preconditions of a change. It returns the entity, or nil if there is no precondition.
func (p *Preconditions) ofEntity(
	ctx context.Context, lim *weir.Limiter, id string,
) (was *admin.Entity, err error) {
	return was, p.check(func() (string, error) {
		now, err := admin.New(lim).Entities.Get(ctx, id)
		if err == nil {
			was = &now
		}
		return tagOf(now), err
	}, errOtherEntity, errEntityExists)
}

// blame returns the error of a change: if it met another one, whether its precondition still holds.
func (p *Preconditions) blame(ctx context.Context, lim *weir.Limiter, id string, err error) error {
	if !errors.Is(err, weir.ErrConflict) {
		return err
	}
	_, changed := p.ofEntity(ctx, lim, id)
	return cmp.Or(changed, err)
}
