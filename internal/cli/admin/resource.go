package admin

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
)

func ResourceCmd(a *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{Use: "resource", Short: "Manage limits of resources, for entities without limits of their own"},
		resourceSetCmd(a), resourceGetCmd(a), resourceDeleteCmd(a), resourceListCmd(a))
}

func resourceSetCmd(a *kit.Run) *cobra.Command {
	var limits []string
	var onUnavailable string
	cmd := &cobra.Command{
		Use:     "set RESOURCE",
		Short:   "Replace a resource's limits, or set what happens when the store does not answer",
		Example: "  weir resource set gpt-4 -l rpm:100/min -l tpm:50K/min\n  weir resource set login --on-unavailable deny",
		Args:    kit.Args("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return setLimits(a, cmd, weir.Scope{Resource: args[0]}, limits, onUnavailable)
		},
	}
	kit.LimitFlag(cmd, &limits, "to set, replacing all existing ones")
	onUnavailableFlag(cmd, &onUnavailable)
	return cmd
}

func resourceGetCmd(a *kit.Run) *cobra.Command {
	return &cobra.Command{
		Use:   "get RESOURCE",
		Short: "Show a resource's limits",
		Args:  kit.Args("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return getLimits(a, cmd, weir.Scope{Resource: args[0]})
		},
	}
}

func resourceDeleteCmd(a *kit.Run) *cobra.Command {
	var yes bool
	return kit.YesFlag(&cobra.Command{
		Use:   "delete RESOURCE",
		Short: "Delete a resource's limits, so that the system's limits apply",
		Args:  kit.Args("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return deleteLimits(a, cmd, weir.Scope{Resource: args[0]}, yes, fmt.Sprintf("the limits of resource %q", args[0]))
		},
	}, &yes)
}

func resourceListCmd(a *kit.Run) *cobra.Command {
	var page kit.PageFlags
	return page.Add(&cobra.Command{
		Use:   "list",
		Short: "List the resources that have limits",
		Args:  kit.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listLimits(a, cmd, weir.LimitsQuery{}, &page)
		},
	})
}
