package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/cli/kit"
)

func versionCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{Use: "version", Short: "Print the version"},
		func(context.Context, *struct{}) error {
			v := kit.Build()
			return a.Print(v, func() { a.Out.Printf("weir %s %s %s\n", v.Version, v.Go, v.Platform) })
		})
}
