package cli

import (
	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/cli/kit"
)

func versionCmd(a *kit.Run) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  kit.Args(),
		RunE: func(*cobra.Command, []string) error {
			v := kit.Build()
			return a.Print(v, func() { a.Out.Printf("weir %s %s %s\n", v.Version, v.Go, v.Platform) })
		},
	}
}
