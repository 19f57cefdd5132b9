package admin

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
)

var namespace = kit.Columns([]kit.Column[admin.Namespace]{
	{Name: "name"},
	{Name: "id"},
	{Name: "created"},
	{Name: "deleted"},
	{Name: "max_buckets", Of: func(n *admin.Namespace) any {
		if n.MaxBuckets == 0 {
			return nil
		}
		return n.MaxBuckets
	}},
})

// NamespaceCmd returns the commands that manage namespaces.
func NamespaceCmd(r *kit.Run) *cobra.Command {
	return kit.Group(
		&cobra.Command{Use: "namespace", Short: "Manage namespaces, which isolate tenants from each other"},
		kit.Verb(r, api.CreateNamespace, kit.Spec{Use: "create NAME", Short: "Create a namespace"}, namespace),
		kit.Lists(r, api.ListNamespaces, kit.Spec{
			Use: "list", Short: "List the namespaces", Omit: []string{"orphaned"},
		}, namespace),
		kit.Verb(r, api.ShowNamespace, kit.Spec{Use: "show NAME", Short: "Show a namespace"}, namespace),
		kit.Verb(r, api.UpdateNamespace, kit.Spec{
			Use: "set NAME", Short: "Set how many buckets a namespace may have on each server",
			Some: "nothing to change: give --max-buckets",
		}, namespace),
		kit.Verb(r, api.DeleteNamespace, kit.Spec{
			Use: "delete NAME", Short: "Delete a namespace; it can be recovered until it is purged",
			Asks: "delete namespace {name}",
			Done: "deleted namespace {name}; recover it with: weir namespace recover {name}",
		}, nil),
		kit.Verb(
			r, api.RecoverNamespace, kit.Spec{Use: "recover NAME", Short: "Recover a deleted namespace"}, namespace,
		),
		kit.Func(r, kit.Spec{
			Use: "orphans", Short: "List namespaces that no name refers to any more",
			Long: `Lists namespaces that no name refers to any more: the remains of purges that were interrupted,
and purged namespaces that another process has written to since, within 30 days. To remove what
is left, purge the id.`,
			Omit: []string{"orphaned", "deleted"},
		}, func(ctx context.Context, q *api.NamespaceQuery) error {
			q.Orphaned = true
			return kit.List(ctx, r, api.ListNamespaces, q, namespace)
		}),
		kit.Verb(r, api.PurgeNamespace, kit.Spec{
			Use: "purge NAME", Short: "Remove a deleted or orphaned namespace, by its name or id, for good",
			Long: `Removes a deleted or orphaned namespace for good: its entities, limits and audit events. Its
buckets admit nothing more, and expire by themselves once they would be full. If the command is
interrupted, run it again.

A process that has cached the limits may use the namespace for up to 60 seconds after it was
deleted, for entities that had spent nothing. Then namespace orphans lists it: purge the id.`,
			Asks: "remove everything in namespace {name} for good", Done: "purged namespace {name}",
		}, nil))
}
