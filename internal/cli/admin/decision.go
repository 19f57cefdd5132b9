package admin

import (
	"slices"
	"strings"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
)

// decisionView is a decision as printed.
type decisionView struct {
	Allowed    bool         `json:"allowed"`
	Degraded   bool         `json:"degraded"`
	Reason     string       `json:"reason,omitempty"` // of the degradation
	At         string       `json:"at"`
	RetryAfter kit.Seconds  `json:"retry_after"`
	Limits     []statusView `json:"limits"`
}

// statusView is a limit's status as printed.
type statusView struct {
	Entity     string      `json:"entity"`
	Resource   string      `json:"resource"`
	Limit      string      `json:"limit"`
	Source     string      `json:"source"`
	Requested  int64       `json:"requested"`
	Available  int64       `json:"available"`
	Amount     int64       `json:"amount"`
	Period     string      `json:"period"`
	Burst      int64       `json:"burst"`
	FullIn     kit.Seconds `json:"full_in"`
	Refused    bool        `json:"refused"`
	RetryAfter kit.Seconds `json:"retry_after"`
	// Omitted unless the limit is in shadow.
	Shadow      bool `json:"shadow,omitempty"`
	WouldRefuse bool `json:"would_refuse,omitempty"`
}

func statusViews(ss []weir.LimitStatus) []statusView {
	views := make([]statusView, len(ss))
	for i, s := range ss {
		views[i] = statusView{
			s.Entity, s.Resource, s.Limit, string(s.Source), s.Requested, s.Available, s.Amount, period(limitOf(s)),
			s.Burst,
			kit.Seconds(s.Full), s.Refused, kit.Seconds(s.RetryAfter), s.Shadow, s.WouldRefuse,
		}
	}
	return views
}

// limitText is the text form of a status's limit, marked if it is in shadow.
func limitText(s weir.LimitStatus) string {
	text := limitOf(s).String()
	if s.Shadow {
		text += " (shadow)"
	}
	return text
}

func limitOf(s weir.LimitStatus) weir.Limit {
	return weir.Limit{Name: s.Limit, Amount: s.Amount, Period: s.Period, Burst: s.Burst}
}

// period returns the period as in a limit's text form, such as "min".
func period(l weir.Limit) string {
	_, text, _ := strings.Cut(l.String(), "/")
	text, _, _ = strings.Cut(text, ":") // the burst
	return text
}

// printDecision prints the outcome of a request and a table of its limits. For a refusal the caller also returns an
// error.
func printDecision(a *kit.Run, d weir.Decision) error {
	view := decisionView{
		d.Allowed, d.Degraded, d.Reason, kit.Instant(d.At), kit.Seconds(d.RetryAfter), statusViews(d.Statuses),
	}
	return a.Print(view, func() {
		switch {
		case d.Degraded:
			a.Out.Println(a.Out.Bad("allowed without the store:"), term.Clean(d.Reason))
		case d.Allowed:
			a.Out.Println(a.Out.Good("allowed"))
		default:
			a.Out.Println(a.Out.Bad("refused")+",", "retry in", kit.Span(d.RetryAfter))
		}
		printStatuses(a, d.Statuses, true)
	})
}

func printStatuses(a *kit.Run, ss []weir.LimitStatus, requested bool) {
	if len(ss) == 0 {
		return
	}
	columns := []kit.Column[weir.LimitStatus]{
		{Name: "entity", Of: func(s *weir.LimitStatus) any { return s.Entity }},
		{Name: "limit", Of: func(s *weir.LimitStatus) any { return limitText(*s) }},
		{Name: "available", Of: func(s *weir.LimitStatus) any { return s.Available }},
		{Name: "full in", Of: func(s *weir.LimitStatus) any { return s.Full }},
		{Name: "from", Of: func(s *weir.LimitStatus) any { return s.Source }},
	}
	if requested {
		columns = slices.Insert(columns, 2, kit.Column[weir.LimitStatus]{
			Name: "requested", Of: func(s *weir.LimitStatus) any { return s.Requested },
		})
		columns = append(columns, kit.Column[weir.LimitStatus]{Name: "retry in", Of: retryText})
	}
	kit.Columns(columns)(a, ss, true)
}

func retryText(s *weir.LimitStatus) any {
	switch {
	case s.Refused:
		return kit.Number(kit.Span(s.RetryAfter))
	case s.WouldRefuse:
		return kit.Number("would refuse")
	}
	return kit.Number("-")
}
