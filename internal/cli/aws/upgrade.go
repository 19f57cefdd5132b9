package aws

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/aws/deploy"
	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
)

type migratedView struct {
	From    uint64 `json:"from"`
	To      uint64 `json:"to"`
	Read    int64  `json:"read"`
	Changed int64  `json:"changed"`
}

type upgradeView struct {
	deployView

	From   string       `json:"from"`
	Schema migratedView `json:"schema"`
}

func schemaView(m *deploy.Migrated) migratedView {
	return migratedView{m.From, m.To, m.Read, m.Changed}
}

// UpgradeCmd returns the command weir upgrade.
func UpgradeCmd(a *kit.Run) *cobra.Command {
	var flags awsFlags
	var dry, tableOnly, replace bool
	cmd := &cobra.Command{
		Use:   "upgrade [NAME]",
		Short: "Bring a stack and its table to this weir's version",
		Long: `Brings the stack NAME (weir by default) to this weir's version: its template and functions,
with the parameters it was deployed with, and then the layout of its table, if that has
changed. You can interrupt the command; the next run continues where it stopped. A stack is
refused if a later weir deployed it, or if its table requires later clients.

With --table-only, NAME is a table without a stack.`,
		Example: `  weir upgrade --dry-run
  weir upgrade limits --region eu-central-1
  weir upgrade limits --table-only`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if tableOnly && replace {
				return kit.Usage(errors.New("--replace is for a stack, not for --table-only"))
			}
			ctx := cmd.Context()
			progress := term.NewProgress(a.Err)
			told := func(m deploy.Migrated) { progress.Update(a.Err.Count(m.Read)+" items", -1) }
			d, err := deployer(ctx, a, &flags)
			if err != nil {
				return err
			}
			if tableOnly {
				done, err := d.Migrate(ctx, stackArg(args), dry, told)
				progress.Done()
				if err != nil {
					return err
				}
				return a.Print(schemaView(&done), func() { migrated(a, &done, dry) })
			}
			up, err := d.Upgrade(ctx, deploy.UpgradeRequest{
				Stack: stackArg(args), DryRun: dry, Replace: replace, Progress: told,
			})
			progress.Done()
			if err != nil {
				return stackError(err)
			}
			return a.Print(upgradeView{deployViewOf(&up.Result, dry), up.From, schemaView(&up.Migrated)}, func() {
				deployed(a, &up.Result, dry)
				migrated(a, &up.Migrated, dry)
			})
		},
	}
	flags.add(cmd.Flags())
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show what would change, without changing anything")
	cmd.Flags().BoolVar(&tableOnly, "table-only", false, "upgrade only a table, without a stack")
	cmd.Flags().BoolVar(
		&replace, "replace", false, "allow the table or the archive to be removed, or replaced by an empty one",
	)
	return cmd
}

func migrated(a *kit.Run, m *deploy.Migrated, dry bool) {
	switch {
	case m.Step == "":
		a.Out.Printf("the table's schema version is %d: nothing to migrate\n", m.To)
	case dry:
		a.Out.Printf(
			"the table's schema version would go from %d to %d, changing %s of %s items; this was a dry run\n", m.From,
			m.To, a.Out.Count(m.Changed), a.Out.Count(m.Read),
		)
	default:
		a.Out.Printf(
			"the table's schema version is %d, was %d: %s of %s items changed\n", m.To, m.From, a.Out.Count(m.Changed),
			a.Out.Count(m.Read),
		)
	}
}

// stackError gives the errors for a missing stack and for wrong values their exit codes.
func stackError(err error) error {
	var none *deploy.NotFoundError
	var value *stack.ValueError
	if errors.As(err, &value) {
		return kit.Usage(err)
	}
	if errors.As(err, &none) {
		return kit.WithCode(err, kit.NotFound)
	}
	return err
}
