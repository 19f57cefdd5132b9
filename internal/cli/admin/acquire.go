// Package admin has the commands that decide by hand, configure what is in a store, and look into it.
package admin

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
)

func AcquireCmd(a *kit.Run) *cobra.Command {
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
			return a.With(stores.Existing, func(lim *weir.Limiter) error {
				lease, err := lim.Acquire(kit.As(cmd.Context()), req)
				if err != nil {
					return refusal(a, err)
				}
				return errors.Join(lease.Commit(cmd.Context()), printDecision(a, lease.Decision()))
			})
		},
	}
	flags.add(cmd)
	return cmd
}

// refusal prints a refused decision and returns the error.
func refusal(a *kit.Run, err error) error {
	var over *weir.ExceededError
	if errors.As(err, &over) {
		if printed := printDecision(a, over.Decision); printed != nil {
			return printed
		}
	}
	return err
}
