package admin

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/cli/term"
)

func EntityCmd(a *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{Use: "entity", Short: "Manage entities, their parents and their limits"},
		entityCreateCmd(a), entityShowCmd(a), entityUpdateCmd(a), entityDeleteCmd(a),
		entityListCmd(a), entityChildrenCmd(a), entityLimitsCmd(a))
}

func entityCreateCmd(a *kit.Run) *cobra.Command {
	var e weir.Entity
	var metadata []string
	cmd := &cobra.Command{
		Use:   "create ID",
		Short: "Create an entity",
		Long: `Creates an entity. Limits also apply to entities that were never created, but only a created
entity can have a parent and metadata. With --cascade, what the entity spends is also charged
to its parent.`,
		Example: "  weir entity create team-red\n  weir entity create key-alice --parent team-red --cascade",
		Args:    kit.Args("ID"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			e.ID = args[0]
			if e.Metadata, err = parseMetadata(metadata); err != nil {
				return err
			}
			return a.With(stores.Create, func(lim *weir.Limiter) error {
				if err := lim.CreateEntity(kit.As(cmd.Context()), e); err != nil {
					return err
				}
				return showEntity(a, cmd, lim, e.ID)
			})
		},
	}
	cmd.Flags().StringVar(&e.Name, "name", "", "display `NAME`")
	cmd.Flags().StringVar(&e.Parent, "parent", "", "`ID` of the parent")
	cmd.Flags().BoolVar(&e.Cascade, "cascade", false, "also charge the parent")
	metadataFlag(cmd, &metadata)
	return cmd
}

func entityShowCmd(a *kit.Run) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show an entity",
		Args:  kit.Args("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.With(stores.Existing, func(lim *weir.Limiter) error { return showEntity(a, cmd, lim, args[0]) })
		},
	}
}

func entityUpdateCmd(a *kit.Run) *cobra.Command {
	var name, parent string
	var cascade bool
	var metadata []string
	cmd := &cobra.Command{
		Use:     "update ID",
		Short:   "Change the given properties of an entity and keep the rest",
		Example: "  weir entity update key-alice --parent team-blue\n  weir entity update key-alice --parent= --cascade=false",
		Args:    kit.Args("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var u weir.EntityUpdate
			changed := cmd.Flags().Changed
			if changed("name") {
				u.Name = &name
			}
			if changed("parent") {
				u.Parent = &parent
			}
			if changed("cascade") {
				u.Cascade = &cascade
			}
			if changed("metadata") {
				var err error
				if u.Metadata, err = parseMetadata(metadata); err != nil {
					return err
				}
			}
			if u.Name == nil && u.Parent == nil && u.Cascade == nil && u.Metadata == nil {
				return kit.Usagef("nothing to change: give --name, --parent, --cascade or --metadata")
			}
			return a.With(stores.Existing, func(lim *weir.Limiter) error {
				e, err := lim.UpdateEntity(kit.As(cmd.Context()), args[0], u)
				if err != nil {
					return err
				}
				return printEntity(a, e)
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "display `NAME`")
	cmd.Flags().StringVar(&parent, "parent", "", "`ID` of the parent; empty removes it")
	cmd.Flags().BoolVar(&cascade, "cascade", false, "also charge the parent")
	metadataFlag(cmd, &metadata)
	return cmd
}

func entityDeleteCmd(a *kit.Run) *cobra.Command {
	var yes, children bool
	cmd := &cobra.Command{
		Use:   "delete ID",
		Short: "Delete an entity with its limits and buckets",
		Long:  "Deletes an entity with its limits and buckets. An entity with children is not deleted unless you pass\n--children, which also deletes all its descendants. If the command is interrupted, run it again.",
		Args:  kit.Args("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			what := fmt.Sprintf("delete entity %q with its limits and buckets", args[0])
			if children {
				what = fmt.Sprintf("delete entity %q and all its descendants with their limits and buckets", args[0])
			}
			if err := a.Confirm(cmd.Context(), yes, "%s", what); err != nil {
				return err
			}
			return a.With(stores.Existing, func(lim *weir.Limiter) error {
				if err := lim.DeleteEntity(kit.As(cmd.Context()), args[0], weir.DeleteOptions{Children: children}); err != nil {
					return err
				}
				return a.Did("deleted entity %q", args[0])
			})
		},
	}
	cmd.Flags().BoolVar(&children, "children", false, "also delete its children and all other descendants")
	return kit.YesFlag(cmd, &yes)
}

func entityListCmd(a *kit.Run) *cobra.Command {
	var page kit.PageFlags
	var prefix string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the entities",
		Args:  kit.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listEntities(a, cmd, weir.EntityQuery{Prefix: prefix}, &page)
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "list only entities whose ids begin with `PREFIX`; no others are read")
	return page.Add(cmd)
}

func entityChildrenCmd(a *kit.Run) *cobra.Command {
	var page kit.PageFlags
	return page.Add(&cobra.Command{
		Use:   "children ID",
		Short: "List the children of an entity",
		Args:  kit.Args("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return listEntities(a, cmd, weir.EntityQuery{Parent: args[0]}, &page)
		},
	})
}

func listEntities(a *kit.Run, cmd *cobra.Command, query weir.EntityQuery, p *kit.PageFlags) error {
	return a.With(stores.Existing, func(lim *weir.Limiter) error {
		if query.Parent != "" { // so that a mistyped id is reported as not found, not as childless
			if _, err := lim.Entity(cmd.Context(), query.Parent); err != nil {
				return err
			}
		}
		found, next, err := kit.Collect(p, func(after string, size int) ([]weir.Entity, string, error) {
			query.After, query.Max = after, size
			page, err := lim.Entities(cmd.Context(), query)
			return page.Entities, page.Next, err
		})
		if err != nil {
			return err
		}
		return kit.PrintPage(a, found, next, func() {
			t := &term.Table{Header: []string{"ID", "NAME", "PARENT", "CASCADE", "CREATED"}}
			for _, e := range found {
				t.Row(e.ID, kit.OrDash(e.Name), kit.OrDash(e.Parent), kit.YesNo(e.Cascade), kit.Instant(e.Created))
			}
			a.Out.Table(t)
		})
	})
}

func showEntity(a *kit.Run, cmd *cobra.Command, lim *weir.Limiter, id string) error {
	e, err := lim.Entity(cmd.Context(), id)
	if err != nil {
		return err
	}
	return printEntity(a, e)
}

func printEntity(a *kit.Run, e weir.Entity) error {
	return a.Print(e, func() {
		pairs := []string{"id", e.ID, "name", kit.OrDash(e.Name), "parent", kit.OrDash(e.Parent), "cascade", kit.YesNo(e.Cascade), "created", kit.Instant(e.Created)}
		for _, key := range slices.Sorted(maps.Keys(e.Metadata)) {
			pairs = append(pairs, "metadata", key+"="+e.Metadata[key])
		}
		a.Out.Pairs(pairs...)
	})
}

func metadataFlag(cmd *cobra.Command, metadata *[]string) {
	cmd.Flags().StringArrayVar(metadata, "metadata", nil, "metadata as `KEY=VALUE`; repeatable; replaces all existing metadata")
}

func parseMetadata(texts []string) (map[string]string, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	m := make(map[string]string, len(texts))
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, kit.Usagef("metadata %s is not KEY=VALUE", strconv.Quote(text))
		}
		m[key] = value
	}
	return m, nil
}
