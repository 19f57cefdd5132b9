package admin

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
)

func entityLimitsCmd(a *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{
		Use:   "limits",
		Short: "Manage an entity's own limits",
		Long: `An entity's own limits apply to one resource, or to all resources for which the entity has no
limits of its own. weir uses all limits of the first level that has any: the entity on the
resource, the entity, the resource, the system.`,
	}, entityLimitsSetCmd(a), entityLimitsGetCmd(a), entityLimitsDeleteCmd(a), entityLimitsListCmd(a))
}

const resourceUsage = "`NAME` of the resource (default all without limits of their own)"

func entityLimitsSetCmd(a *kit.Run) *cobra.Command {
	var resource, onUnavailable string
	var limits []string
	cmd := &cobra.Command{
		Use:     "set ID",
		Short:   "Replace an entity's limits, or set what happens when the store does not answer",
		Example: "  weir entity limits set key-alice --resource gpt-4 -l rpm:100/min -l tpm:50K/min:75K",
		Args:    kit.Args("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return setLimits(a, cmd, weir.Scope{Entity: args[0], Resource: resource}, limits, onUnavailable)
		},
	}
	kit.LimitFlag(cmd, &limits, "to set, replacing all existing ones")
	onUnavailableFlag(cmd, &onUnavailable)
	cmd.Flags().StringVar(&resource, "resource", "", resourceUsage)
	return cmd
}

func entityLimitsGetCmd(a *kit.Run) *cobra.Command {
	var resource string
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Show an entity's limits on one resource, or on all without limits of their own",
		Args:  kit.Args("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return getLimits(a, cmd, weir.Scope{Entity: args[0], Resource: resource})
		},
	}
	cmd.Flags().StringVar(&resource, "resource", "", resourceUsage)
	return cmd
}

func entityLimitsDeleteCmd(a *kit.Run) *cobra.Command {
	var resource string
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete ID",
		Short: "Delete an entity's limits, so that the next level applies",
		Args:  kit.Args("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			what := fmt.Sprintf("the limits of entity %q", args[0])
			if resource != "" {
				what += fmt.Sprintf(" on resource %q", resource)
			}
			return deleteLimits(a, cmd, weir.Scope{Entity: args[0], Resource: resource}, yes, what)
		},
	}
	cmd.Flags().StringVar(&resource, "resource", "", resourceUsage)
	return kit.YesFlag(cmd, &yes)
}

func entityLimitsListCmd(a *kit.Run) *cobra.Command {
	var resource string
	var page kit.PageFlags
	cmd := &cobra.Command{
		Use:     "list {ID | --resource NAME}",
		Short:   "List all limits of an entity, or of all entities on a resource",
		Example: "  weir entity limits list key-alice\n  weir entity limits list --resource gpt-4",
		RunE: func(cmd *cobra.Command, args []string) error {
			query := weir.LimitsQuery{Resource: resource}
			if len(args) > 0 {
				query.Entity = args[0]
			}
			if len(args) > 1 || (query.Entity == "") == (query.Resource == "") {
				return kit.Usage(errors.New("give either an entity ID or --resource"))
			}
			return listLimits(a, cmd, query, &page)
		},
	}
	cmd.Flags().StringVar(&resource, "resource", "", "list all entities' own limits on the resource with this `NAME`")
	return page.Add(cmd)
}
