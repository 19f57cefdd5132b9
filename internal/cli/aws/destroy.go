package aws

import (
	"bufio"
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

// DestroyCmd returns the command weir destroy.
func DestroyCmd(a *kit.Run) *cobra.Command {
	var flags awsFlags
	var yes, deleteData bool
	var confirmed string
	cmd := kit.YesFlag(&cobra.Command{
		Use:   "destroy NAME",
		Short: "Delete a stack, but keep its table and archive",
		Long: `Deletes a stack, after asking. Its table and its archive bucket are kept with their data: if you
deploy a stack of the same name again, it adopts the table. --delete-data deletes them too,
including all versions in the bucket. You must then type the stack's name or pass it with
--confirm; --yes is not enough.`,
		Example: `  weir destroy limits
  weir destroy limits --delete-data --confirm limits`,
		Args: kit.Args("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			d, err := deployer(ctx, a, &flags)
			if err != nil {
				return err
			}
			doomed, err := d.Doomed(ctx, args[0])
			if err != nil {
				return stackError(err)
			}
			view := destroyedView{Stack: args[0], Deleted: []string{}, Kept: []string{}}
			for _, x := range doomed.Data {
				if deleteData || !x.Kept {
					view.Deleted = append(view.Deleted, x.String())
				} else {
					view.Kept = append(view.Kept, x.String())
				}
			}
			if err := confirmDestroy(ctx, a, &view, yes, confirmed); err != nil {
				return err
			}
			if err := d.Destroy(ctx, doomed, deleteData); err != nil {
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
		},
	}, &yes)
	flags.add(cmd.Flags())
	cmd.Flags().BoolVar(&deleteData, "delete-data", false, "also delete the table and the archive")
	cmd.Flags().StringVar(
		&confirmed, "confirm", "", "with --delete-data: the stack's `NAME`, instead of typing it when asked",
	)
	return cmd
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
	answer := make(chan string, 1)
	go func() { // a read from a terminal cannot be cancelled
		line, _ := bufio.NewReader(a.In).ReadString('\n')
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		a.Err.Println()
		return ctx.Err()
	case text := <-answer:
		if text != view.Stack {
			return kit.ErrCancelled
		}
		return nil
	}
}
