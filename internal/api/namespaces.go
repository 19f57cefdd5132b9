package api

import (
	"context"
	"net/url"

	"github.com/weirlimits/weir"
)

// NamespaceKey names a namespace.
type NamespaceKey struct {
	Name string `json:"name" in:"path"`
}

// NewNamespace describes a namespace to create.
type NewNamespace struct {
	Name string `json:"name"`
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
		func(ctx context.Context, lim *weir.Limiter, q *NamespaceQuery) (List[weir.Namespace], error) {
			list := lim.Namespaces
			if q.Orphaned {
				list = lim.OrphanNamespaces
			}
			p, err := list(ctx, weir.NamespaceQuery{Deleted: q.Deleted, After: q.After, Max: q.Max})
			return pageOf(p.Namespaces, p.Next, same), err
		})
	CreateNamespace = declare(Op{
		Name: "createNamespace", Method: "POST", Path: "/v1/namespaces", Need: AdminAll, Creates: true,
		Location: func(n any) string { return "/v1/namespaces/" + url.PathEscape(n.(weir.Namespace).Name) },
	}, func(ctx context.Context, lim *weir.Limiter, q *NewNamespace) (weir.Namespace, error) {
		return lim.CreateNamespace(ctx, q.Name)
	})
	ShowNamespace = declare(Op{Name: "showNamespace", Method: "GET", Path: "/v1/namespaces/{name}", Need: ReadAll},
		func(ctx context.Context, lim *weir.Limiter, q *NamespaceKey) (weir.Namespace, error) {
			return lim.NamespaceByName(ctx, q.Name)
		})
	DeleteNamespace = declare(
		Op{Name: "deleteNamespace", Method: "DELETE", Path: "/v1/namespaces/{name}", Need: AdminAll},
		func(ctx context.Context, lim *weir.Limiter, q *NamespaceKey) (None, error) {
			return None{}, lim.DeleteNamespace(ctx, q.Name)
		})
	RecoverNamespace = declare(Op{
		Name: "recoverNamespace", Method: "POST", Path: "/v1/namespaces/{name}/recover", Need: AdminAll,
	}, func(ctx context.Context, lim *weir.Limiter, q *NamespaceKey) (weir.Namespace, error) {
		return lim.RecoverNamespace(ctx, q.Name)
	})
	PurgeNamespace = declare(
		Op{Name: "purgeNamespace", Method: "POST", Path: "/v1/namespaces/{name}/purge", Need: AdminAll},
		func(ctx context.Context, lim *weir.Limiter, q *NamespaceKey) (None, error) {
			return None{}, lim.PurgeNamespace(ctx, q.Name)
		})
)
