package admin

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/store"
)

// span formats a duration for people.
func span(s api.Seconds) string { return kit.Span(time.Duration(s)) }

// retry is what to do about a refusal.
func retry(after api.Seconds) string {
	if after == math.MaxInt64 {
		return "waiting does not help until it is topped up"
	}
	return "retry in " + span(after)
}

// left is what is left of a burst. A balance has none.
func left(a *kit.Run, available, burst int64) string {
	if burst == 0 {
		return a.Out.Count(available)
	}
	return a.Out.Count(available) + " of " + a.Out.Count(burst)
}

// heldOrLeft is what is left of a limit, or how many are held of one of slots.
func heldOrLeft(a *kit.Run, available, burst, amount int64) string {
	if amount == 0 && burst > 0 {
		return left(a, burst-available, burst) + " held"
	}
	return left(a, available, burst) + " left"
}

// nextEnd is when the next slots that are held of a limit come back unless they are renewed; nil if there are none.
func nextEnd(s *api.Status, at time.Time) any {
	if !s.Slots() || s.EndsIn == 0 {
		return nil
	}
	return at.Add(time.Duration(s.EndsIn)).UTC().Format("15:04:05 UTC")
}

// endText is [nextEnd], or when the next window of a quota begins.
func endText(s *api.Status, at time.Time) string {
	if end := nextEnd(s, at); end != nil {
		return fmt.Sprint("next ends ", end)
	}
	return fmt.Sprint("resets ", kit.Resets(s.Rate().Window, at.Add(time.Duration(s.EndsIn))))
}

// usedOf is the share of a burst that is spent: above 1 in debt, 0 of a balance.
func usedOf(available, burst int64) float64 {
	if burst == 0 {
		return 0
	}
	return float64(burst-available) / float64(burst)
}

// limitText is the text form of a status's limit, marked if it is in shadow.
func limitText(s *api.Status) string {
	text := term.Clean(s.Rate().String())
	if store.Aggregate(s.Resource) {
		text += " on " + resourceText(s.Resource)
	}
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
			a.Out.Println(a.Out.Bad("refused")+",", retry(d.RetryAfter))
		}
		printStatuses(a, d.At, d.Limits, true)
	})
}

// printStatuses prints a table. Without a time, it is now.
func printStatuses(a *kit.Run, at time.Time, ss []api.Status, requested bool) {
	if len(ss) == 0 {
		return
	}
	if at.IsZero() {
		at = time.Now()
	}
	columns := []kit.Column[api.Status]{
		{Name: "entity"},
		{Name: "limit", Of: func(s *api.Status) any { return limitText(s) }},
		{Name: "available"},
		{Name: "full in", Of: func(s *api.Status) any {
			if s.Amount == 0 {
				return kit.Number("-") // a balance is never full, and nothing is known of slots
			}
			return time.Duration(s.FullIn)
		}},
		{Name: "resets", Rare: true, Of: func(s *api.Status) any {
			return kit.Resets(s.Rate().Window, at.Add(time.Duration(s.EndsIn)))
		}},
		{Name: "next end", Rare: true, Of: func(s *api.Status) any { return nextEnd(s, at) }},
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
