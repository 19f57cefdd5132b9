package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
)

func (a *app) systemCmd() *cobra.Command {
	return group(&cobra.Command{Use: "system", Short: "Manage the default limits and settings of a namespace"},
		a.systemSetCmd(), a.systemGetCmd(), a.systemDeleteCmd())
}

func (a *app) systemSetCmd() *cobra.Command {
	var limits []string
	var onUnavailable, nearLimit string
	cmd := &cobra.Command{
		Use:     "set",
		Short:   "Set the given limits and settings, and keep the rest",
		Example: "  weir system set -l rpm:60/min\n  weir system set --on-unavailable allow\n  weir system set --near-limit 90,100",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			near := cmd.Flags().Changed("near-limit")
			if len(limits) == 0 && onUnavailable == "" && !near {
				return usageError{errors.New("nothing to set: give -l, --on-unavailable or --near-limit")}
			}
			thresholds, err := weir.ParseThresholds(nearLimit)
			if err != nil {
				return usageError{err}
			}
			parsed, err := parseLimits(limits)
			if err != nil {
				return err
			}
			return a.with(create, func(lim *weir.Limiter) error {
				ctx := as(cmd.Context())
				if onUnavailable != "" { // first, because the limits are already validated
					if err := lim.SetOnUnavailable(ctx, weir.Scope{}, unset(onUnavailable)); err != nil {
						return err
					}
				}
				if near {
					if err := lim.SetNearLimit(ctx, thresholds); err != nil {
						return err
					}
				}
				if len(parsed) > 0 {
					if err := lim.SetLimits(ctx, weir.Scope{}, parsed...); err != nil {
						return err
					}
				}
				return a.showSet(cmd, lim, weir.Scope{})
			})
		},
	}
	limitFlag(cmd, &limits, "to set, replacing all existing ones")
	cmd.Flags().StringVar(&onUnavailable, "on-unavailable", "", "`ANSWER` while the store does not answer: deny, allow or local; default removes the setting, so that the server's applies")
	cmd.Flags().StringVar(&nearLimit, "near-limit", "", "`PERCENTAGES` of a limit at which to send near-limit events: such as 80,95, or none, or default for 80,95,100")
	return cmd
}

func (a *app) systemGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "get",
		Short: "Show the system limits and settings",
		Args:  args(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.getLimits(cmd, weir.Scope{}) },
	}
}

func (a *app) systemDeleteCmd() *cobra.Command {
	var yes bool
	return yesFlag(&cobra.Command{
		Use:   "delete",
		Short: "Delete the system limits; requests without limits at any other level then fail",
		Args:  args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.deleteLimits(cmd, weir.Scope{}, yes, "the system's limits")
		},
	}, &yes)
}
