package admin

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/cli/term"
)

// scopeView shows the limits of one scope, as printed.
type scopeView struct {
	Entity        string        `json:"entity,omitempty"`
	Resource      string        `json:"resource,omitempty"`
	Source        string        `json:"source"`
	Limits        []weir.Limit  `json:"limits"`
	OnUnavailable string        `json:"on_unavailable,omitempty"`
	NearLimit     []int         `json:"near_limit,omitzero"`
	Managed       *weir.Managed `json:"managed,omitempty"`
}

func viewOf(s weir.ScopedLimits) scopeView {
	limits := s.Limits
	if limits == nil {
		limits = []weir.Limit{}
	}
	return scopeView{s.Scope.Entity, s.Scope.Resource, string(s.Source), limits, string(s.OnUnavailable), s.NearLimit, s.Managed}
}

// printLimits prints the limits of scopes, one row per limit.
func printLimits(a *kit.Run, scopes []weir.ScopedLimits) {
	t := &term.Table{Header: []string{"ENTITY", "RESOURCE", "LIMIT"}}
	for _, s := range scopes {
		for _, l := range s.Limits {
			text := l.String()
			if l.Enforce != weir.EnforceOn {
				text += " (" + l.Enforce.String() + ")"
			}
			t.Row(kit.OrDash(s.Scope.Entity), kit.OrDash(s.Scope.Resource), text)
		}
		if s.OnUnavailable != "" && len(scopes) > 1 { // show whose setting it is
			t.Row(kit.OrDash(s.Scope.Entity), kit.OrDash(s.Scope.Resource), "on unavailable: "+string(s.OnUnavailable))
		}
	}
	a.Out.Table(t)
	for _, s := range scopes {
		if len(scopes) > 1 {
			break
		}
		if s.OnUnavailable != "" {
			a.Out.Pairs("on unavailable", string(s.OnUnavailable))
		}
		if s.NearLimit != nil {
			a.Out.Pairs("near limit", s.NearLimit.String())
		}
	}
}

// onUnavailableFlag adds --on-unavailable.
func onUnavailableFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "on-unavailable", "", "`ANSWER` while the store does not answer: deny, allow or local; default removes the setting, so that the next level applies")
}

// unset returns the setting that the text of a flag stands for: default removes it.
func unset(text string) weir.Unavailable {
	if text == "default" {
		return weir.UnavailableDefault
	}
	return weir.Unavailable(text)
}

// setLimits sets the limits or the on-unavailable answer of a scope. What is not given stays as it is.
func setLimits(a *kit.Run, cmd *cobra.Command, scope weir.Scope, texts []string, onUnavailable string) error {
	limits, err := kit.ParseLimits(texts)
	if onUnavailable == "" {
		limits, err = kit.SomeLimits(texts)
	}
	if err != nil {
		return err
	}
	return a.With(stores.Create, func(lim *weir.Limiter) error {
		ctx := kit.As(cmd.Context())
		if onUnavailable != "" { // first, because the limits are already validated
			if err := lim.SetOnUnavailable(ctx, scope, unset(onUnavailable)); err != nil {
				return err
			}
		}
		if len(limits) > 0 {
			if err := lim.SetLimits(ctx, scope, limits...); err != nil {
				return err
			}
		}
		return showSet(a, cmd, lim, scope)
	})
}

func getLimits(a *kit.Run, cmd *cobra.Command, scope weir.Scope) error {
	return a.With(stores.Existing, func(lim *weir.Limiter) error { return showLimits(a, cmd, lim, scope) })
}

// showSet is showLimits after a change, which may have left nothing set.
func showSet(a *kit.Run, cmd *cobra.Command, lim *weir.Limiter, scope weir.Scope) error {
	err := showLimits(a, cmd, lim, scope)
	if errors.Is(err, weir.ErrNotFound) {
		return a.Did("no limits are set now")
	}
	return err
}

func showLimits(a *kit.Run, cmd *cobra.Command, lim *weir.Limiter, scope weir.Scope) error {
	found, err := lim.Limits(cmd.Context(), scope)
	if err != nil {
		return err
	}
	return a.Print(viewOf(found), func() { printLimits(a, []weir.ScopedLimits{found}) })
}

func deleteLimits(a *kit.Run, cmd *cobra.Command, scope weir.Scope, yes bool, what string) error {
	if err := a.Confirm(cmd.Context(), yes, "delete %s", what); err != nil {
		return err
	}
	return a.With(stores.Existing, func(lim *weir.Limiter) error {
		if err := lim.DeleteLimits(kit.As(cmd.Context()), scope); err != nil {
			return err
		}
		return a.Did("deleted %s", what)
	})
}

// listLimits prints all pages of a list of limits.
func listLimits(a *kit.Run, cmd *cobra.Command, query weir.LimitsQuery, p *kit.PageFlags) error {
	return a.With(stores.Existing, func(lim *weir.Limiter) error {
		found, next, err := kit.Collect(p, func(after string, size int) ([]weir.ScopedLimits, string, error) {
			query.After, query.Max = after, size
			page, err := lim.ListLimits(cmd.Context(), query)
			return page.Limits, page.Next, err
		})
		if err != nil {
			return err
		}
		views := make([]scopeView, len(found))
		for i, s := range found {
			views[i] = viewOf(s)
		}
		return kit.PrintPage(a, views, next, func() { printLimits(a, found) })
	})
}
