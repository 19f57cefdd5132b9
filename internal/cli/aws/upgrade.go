package aws

import (
	"context"
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
	deploy.Result

	From   string       `json:"from"`
	Schema migratedView `json:"schema"`
}

func schemaView(m *deploy.Migrated) migratedView {
	return migratedView{m.From, m.To, m.Read, m.Changed}
}

// upgradeFlags define what to upgrade.
type upgradeFlags struct {
	stackName
	awsFlags

	Dry       bool `json:"dry_run"`
	TableOnly bool `json:"table_only"`
	Replace   bool `json:"replace"`
}

// upgradeCmd returns the command weir aws upgrade.
func upgradeCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{
		Use: "upgrade [NAME]", Short: "Bring a stack and its table to this weir's version",
		Long: `Brings the stack NAME (weir by default) to this weir's version: its template and functions,
with the parameters it was deployed with, and then the layout of its table, if that has
changed. You can interrupt the command; the next run continues where it stopped. A stack is
refused if a later weir deployed it, or if its table requires later clients.

With --table-only, NAME is a table without a stack.`,
		Example: `  weir aws upgrade --dry-run
  weir aws upgrade limits --region eu-central-1
  weir aws upgrade limits --table-only`,
	}, func(ctx context.Context, q *upgradeFlags) error { return upgrade(ctx, a, q) })
}

func upgrade(ctx context.Context, a *kit.Run, q *upgradeFlags) error {
	if q.TableOnly && q.Replace {
		return kit.Usage(errors.New("--replace is for a stack, not for --table-only"))
	}
	d, err := deployer(ctx, a, &q.awsFlags)
	if err != nil {
		return err
	}
	progress := term.NewProgress(a.Err)
	told := func(m deploy.Migrated) { progress.Update(a.Err.Count(m.Read)+" items", -1) }
	if q.TableOnly {
		done, err := d.Migrate(ctx, q.stack(), q.Dry, told)
		progress.Done()
		if err != nil {
			return err
		}
		return a.Print(schemaView(&done), func() { migrated(a, &done, q.Dry) })
	}
	up, err := d.Upgrade(ctx, deploy.UpgradeRequest{
		Stack: q.stack(), DryRun: q.Dry, Replace: q.Replace, Progress: told,
	})
	progress.Done()
	if err != nil {
		return stackError(err)
	}
	return a.Print(upgradeView{up.Result, up.From, schemaView(&up.Migrated)}, func() {
		deployed(a, &up.Result)
		migrated(a, &up.Migrated, q.Dry)
	})
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
	if _, ok := errors.AsType[*stack.ValueError](err); ok {
		return kit.Usage(err)
	}
	if errors.As(err, &none) {
		return kit.WithCode(err, kit.NotFound)
	}
	return err
}
