package api

import (
	"context"
	"net/url"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

// NamespaceKey names a namespace.
type NamespaceKey struct {
	Name string `json:"name" in:"path"`
}

// NewNamespace describes a namespace to create.
type NewNamespace struct {
	Name string `json:"name"`
}

// NamespaceChange changes the settings of a namespace that only an administrator of all namespaces may change.
type NamespaceChange struct {
	Name       string `json:"name" in:"path"`
	MaxBuckets *int   `json:"max_buckets" range:"0.."`
}

// NamespaceQuery selects namespaces.
type NamespaceQuery struct {
	Deleted  bool `json:"deleted" in:"query"`
	Orphaned bool `json:"orphaned" in:"query"`
	Page
}

// The operations on the registry of namespaces.
var (
	ListNamespaces = declare(Op{Name: "listNamespaces", Method: "GET", Path: "/v1/namespaces", Need: ReadAll},
		func(ctx context.Context, lim *weir.Limiter, q *NamespaceQuery) (List[admin.Namespace], error) {
			list := admin.New(lim).Namespaces.List
			if q.Orphaned {
				list = admin.New(lim).Namespaces.Orphans
			}
			p, err := list(ctx, admin.NamespaceQuery{Deleted: q.Deleted, After: q.After, Max: q.Max})
			return pageOf(p.Items, p.Next, same), err
		})
	CreateNamespace = declare(Op{
		Name: "createNamespace", Method: "POST", Path: "/v1/namespaces", Need: AdminAll, Creates: true,
		Location: func(n any) string { return "/v1/namespaces/" + url.PathEscape(n.(admin.Namespace).Name) },
	}, func(ctx context.Context, lim *weir.Limiter, q *NewNamespace) (admin.Namespace, error) {
		return admin.New(lim).Namespaces.Create(ctx, q.Name)
	})
	ShowNamespace = declare(Op{Name: "showNamespace", Method: "GET", Path: "/v1/namespaces/{name}", Need: ReadAll},
		func(ctx context.Context, lim *weir.Limiter, q *NamespaceKey) (admin.Namespace, error) {
			return admin.New(lim).Namespaces.Get(ctx, q.Name)
		})
	UpdateNamespace = declare(
		Op{Name: "updateNamespace", Method: "PATCH", Path: "/v1/namespaces/{name}", Need: AdminAll},
		func(ctx context.Context, lim *weir.Limiter, q *NamespaceChange) (admin.Namespace, error) {
			if q.MaxBuckets == nil {
				return admin.Namespace{}, &weir.ConfigError{Field: "body", Reason: "sets nothing: give max_buckets"}
			}
			return admin.New(lim).Namespaces.SetMaxBuckets(ctx, q.Name, *q.MaxBuckets)
		})
	DeleteNamespace = declare(
		Op{Name: "deleteNamespace", Method: "DELETE", Path: "/v1/namespaces/{name}", Need: AdminAll},
		func(ctx context.Context, lim *weir.Limiter, q *NamespaceKey) (None, error) {
			return None{}, admin.New(lim).Namespaces.Delete(ctx, q.Name)
		})
	RecoverNamespace = declare(Op{
		Name: "recoverNamespace", Method: "POST", Path: "/v1/namespaces/{name}/recover", Need: AdminAll,
	}, func(ctx context.Context, lim *weir.Limiter, q *NamespaceKey) (admin.Namespace, error) {
		return admin.New(lim).Namespaces.Recover(ctx, q.Name)
	})
	PurgeNamespace = declare(
		Op{Name: "purgeNamespace", Method: "POST", Path: "/v1/namespaces/{name}/purge", Need: AdminAll},
		func(ctx context.Context, lim *weir.Limiter, q *NamespaceKey) (None, error) {
			return None{}, admin.New(lim).Namespaces.Purge(ctx, q.Name)
		})
)
