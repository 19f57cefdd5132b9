package cli

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/term"
)

type destroyedView struct {
	Stack   string   `json:"stack"`
	Deleted []string `json:"deleted"`
	Kept    []string `json:"kept"`
}

func (a *app) destroyCmd() *cobra.Command {
	var flags awsFlags
	var yes, deleteData bool
	var confirmed string
	cmd := yesFlag(&cobra.Command{
		Use:   "destroy NAME",
		Short: "Delete a stack, and keep its table and archive",
		Long: `Deletes a stack after asking. Its table and its archive bucket stay, with what is in them: a
stack of that name that is deployed again takes the table back. With --delete-data they are
deleted too, the bucket with all its versions, which wants the stack's name to be typed, or
given with --confirm; --yes is not enough.`,
		Example: `  weir destroy limits
  weir destroy limits --delete-data --confirm limits`,
		Args: args("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			d, err := a.deployer(ctx, &flags)
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
			if err := a.confirmDestroy(ctx, &view, yes, confirmed); err != nil {
				return err
			}
			if err := d.Destroy(ctx, doomed, deleteData); err != nil {
				return err
			}
			return a.print(view, func() {
				a.out.Printf("stack %s is deleted\n", view.Stack)
				if len(view.Deleted) > 0 {
					a.out.Printf("deleted with it: %s\n", strings.Join(view.Deleted, ", "))
				}
				if len(view.Kept) > 0 {
					a.out.Printf("kept: %s\n", strings.Join(view.Kept, ", "))
				}
			})
		},
	}, &yes)
	flags.add(cmd.Flags())
	cmd.Flags().BoolVar(&deleteData, "delete-data", false, "delete the table and the archive, too")
	cmd.Flags().StringVar(&confirmed, "confirm", "", "the stack's `NAME` again, in place of typing it when its data is to be deleted")
	return cmd
}

// confirmDestroy asks; where data is lost, for the name.
func (a *app) confirmDestroy(ctx context.Context, view *destroyedView, yes bool, confirmed string) error {
	if len(view.Deleted) == 0 {
		what := "delete stack " + view.Stack
		if len(view.Kept) > 0 {
			what += " and keep " + strings.Join(view.Kept, " and ")
		}
		return a.confirm(ctx, yes, "%s", what)
	}
	lost := strings.Join(view.Deleted, " and ")
	switch {
	case confirmed == view.Stack:
		return nil
	case confirmed != "":
		return usageError{fmt.Errorf("--confirm %q is not the name of the stack", confirmed)}
	case !term.IsTerminal(a.in):
		return usageError{fmt.Errorf("not a terminal, so nobody can be asked whether to delete %s with all that is in it: add --confirm %s", lost, view.Stack)}
	}
	a.err.Printf("This deletes %s with all that is in it.\nType %s to go on: ", lost, view.Stack)
	answer := make(chan string, 1)
	go func() { // a read from a terminal cannot be called off
		line, _ := bufio.NewReader(a.in).ReadString('\n')
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		a.err.Println()
		return ctx.Err()
	case text := <-answer:
		if text != view.Stack {
			return errCancelled
		}
		return nil
	}
}
