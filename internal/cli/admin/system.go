package admin

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
)

// systemSettings are the limits and settings of a namespace, which are changed by two operations.
type systemSettings struct {
	Limits        []weir.Limit      `json:"limits" flag:"limit,l" doc:"{LIMIT} to set, replacing all existing ones, such as tpm:50K/min:75K (name:amount/period[:burst]); repeatable"`
	OnUnavailable *weir.Unavailable `json:"on_unavailable" values:"deny,allow,local,default" doc:"{ANSWER} while the store does not answer: deny, allow or local; default removes the setting, so that the server's applies"`
	NearLimit     *weir.Thresholds  `json:"near_limit" doc:"{PERCENTAGES} of a limit at which to send near-limit events: such as 80,95, or none, or default for 80,95,100"`
}

func setSystem(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "set", Short: "Set the given limits and settings, and keep the rest",
		Example: "  weir system set -l rpm:60/min\n  weir system set --on-unavailable allow\n  weir system set --near-limit 90,100",
		Some:    "nothing to set: give -l, --on-unavailable or --near-limit",
	}, func(ctx context.Context, q *systemSettings) error {
		return r.Call(api.SetLimits.Op, func(c api.Caller) (err error) {
			var now *api.Limits
			if len(q.Limits) > 0 {
				now, _, err = api.SetLimits.Call(ctx, c, &api.LimitsChange{Limits: q.Limits})
			}
			if err == nil && (q.OnUnavailable != nil || q.NearLimit != nil) {
				now, _, err = api.SetSystem.Call(ctx, c, &api.SystemChange{OnUnavailable: q.OnUnavailable, NearLimit: q.NearLimit})
			}
			switch {
			case err != nil:
				return err
			case now == nil:
				return r.Did(noLimitsNow)
			}
			return kit.Show(r, now, limits)
		})
	})
}
