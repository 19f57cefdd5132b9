package api

import (
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
	Cascade  bool              `json:"cascade"`
	Metadata map[string]string `json:"metadata"`
}

// EntityKey names an entity.
type EntityKey struct {
	ID string `json:"id" in:"path"`
}

// EntityUpdate describes changes to an entity. What is nil stays as it is.
type EntityUpdate struct {
	ID       string            `json:"id" in:"path"`
	Name     *string           `json:"name"`
	Parent   *string           `json:"parent"`
	Cascade  *bool             `json:"cascade"`
	Metadata map[string]string `json:"metadata"`
}

// EntityDeletion selects an entity to delete.
type EntityDeletion struct {
	ID       string `json:"id" in:"path"`
	Children bool   `json:"children" in:"query"`
}

// EntityQuery selects entities.
type EntityQuery struct {
	Parent string `json:"parent" in:"query"`
	Prefix string `json:"prefix" in:"query"`
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
		func(ctx context.Context, lim *weir.Limiter, q *EntityQuery) (List[admin.Entity], error) {
			p, err := admin.New(lim).Entities.List(ctx, admin.EntityQuery{
				Parent: q.Parent, Prefix: q.Prefix, After: q.After, Max: q.Max,
			})
			return pageOf(p.Items, p.Next, same), err
		})
	CreateEntity = declare(Op{
		Name: "createEntity", Method: "POST", Path: "/v1/entities", Need: Admin, Creates: true,
		Location: func(e any) string { return "/v1/entities/" + url.PathEscape(e.(admin.Entity).ID) },
	}, createEntity)
	ShowEntity = declare(Op{Name: "showEntity", Method: "GET", Path: "/v1/entities/{id}"},
		func(ctx context.Context, lim *weir.Limiter, q *EntityKey) (admin.Entity, error) {
			return admin.New(lim).Entities.Get(ctx, q.ID)
		})
	UpdateEntity = declare(Op{Name: "updateEntity", Method: "PATCH", Path: "/v1/entities/{id}", Need: Admin},
		func(ctx context.Context, lim *weir.Limiter, q *EntityUpdate) (admin.Entity, error) {
			return admin.New(lim).Entities.Update(ctx, q.ID, admin.EntityUpdate{
				Name: q.Name, Parent: q.Parent, Cascade: q.Cascade, Metadata: q.Metadata,
			})
		})
	DeleteEntity = declare(Op{Name: "deleteEntity", Method: "DELETE", Path: "/v1/entities/{id}", Need: Admin},
		func(ctx context.Context, lim *weir.Limiter, q *EntityDeletion) (None, error) {
			return None{}, admin.New(lim).Entities.Delete(ctx, q.ID, admin.DeleteOptions{Children: q.Children})
		})
	ListChildren = declare(Op{Name: "listChildren", Method: "GET", Path: "/v1/entities/{id}/children"},
		func(ctx context.Context, lim *weir.Limiter, q *ChildrenQuery) (List[admin.Entity], error) {
			// a mistyped id is not found, not childless
			if _, err := admin.New(lim).Entities.Get(ctx, q.ID); err != nil {
				return List[admin.Entity]{}, err
			}
			p, err := admin.New(lim).Entities.List(ctx, admin.EntityQuery{Parent: q.ID, After: q.After, Max: q.Max})
			return pageOf(p.Items, p.Next, same), err
		})
)

func createEntity(ctx context.Context, lim *weir.Limiter, q *NewEntity) (admin.Entity, error) {
	err := admin.New(lim).Entities.Create(ctx, admin.Entity{
		ID: q.ID, Name: q.Name, Parent: q.Parent, Cascade: q.Cascade, Metadata: q.Metadata,
	})
	var bad *weir.ConfigError
	if errors.As(err, &bad) && bad.Field == "entity" {
		return admin.Entity{}, &weir.ConfigError{Field: "id", Reason: bad.Reason} // the field's name in a request
	}
	if err != nil {
		return admin.Entity{}, err
	}
	return admin.New(lim).Entities.Get(ctx, q.ID)
}
