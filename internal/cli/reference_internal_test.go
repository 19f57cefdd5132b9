package cli

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/testkit/pagetest"
)

// TestReference checks that docs/reference/cli.md has every command with its flags.
func TestReference(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`# Commands

<!-- Generated: go test ./internal/cli -run TestReference -update-pages. The next run overwrites edits made here. -->

Every command with its flags, as ` + "`weir COMMAND --help`" + ` prints them. [The guide](../configure/cli.md) has stores, servers,
settings, output and exit codes. A variable sets each flag: WEIR\_, the command and the flag, such as WEIR_SERVE_HTTP; those of
global flags leave out the command.
`)
	walk(root(kit.New(nil, io.Discard, io.Discard, nil)), func(cmd *cobra.Command) {
		flags := cmd.LocalNonPersistentFlags()
		if !cmd.HasParent() {
			flags = cmd.PersistentFlags()
		}
		if cmd.Hidden || cmd.HasParent() && !cmd.Runnable() {
			return
		}
		text := cmd.Long
		if text == "" {
			text = cmd.Short + "."
		}
		fmt.Fprintf(&b, "\n## %s\n\n```\n%s\n\n%s\n", cmd.CommandPath(), cmd.UseLine(), strings.TrimSpace(text))
		if usage := flags.FlagUsagesWrapped(118); hasShown(flags) {
			fmt.Fprintf(&b, "\n%s\n", strings.TrimRight(usage, "\n"))
		}
		if cmd.Example != "" {
			fmt.Fprintf(&b, "\n%s\n", strings.TrimRight(cmd.Example, "\n"))
		}
		b.WriteString("```\n")
	})
	pagetest.Equal(t, "cli.md", b.String())
}

func hasShown(flags *pflag.FlagSet) (shown bool) {
	flags.VisitAll(func(f *pflag.Flag) { shown = shown || !f.Hidden })
	return shown
}
