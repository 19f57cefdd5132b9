package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
)

func (a *app) acquireCmd() *cobra.Command {
	var flags requestFlags
	cmd := &cobra.Command{
		Use:   "acquire ENTITY RESOURCE LIMIT=AMOUNT...",
		Short: "Spend tokens if the limits allow it",
		Long: `Spends tokens of an entity on a resource and, where the entity cascades, of its parents: all
or none. Prints the state of every limit that was checked. Exit code 3 means refused.`,
		Example: "  weir acquire key-alice gpt-4 rpm=1 tpm=500",
		Args:    spending(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := flags.request(args)
			if err != nil {
				return err
			}
			return a.with(existing, func(lim *weir.Limiter) error {
				lease, err := lim.Acquire(as(cmd.Context()), req)
				if err != nil {
					return a.refusal(err)
				}
				return errors.Join(lease.Commit(cmd.Context()), a.printDecision(lease.Decision()))
			})
		},
	}
	flags.add(cmd)
	return cmd
}

// refusal prints a refused decision and returns the error.
func (a *app) refusal(err error) error {
	var over *weir.ExceededError
	if errors.As(err, &over) {
		if printed := a.printDecision(over.Decision); printed != nil {
			return printed
		}
	}
	return err
}
