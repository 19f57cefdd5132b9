package admin

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
)

const (
	setsLimits  = "Replace limits, or set what happens when the store does not answer"
	noLimits    = "no limit is given: add -l name:amount/period, such as -l rpm:100/min"
	noLimitsNow = "no limits are set now"
)

// limits prints the limits of scopes, one row for each limit.
func limits(r *kit.Run, scopes []*api.Limits, list bool) {
	t := &term.Table{Header: []string{"ENTITY", "RESOURCE", "LIMIT"}}
	for _, s := range scopes {
		put := func(text string) { t.Row(kit.OrDash(s.Entity), kit.OrDash(s.Resource), text) }
		for _, l := range s.Limits {
			text := l.String()
			if l.Enforce != weir.EnforceOn {
				text += " (" + l.Enforce.String() + ")"
			}
			put(text)
		}
		if s.OnUnavailable != "" && list { // show whose setting it is
			put("on unavailable: " + string(s.OnUnavailable))
		}
	}
	r.Out.Table(t)
	if list {
		return
	}
	for _, s := range scopes {
		if s.OnUnavailable != "" {
			r.Out.Pairs("on unavailable", string(s.OnUnavailable))
		}
		if s.NearLimit != nil {
			r.Out.Pairs("near limit", s.NearLimit.String())
		}
	}
}

// ResourceCmd returns the command weir resource.
func ResourceCmd(r *kit.Run) *cobra.Command {
	return kit.Group(
		&cobra.Command{Use: "resource", Short: "Manage limits of resources, for entities without limits of their own"},
		kit.Verb(r, api.SetLimits, kit.Spec{
			Use: "set RESOURCE", Short: setsLimits, Some: noLimits, Done: noLimitsNow,
			Example: "  weir resource set gpt-4 -l rpm:100/min -l tpm:50K/min\n  weir resource set login " +
				"--on-unavailable deny",
		}, limits),
		kit.Verb(r, api.ShowLimits, kit.Spec{Use: "get RESOURCE", Short: "Show a resource's limits"}, limits),
		kit.Verb(r, api.DeleteLimits, kit.Spec{
			Use: "delete RESOURCE", Short: "Delete a resource's limits, so that the system's limits apply",
			Asks: "delete the limits of resource {resource}", Done: "deleted the limits of resource {resource}",
		}, nil),
		kit.Lists(r, api.ListResources, kit.Spec{Use: "list", Short: "List the resources that have limits"}, limits))
}

// SystemCmd returns the command weir system.
func SystemCmd(r *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{Use: "system", Short: "Manage the default limits and settings of a namespace"},
		setSystem(r),
		kit.Verb(r, api.ShowSystem, kit.Spec{Use: "get", Short: "Show the system limits and settings"}, limits),
		kit.Verb(r, api.DeleteLimits, kit.Spec{
			Use: "delete", Short: "Delete the system limits; requests without limits at any other level then fail",
			Omit: []string{"resource"}, Asks: "delete the system's limits", Done: "deleted the system's limits",
		}, nil))
}

// systemSettings are the limits and settings of a namespace, which are changed by two operations.
type systemSettings struct {
	Limits        []weir.Limit        `json:"limits" flag:"limit,l"`
	OnUnavailable *weir.OnUnavailable `json:"on_unavailable" values:"deny,allow,local,default"`
	NearLimit     *admin.Thresholds   `json:"near_limit"`
}

func setSystem(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "set", Short: "Set the given limits and settings, and keep the rest",
		Example: "  weir system set -l rpm:60/min\n  weir system set --on-unavailable allow\n  weir system set " +
			"--near-limit 90,100",
		Some: "nothing to set: give -l, --on-unavailable or --near-limit",
	}, func(ctx context.Context, q *systemSettings) error {
		return r.Call(api.SetLimits.Op, func(c api.Caller) (err error) {
			var now *api.Limits
			if len(q.Limits) > 0 {
				now, _, err = api.SetLimits.Call(ctx, c, &api.LimitsChange{Limits: q.Limits})
			}
			if err == nil && (q.OnUnavailable != nil || q.NearLimit != nil) {
				now, _, err = api.SetSystem.Call(ctx, c, &api.SystemChange{
					OnUnavailable: q.OnUnavailable, NearLimit: q.NearLimit,
				})
			}
			switch {
			case err != nil:
				return err
			case now == nil:
				return kit.Did(r, noLimitsNow)
			}
			return kit.Show(r, now, limits)
		})
	})
}
