package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
)

func (a *app) resourceCmd() *cobra.Command {
	return group(&cobra.Command{Use: "resource", Short: "Manage limits of resources, for entities without limits of their own"},
		a.resourceSetCmd(), a.resourceGetCmd(), a.resourceDeleteCmd(), a.resourceListCmd())
}

func (a *app) resourceSetCmd() *cobra.Command {
	var limits []string
	var onUnavailable string
	cmd := &cobra.Command{
		Use:     "set RESOURCE",
		Short:   "Replace a resource's limits, or set what happens when the store does not answer",
		Example: "  weir resource set gpt-4 -l rpm:100/min -l tpm:50K/min\n  weir resource set login --on-unavailable deny",
		Args:    args("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.setLimits(cmd, weir.Scope{Resource: args[0]}, limits, onUnavailable)
		},
	}
	limitFlag(cmd, &limits, "to set, replacing all existing ones")
	onUnavailableFlag(cmd, &onUnavailable)
	return cmd
}

func (a *app) resourceGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "get RESOURCE",
		Short: "Show a resource's limits",
		Args:  args("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.getLimits(cmd, weir.Scope{Resource: args[0]})
		},
	}
}

func (a *app) resourceDeleteCmd() *cobra.Command {
	var yes bool
	return yesFlag(&cobra.Command{
		Use:   "delete RESOURCE",
		Short: "Delete a resource's limits, so that the system's limits apply",
		Args:  args("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.deleteLimits(cmd, weir.Scope{Resource: args[0]}, yes, fmt.Sprintf("the limits of resource %q", args[0]))
		},
	}, &yes)
}

func (a *app) resourceListCmd() *cobra.Command {
	var page pageFlags
	return page.add(&cobra.Command{
		Use:   "list",
		Short: "List the resources that have limits",
		Args:  args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.listLimits(cmd, weir.LimitsQuery{}, &page)
		},
	})
}
