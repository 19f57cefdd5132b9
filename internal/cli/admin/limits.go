package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"

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

// notes returns what a limit's text leaves out.
func notes(l weir.Limit) (text string) {
	if l.Enforce != weir.EnforceOn {
		text += " (" + l.Enforce.String() + ")"
	}
	if l.MaxDebt != 0 {
		text += fmt.Sprintf(" (max_debt %d)", l.MaxDebt)
	}
	if l.Strict {
		text += " (returns strict)"
	}
	return text
}

// bounded puts limits that begin or end, given those that apply otherwise.
func bounded(b *admin.Bounded, covered []weir.Limit, put func(text string)) {
	when := timeIn(" from ", b.From) + timeIn(" until ", b.Until)
	if b.Scale != 0 {
		put(fmt.Sprintf("%d × as much%s", b.Scale, when))
	}
	for _, l := range b.Limits {
		then := ""
		at := slices.IndexFunc(covered, func(o weir.Limit) bool { return o.Name == l.Name })
		if at >= 0 && !b.Until.IsZero() {
			then = ", then " + strings.TrimPrefix(covered[at].String(), l.Name+":")
		}
		put(l.String() + notes(l) + when + then)
	}
}

// timeIn returns an instant in its zone, with the last part of the zone's name.
func timeIn(what string, i admin.Instant) string {
	if i.IsZero() {
		return ""
	}
	zone := i.Time().Location().String()
	return what + i.Time().Format("Mon 2 Jan 2006 15:04 ") + zone[strings.LastIndexByte(zone, '/')+1:]
}

// limits prints the limits of scopes, one row for each limit.
func limits(r *kit.Run, scopes []*api.Limits, list bool) {
	t := &term.Table{Header: []string{"ENTITY", "RESOURCE", "LIMIT"}}
	if slices.ContainsFunc(scopes, func(s *api.Limits) bool { return s.Plan != "" }) {
		t.Header[0] = "PLAN"
	}
	for _, s := range scopes {
		put := func(text string) { t.Row(kit.OrDash(s.Entity+s.Plan), kit.OrDash(s.Resource), text) }
		if s.Plan != "" && len(s.Limits) == 0 && s.OnUnavailable == "" { // a plan may have only limits on resources
			put("-")
		}
		for _, l := range s.Limits {
			put(l.String() + notes(l))
		}
		for i := range s.Bounded {
			bounded(&s.Bounded[i], s.Limits, put)
		}
		if s.OnUnavailable != "" && list { // show whose setting it is
			put("on unavailable: " + string(s.OnUnavailable))
		}
		if s.Group != "" && list {
			put("group: " + term.Clean(s.Group))
		}
	}
	if list || len(t.Rows) > 0 {
		r.Out.Table(t)
	}
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
		if s.Group != "" {
			r.Out.Pairs("group", term.Clean(s.Group))
		}
		if s.Entities != admin.AnyEntity {
			r.Out.Pairs("entities", string(s.Entities))
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
				"--on-unavailable deny\n  weir resource set gpt-4o --group openai",
		}, limits),
		kit.Verb(r, api.ShowLimits, kit.Spec{Use: "get RESOURCE", Short: "Show a resource's limits"}, limits),
		kit.Verb(r, api.DeleteLimits, kit.Spec{
			Use: "delete RESOURCE", Short: "Delete a resource's limits, so that the system's limits apply",
			Asks: "delete the limits of {resource?%q}", Done: "deleted the limits of {resource?%q}",
		}, nil),
		kit.Lists(r, api.ListResources, kit.Spec{Use: "list", Short: "List the resources that have limits"}, limits))
}

// GroupCmd returns the command weir group.
func GroupCmd(r *kit.Run) *cobra.Command {
	cmd := kit.Group(&cobra.Command{
		Use: "group", Short: "Manage limits of groups of resources, for each entity without its own on the group",
		Long: `Requests for a resource that belongs to a group ("weir resource set gpt-4o --group openai") are
also charged to the limits that the entity has on the group ("weir entity limits set ID --group
openai"), or else to those of the group itself. A group exists by being named. Nobody can
request a group, and it belongs to no other group.`,
	},
		kit.Verb(r, api.SetLimits, kit.Spec{
			Use: "set RESOURCE", Short: setsLimits, Some: noLimits, Done: noLimitsNow, Omit: []string{"group"},
			Example: "  weir group set openai -l tpd:1M/day",
		}, limits),
		kit.Verb(r, api.ShowLimits, kit.Spec{Use: "get RESOURCE", Short: "Show a group's limits"}, limits),
		kit.Verb(r, api.DeleteLimits, kit.Spec{
			Use: "delete RESOURCE", Short: "Delete a group's limits",
			Asks: "delete the limits of {resource?%q}", Done: "deleted the limits of {resource?%q}",
		}, nil))
	for _, verb := range cmd.Commands() {
		run := verb.RunE
		verb.Use = strings.Replace(verb.Use, "RESOURCE", "GROUP", 1)
		verb.RunE = func(cmd *cobra.Command, args []string) error {
			return run(cmd, []string{weir.GroupResource(args[0])})
		}
	}
	return cmd
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
	Entities      *string             `json:"entities" values:"known,any"`
	api.Bounds
}

func setSystem(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "set", Short: "Set the given limits and settings, and keep the rest",
		Example: "  weir system set -l rpm:60/min\n  weir system set --on-unavailable allow\n  weir system set " +
			"--near-limit 90,100\n  weir system set --entities known\n  weir system set --scale 10 --until " +
			"2026-12-04T18:00@Europe/Berlin",
		Some: "nothing to set: give -l, --scale, --on-unavailable, --near-limit or --entities",
	}, func(ctx context.Context, q *systemSettings) error {
		return r.Call(api.SetLimits.Op, func(c api.Caller) (err error) {
			var now *api.Limits
			if len(q.Limits) > 0 || q.Bounds != (api.Bounds{}) {
				now, _, err = api.SetLimits.Call(ctx, c, &api.LimitsChange{Limits: q.Limits, Bounds: q.Bounds})
			}
			set := api.SystemChange{OnUnavailable: q.OnUnavailable, NearLimit: q.NearLimit, Entities: q.Entities}
			if err == nil && set != (api.SystemChange{}) {
				now, _, err = api.SetSystem.Call(ctx, c, &set)
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
