package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/term"
)

func (a *app) entityCmd() *cobra.Command {
	return group(&cobra.Command{Use: "entity", Short: "Manage entities, their parents and their limits"},
		a.entityCreateCmd(), a.entityShowCmd(), a.entityUpdateCmd(), a.entityDeleteCmd(),
		a.entityListCmd(), a.entityChildrenCmd(), a.entityLimitsCmd())
}

func (a *app) entityCreateCmd() *cobra.Command {
	var e weir.Entity
	var metadata []string
	cmd := &cobra.Command{
		Use:   "create ID",
		Short: "Create an entity",
		Long: `Creates an entity. Limits also apply to entities that were never created, but only a created
entity can have a parent and metadata. With --cascade, what the entity spends is also charged
to its parent.`,
		Example: "  weir entity create team-red\n  weir entity create key-alice --parent team-red --cascade",
		Args:    args("ID"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			e.ID = args[0]
			if e.Metadata, err = parseMetadata(metadata); err != nil {
				return err
			}
			return a.with(create, func(lim *weir.Limiter) error {
				if err := lim.CreateEntity(as(cmd.Context()), e); err != nil {
					return err
				}
				return a.showEntity(cmd, lim, e.ID)
			})
		},
	}
	cmd.Flags().StringVar(&e.Name, "name", "", "display `NAME`")
	cmd.Flags().StringVar(&e.Parent, "parent", "", "`ID` of the parent")
	cmd.Flags().BoolVar(&e.Cascade, "cascade", false, "also charge the parent")
	metadataFlag(cmd, &metadata)
	return cmd
}

func (a *app) entityShowCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show an entity",
		Args:  args("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(existing, func(lim *weir.Limiter) error { return a.showEntity(cmd, lim, args[0]) })
		},
	}
}

func (a *app) entityUpdateCmd() *cobra.Command {
	var name, parent string
	var cascade bool
	var metadata []string
	cmd := &cobra.Command{
		Use:     "update ID",
		Short:   "Change the given properties of an entity and keep the rest",
		Example: "  weir entity update key-alice --parent team-blue\n  weir entity update key-alice --parent= --cascade=false",
		Args:    args("ID"),
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
				return usageError{fmt.Errorf("nothing to change: give --name, --parent, --cascade or --metadata")}
			}
			return a.with(existing, func(lim *weir.Limiter) error {
				e, err := lim.UpdateEntity(as(cmd.Context()), args[0], u)
				if err != nil {
					return err
				}
				return a.printEntity(e)
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "display `NAME`")
	cmd.Flags().StringVar(&parent, "parent", "", "`ID` of the parent; empty removes it")
	cmd.Flags().BoolVar(&cascade, "cascade", false, "also charge the parent")
	metadataFlag(cmd, &metadata)
	return cmd
}

func (a *app) entityDeleteCmd() *cobra.Command {
	var yes, children bool
	cmd := &cobra.Command{
		Use:   "delete ID",
		Short: "Delete an entity with its limits and buckets",
		Long:  "Deletes an entity with its limits and buckets. An entity with children is not deleted unless you pass\n--children, which also deletes all its descendants. If the command is interrupted, run it again.",
		Args:  args("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			what := fmt.Sprintf("delete entity %q with its limits and buckets", args[0])
			if children {
				what = fmt.Sprintf("delete entity %q and all its descendants with their limits and buckets", args[0])
			}
			if err := a.confirm(cmd.Context(), yes, "%s", what); err != nil {
				return err
			}
			return a.with(existing, func(lim *weir.Limiter) error {
				if err := lim.DeleteEntity(as(cmd.Context()), args[0], weir.DeleteOptions{Children: children}); err != nil {
					return err
				}
				return a.did("deleted entity %q", args[0])
			})
		},
	}
	cmd.Flags().BoolVar(&children, "children", false, "also delete its children and all other descendants")
	return yesFlag(cmd, &yes)
}

func (a *app) entityListCmd() *cobra.Command {
	var page pageFlags
	var prefix string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the entities",
		Args:  args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.listEntities(cmd, weir.EntityQuery{Prefix: prefix}, &page)
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "list only entities whose ids begin with `PREFIX`; no others are read")
	return page.add(cmd)
}

func (a *app) entityChildrenCmd() *cobra.Command {
	var page pageFlags
	return page.add(&cobra.Command{
		Use:   "children ID",
		Short: "List the children of an entity",
		Args:  args("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.listEntities(cmd, weir.EntityQuery{Parent: args[0]}, &page)
		},
	})
}

func (a *app) listEntities(cmd *cobra.Command, query weir.EntityQuery, p *pageFlags) error {
	return a.with(existing, func(lim *weir.Limiter) error {
		if query.Parent != "" { // so that a mistyped id is reported as not found, not as childless
			if _, err := lim.Entity(cmd.Context(), query.Parent); err != nil {
				return err
			}
		}
		found, next, err := collect(p, func(after string, size int) ([]weir.Entity, string, error) {
			query.After, query.Max = after, size
			page, err := lim.Entities(cmd.Context(), query)
			return page.Entities, page.Next, err
		})
		if err != nil {
			return err
		}
		return printPage(a, found, next, func() {
			t := &term.Table{Header: []string{"ID", "NAME", "PARENT", "CASCADE", "CREATED"}}
			for _, e := range found {
				t.Row(e.ID, orDash(e.Name), orDash(e.Parent), yesNo(e.Cascade), instant(e.Created))
			}
			a.out.Table(t)
		})
	})
}

func (a *app) showEntity(cmd *cobra.Command, lim *weir.Limiter, id string) error {
	e, err := lim.Entity(cmd.Context(), id)
	if err != nil {
		return err
	}
	return a.printEntity(e)
}

func (a *app) printEntity(e weir.Entity) error {
	return a.print(e, func() {
		pairs := []string{"id", e.ID, "name", orDash(e.Name), "parent", orDash(e.Parent), "cascade", yesNo(e.Cascade), "created", instant(e.Created)}
		for _, key := range slices.Sorted(maps.Keys(e.Metadata)) {
			pairs = append(pairs, "metadata", key+"="+e.Metadata[key])
		}
		a.out.Pairs(pairs...)
	})
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
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
			return nil, usageError{fmt.Errorf("metadata %s is not KEY=VALUE", strconv.Quote(text))}
		}
		m[key] = value
	}
	return m, nil
}
