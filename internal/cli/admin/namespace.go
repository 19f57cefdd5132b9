package admin

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/cli/term"
)

// namespaceView is a namespace as printed.
type namespaceView struct {
	Name    string     `json:"name"`
	ID      string     `json:"id"`
	Created time.Time  `json:"created,omitzero"` // zero for the default namespace
	Deleted *time.Time `json:"deleted,omitempty"`
}

func NamespaceCmd(a *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{Use: "namespace", Short: "Manage namespaces, which isolate tenants from each other"},
		namespaceCreateCmd(a), namespaceListCmd(a), namespaceShowCmd(a), namespaceDeleteCmd(a),
		namespaceRecoverCmd(a), namespaceOrphansCmd(a), namespacePurgeCmd(a))
}

func namespaceCreateCmd(a *kit.Run) *cobra.Command {
	return &cobra.Command{
		Use:   "create NAME",
		Short: "Create a namespace",
		Args:  kit.Args("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.With(stores.Create, func(lim *weir.Limiter) error {
				n, err := lim.CreateNamespace(kit.As(cmd.Context()), args[0])
				return oneNamespace(a, n, err)
			})
		},
	}
}

func namespaceShowCmd(a *kit.Run) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show a namespace",
		Args:  kit.Args("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.With(stores.Existing, func(lim *weir.Limiter) error {
				n, err := lim.NamespaceByName(cmd.Context(), args[0])
				return oneNamespace(a, n, err)
			})
		},
	}
}

func namespaceDeleteCmd(a *kit.Run) *cobra.Command {
	var yes bool
	return kit.YesFlag(&cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a namespace; it can be recovered until it is purged",
		Args:  kit.Args("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.Confirm(cmd.Context(), yes, "delete namespace %q", args[0]); err != nil {
				return err
			}
			return a.With(stores.Existing, func(lim *weir.Limiter) error {
				if err := lim.DeleteNamespace(kit.As(cmd.Context()), args[0]); err != nil {
					return err
				}
				return a.Did("deleted namespace %q; recover it with: weir namespace recover %s", args[0], args[0])
			})
		},
	}, &yes)
}

func namespaceRecoverCmd(a *kit.Run) *cobra.Command {
	return &cobra.Command{
		Use:   "recover NAME",
		Short: "Recover a deleted namespace",
		Args:  kit.Args("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.With(stores.Existing, func(lim *weir.Limiter) error {
				n, err := lim.RecoverNamespace(kit.As(cmd.Context()), args[0])
				return oneNamespace(a, n, err)
			})
		},
	}
}

func namespacePurgeCmd(a *kit.Run) *cobra.Command {
	var yes bool
	return kit.YesFlag(&cobra.Command{
		Use:   "purge {NAME | ID}",
		Short: "Remove a deleted or orphaned namespace for good",
		Long:  "Removes a deleted or orphaned namespace for good: its entities, limits, buckets and audit events. If the\ncommand is interrupted, run it again.",
		Args:  kit.Args("NAME or ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.Confirm(cmd.Context(), yes, "remove everything in namespace %q for good", args[0]); err != nil {
				return err
			}
			return a.With(stores.Existing, func(lim *weir.Limiter) error {
				if err := lim.PurgeNamespace(kit.As(cmd.Context()), args[0]); err != nil {
					return err
				}
				return a.Did("purged namespace %q", args[0])
			})
		},
	}, &yes)
}

func namespaceListCmd(a *kit.Run) *cobra.Command {
	var page kit.PageFlags
	var deleted bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the namespaces",
		Args:  kit.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listNamespaces(a, cmd, (*weir.Limiter).Namespaces, weir.NamespaceQuery{Deleted: deleted}, &page)
		},
	}
	cmd.Flags().BoolVar(&deleted, "deleted", false, "also list namespaces that are deleted but not purged yet")
	return page.Add(cmd)
}

func namespaceOrphansCmd(a *kit.Run) *cobra.Command {
	var page kit.PageFlags
	return page.Add(&cobra.Command{
		Use:   "orphans",
		Short: "List namespaces that no name refers to any more",
		Args:  kit.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listNamespaces(a, cmd, (*weir.Limiter).OrphanNamespaces, weir.NamespaceQuery{}, &page)
		},
	})
}

// lister is one of the ways to list namespaces.
type lister func(*weir.Limiter, context.Context, weir.NamespaceQuery) (weir.NamespacePage, error)

func listNamespaces(a *kit.Run, cmd *cobra.Command, list lister, query weir.NamespaceQuery, p *kit.PageFlags) error {
	return a.With(stores.Existing, func(lim *weir.Limiter) error {
		found, next, err := kit.Collect(p, func(after string, size int) ([]namespaceView, string, error) {
			query.After, query.Max = after, size
			page, err := list(lim, cmd.Context(), query)
			views := make([]namespaceView, len(page.Namespaces))
			for i, n := range page.Namespaces {
				views[i] = namespaceView(n)
			}
			return views, page.Next, err
		})
		if err != nil {
			return err
		}
		return kit.PrintPage(a, found, next, func() {
			t := &term.Table{Header: []string{"NAME", "ID", "CREATED", "DELETED"}}
			for _, n := range found {
				t.Row(kit.OrDash(n.Name), n.ID, kit.OrDash(kit.Instant(n.Created)), kit.OrDash(deletedAt(n)))
			}
			a.Out.Table(t)
		})
	})
}

func oneNamespace(a *kit.Run, n weir.Namespace, err error) error {
	if err != nil {
		return err
	}
	view := namespaceView(n)
	return a.Print(view, func() {
		pairs := []string{"name", kit.OrDash(n.Name), "id", n.ID, "created", kit.OrDash(kit.Instant(n.Created))}
		if n.Deleted != nil {
			pairs = append(pairs, "deleted", deletedAt(view))
		}
		a.Out.Pairs(pairs...)
	})
}

func deletedAt(n namespaceView) string {
	if n.Deleted == nil {
		return ""
	}
	return kit.Instant(*n.Deleted)
}
