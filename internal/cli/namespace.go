package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/term"
)

// namespaceView is a namespace as printed.
type namespaceView struct {
	Name    string     `json:"name"`
	ID      string     `json:"id"`
	Created time.Time  `json:"created,omitzero"` // zero for the default namespace
	Deleted *time.Time `json:"deleted,omitempty"`
}

func (a *app) namespaceCmd() *cobra.Command {
	return group(&cobra.Command{Use: "namespace", Short: "Manage namespaces, which isolate tenants from each other"},
		a.namespaceCreateCmd(), a.namespaceListCmd(), a.namespaceShowCmd(), a.namespaceDeleteCmd(),
		a.namespaceRecoverCmd(), a.namespaceOrphansCmd(), a.namespacePurgeCmd())
}

func (a *app) namespaceCreateCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "create NAME",
		Short: "Create a namespace",
		Args:  args("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(create, func(lim *weir.Limiter) error {
				return a.oneNamespace(lim.CreateNamespace(as(cmd.Context()), args[0]))
			})
		},
	}
}

func (a *app) namespaceShowCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show a namespace",
		Args:  args("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(existing, func(lim *weir.Limiter) error {
				return a.oneNamespace(lim.NamespaceByName(cmd.Context(), args[0]))
			})
		},
	}
}

func (a *app) namespaceDeleteCmd() *cobra.Command {
	var yes bool
	return yesFlag(&cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a namespace; it can be recovered until it is purged",
		Args:  args("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.confirm(cmd.Context(), yes, "delete namespace %q", args[0]); err != nil {
				return err
			}
			return a.with(existing, func(lim *weir.Limiter) error {
				if err := lim.DeleteNamespace(as(cmd.Context()), args[0]); err != nil {
					return err
				}
				return a.did("deleted namespace %q; recover it with: weir namespace recover %s", args[0], args[0])
			})
		},
	}, &yes)
}

func (a *app) namespaceRecoverCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "recover NAME",
		Short: "Recover a deleted namespace",
		Args:  args("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(existing, func(lim *weir.Limiter) error {
				return a.oneNamespace(lim.RecoverNamespace(as(cmd.Context()), args[0]))
			})
		},
	}
}

func (a *app) namespacePurgeCmd() *cobra.Command {
	var yes bool
	return yesFlag(&cobra.Command{
		Use:   "purge {NAME | ID}",
		Short: "Remove a deleted or orphaned namespace for good",
		Long:  "Removes a deleted or orphaned namespace for good: its entities, limits, buckets and audit events. If the\ncommand is interrupted, run it again.",
		Args:  args("NAME or ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.confirm(cmd.Context(), yes, "remove everything in namespace %q for good", args[0]); err != nil {
				return err
			}
			return a.with(existing, func(lim *weir.Limiter) error {
				if err := lim.PurgeNamespace(as(cmd.Context()), args[0]); err != nil {
					return err
				}
				return a.did("purged namespace %q", args[0])
			})
		},
	}, &yes)
}

func (a *app) namespaceListCmd() *cobra.Command {
	var page pageFlags
	var deleted bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the namespaces",
		Args:  args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.listNamespaces(cmd, (*weir.Limiter).Namespaces, weir.NamespaceQuery{Deleted: deleted}, &page)
		},
	}
	cmd.Flags().BoolVar(&deleted, "deleted", false, "also list namespaces that are deleted but not purged yet")
	return page.add(cmd)
}

func (a *app) namespaceOrphansCmd() *cobra.Command {
	var page pageFlags
	return page.add(&cobra.Command{
		Use:   "orphans",
		Short: "List namespaces that no name refers to any more",
		Args:  args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.listNamespaces(cmd, (*weir.Limiter).OrphanNamespaces, weir.NamespaceQuery{}, &page)
		},
	})
}

// lister is one of the ways to list namespaces.
type lister func(*weir.Limiter, context.Context, weir.NamespaceQuery) (weir.NamespacePage, error)

func (a *app) listNamespaces(cmd *cobra.Command, list lister, query weir.NamespaceQuery, p *pageFlags) error {
	return a.with(existing, func(lim *weir.Limiter) error {
		found, next, err := collect(p, func(after string, size int) ([]namespaceView, string, error) {
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
		return printPage(a, found, next, func() {
			t := &term.Table{Header: []string{"NAME", "ID", "CREATED", "DELETED"}}
			for _, n := range found {
				t.Row(orDash(n.Name), n.ID, orDash(instant(n.Created)), orDash(deletedAt(n)))
			}
			a.out.Table(t)
		})
	})
}

func (a *app) oneNamespace(n weir.Namespace, err error) error {
	if err != nil {
		return err
	}
	view := namespaceView(n)
	return a.print(view, func() {
		pairs := []string{"name", orDash(n.Name), "id", n.ID, "created", orDash(instant(n.Created))}
		if n.Deleted != nil {
			pairs = append(pairs, "deleted", deletedAt(view))
		}
		a.out.Pairs(pairs...)
	})
}

func deletedAt(n namespaceView) string {
	if n.Deleted == nil {
		return ""
	}
	return instant(*n.Deleted)
}
