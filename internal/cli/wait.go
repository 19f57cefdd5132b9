package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
)

func (a *app) waitCmd() *cobra.Command {
	var flags requestFlags
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait ENTITY RESOURCE LIMIT=AMOUNT...",
		Short: "Spend tokens as soon as the limits allow it",
		Long: `Waits until the limits allow the request, then spends the tokens. If it would have to wait
longer than --timeout, it fails at once with exit code 3.`,
		Example: "  weir wait key-alice gpt-4 rpm=1 --timeout 30s && call-the-model",
		Args:    spending(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := flags.request(args)
			if err != nil {
				return err
			}
			return a.with(existing, func(lim *weir.Limiter) error {
				ctx := as(cmd.Context())
				if timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, timeout)
					defer cancel()
				}
				lease, err := lim.Wait(ctx, req)
				if err != nil {
					return a.refusal(err)
				}
				return errors.Join(lease.Commit(cmd.Context()), a.printDecision(lease.Decision()))
			})
		},
	}
	flags.add(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "wait at most this `DURATION`, such as 30s; 0 waits forever")
	return cmd
}
