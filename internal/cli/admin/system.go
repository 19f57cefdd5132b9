package admin

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
)

func SystemCmd(a *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{Use: "system", Short: "Manage the default limits and settings of a namespace"},
		systemSetCmd(a), systemGetCmd(a), systemDeleteCmd(a))
}

func systemSetCmd(a *kit.Run) *cobra.Command {
	var limits []string
	var onUnavailable, nearLimit string
	cmd := &cobra.Command{
		Use:     "set",
		Short:   "Set the given limits and settings, and keep the rest",
		Example: "  weir system set -l rpm:60/min\n  weir system set --on-unavailable allow\n  weir system set --near-limit 90,100",
		Args:    kit.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			near := cmd.Flags().Changed("near-limit")
			if len(limits) == 0 && onUnavailable == "" && !near {
				return kit.Usage(errors.New("nothing to set: give -l, --on-unavailable or --near-limit"))
			}
			thresholds, err := weir.ParseThresholds(nearLimit)
			if err != nil {
				return kit.Usage(err)
			}
			parsed, err := kit.ParseLimits(limits)
			if err != nil {
				return err
			}
			return a.With(stores.Create, func(lim *weir.Limiter) error {
				ctx := kit.As(cmd.Context())
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
				return showSet(a, cmd, lim, weir.Scope{})
			})
		},
	}
	kit.LimitFlag(cmd, &limits, "to set, replacing all existing ones")
	cmd.Flags().StringVar(&onUnavailable, "on-unavailable", "", "`ANSWER` while the store does not answer: deny, allow or local; default removes the setting, so that the server's applies")
	cmd.Flags().StringVar(&nearLimit, "near-limit", "", "`PERCENTAGES` of a limit at which to send near-limit events: such as 80,95, or none, or default for 80,95,100")
	return cmd
}

func systemGetCmd(a *kit.Run) *cobra.Command {
	return &cobra.Command{
		Use:   "get",
		Short: "Show the system limits and settings",
		Args:  kit.Args(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return getLimits(a, cmd, weir.Scope{}) },
	}
}

func systemDeleteCmd(a *kit.Run) *cobra.Command {
	var yes bool
	return kit.YesFlag(&cobra.Command{
		Use:   "delete",
		Short: "Delete the system limits; requests without limits at any other level then fail",
		Args:  kit.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return deleteLimits(a, cmd, weir.Scope{}, yes, "the system's limits")
		},
	}, &yes)
}
