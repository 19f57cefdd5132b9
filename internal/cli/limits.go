package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/term"
)

// limitFlag adds -l, which is repeatable.
func limitFlag(cmd *cobra.Command, limits *[]string, what string) {
	cmd.Flags().StringArrayVarP(limits, "limit", "l", nil, "`LIMIT` "+what+", such as tpm:50K/min:75K (name:amount/period[:burst]); repeatable")
}

func parseLimits(texts []string) ([]weir.Limit, error) {
	var limits []weir.Limit
	for _, text := range texts {
		l, err := weir.ParseLimit(text)
		if err != nil {
			return nil, err
		}
		limits = append(limits, l)
	}
	if len(limits) > 0 { // validate before anything is set
		if err := (&weir.ScopedLimits{Limits: limits}).Validate(); err != nil {
			return nil, err
		}
	}
	return limits, nil
}

// someLimits is parseLimits, but requires at least one limit.
func someLimits(texts []string) ([]weir.Limit, error) {
	if len(texts) == 0 {
		return nil, usageError{errors.New("no limit is given: add -l name:amount/period, such as -l rpm:100/min")}
	}
	return parseLimits(texts)
}

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
func (a *app) printLimits(scopes []weir.ScopedLimits) {
	t := &term.Table{Header: []string{"ENTITY", "RESOURCE", "LIMIT"}}
	for _, s := range scopes {
		for _, l := range s.Limits {
			text := l.String()
			if l.Enforce != weir.EnforceOn {
				text += " (" + l.Enforce.String() + ")"
			}
			t.Row(orDash(s.Scope.Entity), orDash(s.Scope.Resource), text)
		}
		if s.OnUnavailable != "" && len(scopes) > 1 { // show whose setting it is
			t.Row(orDash(s.Scope.Entity), orDash(s.Scope.Resource), "on unavailable: "+string(s.OnUnavailable))
		}
	}
	a.out.Table(t)
	for _, s := range scopes {
		if len(scopes) > 1 {
			break
		}
		if s.OnUnavailable != "" {
			a.out.Pairs("on unavailable", string(s.OnUnavailable))
		}
		if s.NearLimit != nil {
			a.out.Pairs("near limit", s.NearLimit.String())
		}
	}
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
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
func (a *app) setLimits(cmd *cobra.Command, scope weir.Scope, texts []string, onUnavailable string) error {
	limits, err := parseLimits(texts)
	if onUnavailable == "" {
		limits, err = someLimits(texts)
	}
	if err != nil {
		return err
	}
	return a.with(create, func(lim *weir.Limiter) error {
		ctx := as(cmd.Context())
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
		return a.showSet(cmd, lim, scope)
	})
}

func (a *app) getLimits(cmd *cobra.Command, scope weir.Scope) error {
	return a.with(existing, func(lim *weir.Limiter) error { return a.showLimits(cmd, lim, scope) })
}

// showSet is showLimits after a change, which may have left nothing set.
func (a *app) showSet(cmd *cobra.Command, lim *weir.Limiter, scope weir.Scope) error {
	err := a.showLimits(cmd, lim, scope)
	if errors.Is(err, weir.ErrNotFound) {
		return a.did("no limits are set now")
	}
	return err
}

func (a *app) showLimits(cmd *cobra.Command, lim *weir.Limiter, scope weir.Scope) error {
	found, err := lim.Limits(cmd.Context(), scope)
	if err != nil {
		return err
	}
	return a.print(viewOf(found), func() { a.printLimits([]weir.ScopedLimits{found}) })
}

func (a *app) deleteLimits(cmd *cobra.Command, scope weir.Scope, yes bool, what string) error {
	if err := a.confirm(cmd.Context(), yes, "delete %s", what); err != nil {
		return err
	}
	return a.with(existing, func(lim *weir.Limiter) error {
		if err := lim.DeleteLimits(as(cmd.Context()), scope); err != nil {
			return err
		}
		return a.did("deleted %s", what)
	})
}

// listLimits prints all pages of a list of limits.
func (a *app) listLimits(cmd *cobra.Command, query weir.LimitsQuery, p *pageFlags) error {
	return a.with(existing, func(lim *weir.Limiter) error {
		found, next, err := collect(p, func(after string, size int) ([]weir.ScopedLimits, string, error) {
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
		return printPage(a, views, next, func() { a.printLimits(found) })
	})
}
