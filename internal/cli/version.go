package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/cli/kit"
)

func versionCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{Use: "version", Short: "Print the version and the commit"},
		func(context.Context, *struct{}) error { return printVersion(a) })
}

// withVersion adds the flag --version to the root. Cobra's own links package text/template.
func withVersion(a *kit.Run, root *cobra.Command) *cobra.Command {
	version, run := root.Flags().Bool("version", false, "print the version and the commit"), root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *version {
			return printVersion(a)
		}
		return run(cmd, args)
	}
	return root
}

func printVersion(a *kit.Run) error {
	v := kit.Build()
	return a.Print(v, func() { a.Out.Println(v) })
}
