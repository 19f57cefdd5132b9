package kit

import (
	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
)

// OnGroups adds the flags --total and --group to a command with the flag --resource.
func OnGroups(r *Run, cmd *cobra.Command) *cobra.Command {
	run, total, group := cmd.RunE, false, ""
	cmd.Flags().BoolVar(&total, "total", false, "on all resources together")
	cmd.Flags().StringVar(&group, "group", "", "on the group of resources with this `NAME`")
	completeStored(r, cmd, "group", groupNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		on := cmd.Flags().Changed("resource")
		switch {
		case total && (on || group != "") || group != "" && on:
			return Usagef("--resource, --total and --group exclude each other")
		case total:
			err = cmd.Flags().Set("resource", weir.TotalResource)
		case group != "":
			err = cmd.Flags().Set("resource", weir.GroupResource(group))
		}
		if err != nil {
			return err
		}
		return run(cmd, args)
	}
	return cmd
}
