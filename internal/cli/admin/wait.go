package admin

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
)

func WaitCmd(a *kit.Run) *cobra.Command {
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
			return a.With(stores.Existing, func(lim *weir.Limiter) error {
				ctx := kit.As(cmd.Context())
				if timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, timeout)
					defer cancel()
				}
				lease, err := lim.Wait(ctx, req)
				if err != nil {
					return refusal(a, err)
				}
				return errors.Join(lease.Commit(cmd.Context()), printDecision(a, lease.Decision()))
			})
		},
	}
	flags.add(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "wait at most this `DURATION`, such as 30s; 0 waits forever")
	return cmd
}
