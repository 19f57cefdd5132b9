package admin

import (
	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
)

// PlanCmd returns the command weir plan.
func PlanCmd(r *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{
		Use: "plan", Short: "Manage plans: limits that many entities have in common",
		Long: `A plan has limits for one resource, or for all resources for which it has no others. They apply to
each entity that names the plan ("weir entity update ID --plan PLAN"), and to the descendants of
such an entity that name none, as far as these have no limits of their own.

"weir limits plan" is something else: it shows what applying a manifest would change.`,
	},
		kit.Verb(r, api.SetLimits, kit.Spec{
			Use: "set PLAN", Short: "Replace a plan's limits for all resources without others, or create the plan",
			Omit: []string{"resource", "group"}, Some: noLimits, Done: noLimitsNow,
			Example: "  weir plan set pro -l rpm:600/min -l tpm:500K/min",
		}, limits),
		kit.Lists(r, api.ListLimits, kit.Spec{
			Use: "show PLAN", Short: "Show all limits of a plan", Omit: []string{"entity", "resource"},
			Missing: "plan {plan}",
		}, limits),
		kit.Lists(r, api.ListPlans, kit.Spec{Use: "list", Short: "List the plans"}, limits),
		kit.Verb(r, api.DeletePlan, kit.Spec{
			Use: "delete PLAN", Short: "Delete a plan with its limits, if no entity names it",
			Asks: "delete plan {id} with its limits", Done: "deleted plan {id}",
		}, nil),
		kit.Group(&cobra.Command{Use: "limits", Short: "Manage a plan's limits on single resources"},
			kit.OnGroups(r, kit.Verb(r, api.SetLimits, kit.Spec{
				Use: "set PLAN", Short: setsLimits, Some: noLimits, Done: noLimitsNow, Omit: []string{"group"},
				Example: "  weir plan limits set pro --resource gpt-4o -l tpm:1M/min",
			}, limits)),
			kit.OnGroups(r, kit.Verb(r, api.ShowLimits, kit.Spec{
				Use: "get PLAN", Short: "Show a plan's limits on one resource, or on all without others",
			}, limits)),
			kit.OnGroups(r, kit.Verb(r, api.DeleteLimits, kit.Spec{
				Use: "delete PLAN", Short: "Delete limits of a plan, so that the next level applies; the plan stays",
				Asks: "delete the limits of plan {plan}{resource? on %q}",
				Done: "deleted the limits of plan {plan}{resource? on %q}",
			}, nil))))
}
