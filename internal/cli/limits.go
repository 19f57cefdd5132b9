package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/term"
)

// limitFlag adds -l, which can be repeated.
func limitFlag(cmd *cobra.Command, limits *[]string, what string) {
	cmd.Flags().StringArrayVarP(limits, "limit", "l", nil, "`LIMIT` such as tpm:50K/min:75K (name:amount/period[:burst]), "+what+"; can be repeated")
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
	return limits, nil
}

// someLimits is parseLimits that wants at least one.
func someLimits(texts []string) ([]weir.Limit, error) {
	if len(texts) == 0 {
		return nil, usageError{errors.New("no limit is given: add -l name:amount/period, as in -l rpm:100/min")}
	}
	return parseLimits(texts)
}

// scopeView is the limits of one scope as they are printed.
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

// printLimits writes the limits of scopes, a row for each limit.
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
	}
	a.out.Table(t)
	for _, s := range scopes {
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

// setLimits, getLimits and deleteLimits are what the scopes have in common.
func (a *app) setLimits(cmd *cobra.Command, scope weir.Scope, texts []string) error {
	limits, err := someLimits(texts)
	if err != nil {
		return err
	}
	return a.with(create, func(lim *weir.Limiter) error {
		ctx := as(cmd.Context())
		if err := lim.SetLimits(ctx, scope, limits...); err != nil {
			return err
		}
		return a.showLimits(cmd, lim, scope)
	})
}

func (a *app) getLimits(cmd *cobra.Command, scope weir.Scope) error {
	return a.with(existing, func(lim *weir.Limiter) error { return a.showLimits(cmd, lim, scope) })
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
