package aws

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
)

type destroyedView struct {
	Stack   string   `json:"stack"`
	Deleted []string `json:"deleted"`
	Kept    []string `json:"kept"`
}

// destroyFlags define what to delete.
type destroyFlags struct {
	stackName
	awsFlags

	Yes        bool   `json:"yes" flag:"yes,y"`
	DeleteData bool   `json:"delete_data"`
	Confirmed  string `json:"confirm"`
}

// destroyCmd returns the command weir aws destroy.
func destroyCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{
		Use: "destroy NAME", Short: "Delete a stack, but keep its table and archive",
		Long: `Deletes a stack, after asking. Its table and its archive bucket are kept with their data: if you
deploy a stack of the same name again, it adopts the table. --delete-data deletes them too,
including all versions in the bucket. You must then type the stack's name or pass it with
--confirm; --yes is not enough.`,
		Example: `  weir aws destroy limits
  weir aws destroy limits --delete-data --confirm limits`,
	}, func(ctx context.Context, q *destroyFlags) error {
		d, err := deployer(ctx, a, &q.awsFlags)
		if err != nil {
			return err
		}
		doomed, err := d.Doomed(ctx, q.Name)
		if err != nil {
			return stackError(err)
		}
		view := destroyedView{Stack: q.Name, Deleted: []string{}, Kept: []string{}}
		for _, x := range doomed.Data {
			if q.DeleteData || !x.Kept {
				view.Deleted = append(view.Deleted, x.String())
			} else {
				view.Kept = append(view.Kept, x.String())
			}
		}
		if err := confirmDestroy(ctx, a, &view, q.Yes, q.Confirmed); err != nil {
			return err
		}
		if err := d.Destroy(ctx, doomed, q.DeleteData); err != nil {
			return err
		}
		return a.Print(view, func() {
			a.Out.Printf("deleted stack %s\n", view.Stack)
			if len(view.Deleted) > 0 {
				a.Out.Printf("also deleted: %s\n", strings.Join(view.Deleted, ", "))
			}
			if len(view.Kept) > 0 {
				a.Out.Printf("kept: %s\n", strings.Join(view.Kept, ", "))
			}
		})
	})
}

// confirmDestroy asks for confirmation. If data would be lost, it asks for the stack's name.
func confirmDestroy(ctx context.Context, a *kit.Run, view *destroyedView, yes bool, confirmed string) error {
	if len(view.Deleted) == 0 {
		what := "delete stack " + view.Stack
		if len(view.Kept) > 0 {
			what += " and keep " + strings.Join(view.Kept, " and ")
		}
		return kit.Confirm(ctx, a, yes, "%s", what)
	}
	lost := strings.Join(view.Deleted, " and ")
	switch {
	case confirmed == view.Stack:
		return nil
	case confirmed != "":
		return kit.Usagef("--confirm %q is not the name of the stack", confirmed)
	case !term.IsTerminal(a.In):
		return kit.Usagef(
			"cannot ask whether to delete %s and all data in it, because standard input is not a terminal: add "+
				"--confirm %s",
			lost, view.Stack,
		)
	}
	a.Err.Printf("This deletes %s and all data in it.\nType %s to continue: ", lost, view.Stack)
	text, err := kit.Answer(ctx, a)
	if err == nil && text != view.Stack {
		err = kit.ErrCancelled
	}
	return err
}
