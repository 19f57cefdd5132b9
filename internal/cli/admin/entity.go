package admin

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
)

var entity = kit.Columns([]kit.Column[api.Entity]{
	{Name: "id"},
	{Name: "name"},
	{Name: "parent"},
	{Name: "cascade"},
	{Name: "created"},
	{Name: "plan", Rare: true},
	{Name: "metadata", Long: true},
})

// EntityCmd returns the command weir entity.
func EntityCmd(r *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{Use: "entity", Short: "Manage entities, their parents and their limits"},
		kit.Verb(r, api.CreateEntity, kit.Spec{
			Use: "create ID", Short: "Create an entity",
			Long: `Creates an entity. Limits also apply to entities that were never created, unless the namespace
takes known entities only ("weir system set --entities known"), but only a created entity can
have a parent, a plan and metadata. With --cascade, what the entity spends is also charged to its
parent.`,
			Example: "  weir entity create team-red\n  weir entity create key-alice --parent team-red --cascade",
		}, entity),
		kit.Verb(r, api.ShowEntity, kit.Spec{Use: "show ID", Short: "Show an entity"}, entity),
		kit.Verb(r, api.UpdateEntity, kit.Spec{
			Use: "update ID", Short: "Change the given properties of an entity and keep the rest",
			Example: "  weir entity update key-alice --parent team-blue\n  weir entity update key-alice --parent= " +
				"--cascade=false\n  weir entity update key-alice --plan pro",
			Some: "nothing to change: give --name, --parent, --plan, --cascade or --metadata",
		}, entity),
		kit.Verb(r, api.DeleteEntity, kit.Spec{
			Use: "delete ID", Short: "Delete an entity with its limits",
			Long: `Deletes an entity with its limits. An entity with children is not deleted unless you pass
--children, which also deletes all its descendants. If the command is interrupted, run it again.

Buckets stay until they are full again, so that nobody can spend twice. An entity that is created
again under the same ID continues with them, unless you reset them ("weir bucket reset").`,
			Asks: "delete entity {id}{children? and all its descendants} with its limits",
			Done: "deleted entity {id}",
		}, nil),
		kit.Lists(
			r, api.ListEntities, kit.Spec{Use: "list", Short: "List the entities", Omit: []string{"parent"}}, entity,
		),
		kit.Lists(r, api.ListChildren, kit.Spec{Use: "children ID", Short: "List the children of an entity"}, entity),
		entityLimits(r))
}

func entityLimits(r *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{
		Use:   "limits",
		Short: "Manage an entity's own limits",
		Long: `An entity's own limits apply to one resource, or to all resources for which the entity has no
limits of its own. weir uses all limits of the first level that has any: the entity on the
resource, the entity, its plan on the resource, its plan, the resource, the system.`,
	},
		kit.OnGroups(r, kit.Verb(r, api.SetLimits, kit.Spec{
			Use: "set ENTITY", Short: setsLimits, Some: noLimits, Done: noLimitsNow, Omit: []string{"group"},
			Example: "  weir entity limits set key-alice --resource gpt-4 -l rpm:100/min -l tpm:50K/min:75K\n" +
				"  weir entity limits set team-a --total -l tpd:5M/day\n" +
				"  weir entity limits set team-a --group openai -l tpd:1M/day",
		}, limits)),
		kit.OnGroups(r, kit.Verb(r, api.ShowLimits, kit.Spec{
			Use: "get ENTITY", Short: "Show an entity's limits on one resource, or on all without limits of their own",
		}, limits)),
		kit.OnGroups(r, kit.Verb(r, api.DeleteLimits, kit.Spec{
			Use: "delete ENTITY", Short: "Delete an entity's limits, so that the next level applies",
			Asks: "delete the limits of entity {entity}{resource? on %q}",
			Done: "deleted the limits of entity {entity}{resource? on %q}",
		}, nil)),
		listEntityLimits(r))
}

// listEntityLimits lists the limits of an entity, or of all entities on a resource.
func listEntityLimits(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "list [ENTITY]", Short: "List all limits of an entity, or of all entities on a resource",
		Example: "  weir entity limits list key-alice\n  weir entity limits list --resource gpt-4",
	}, func(ctx context.Context, q *api.LimitsQuery) error {
		if (q.Entity == "") == (q.Resource == "") {
			return kit.Usage(errors.New("give either an entity ID or --resource"))
		}
		return kit.List(ctx, r, api.ListLimits, q, limits)
	})
}
