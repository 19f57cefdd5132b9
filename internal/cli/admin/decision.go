package admin

import (
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
)

// span formats a duration for people.
func span(s api.Seconds) string { return kit.Span(time.Duration(s)) }

// limitText is the text form of a status's limit, marked if it is in shadow.
func limitText(s *api.Status) string {
	text := term.Clean(s.Rate().String())
	if s.Shadow {
		text += " (shadow)"
	}
	return text
}

// printDecision prints the outcome of a request and a table of its limits. For a refusal the caller also returns an
// error.
func printDecision(a *kit.Run, d *api.Decision) error {
	return a.Print(d, func() {
		switch {
		case d.Degraded:
			a.Out.Println(a.Out.Bad("allowed without the store:"), term.Clean(d.Reason))
		case d.Allowed:
			a.Out.Println(a.Out.Good("allowed"))
		default:
			a.Out.Println(a.Out.Bad("refused")+",", "retry in", span(d.RetryAfter))
		}
		printStatuses(a, d.Limits, true)
	})
}

func printStatuses(a *kit.Run, ss []api.Status, requested bool) {
	if len(ss) == 0 {
		return
	}
	columns := []kit.Column[api.Status]{
		{Name: "entity"},
		{Name: "limit", Of: func(s *api.Status) any { return limitText(s) }},
		{Name: "available"},
		{Name: "full in", Of: func(s *api.Status) any { return time.Duration(s.FullIn) }},
		{Name: "from", Of: func(s *api.Status) any { return s.Source }},
	}
	if requested {
		columns = slices.Insert(columns, 2, kit.Column[api.Status]{Name: "requested"})
		columns = append(columns, kit.Column[api.Status]{Name: "retry in", Of: retryText})
	}
	kit.Columns(columns)(a, ss, true)
}

func retryText(s *api.Status) any {
	switch {
	case s.Refused:
		return kit.Number(span(s.RetryAfter))
	case s.WouldRefuse:
		return kit.Number("would refuse")
	}
	return kit.Number("-")
}
