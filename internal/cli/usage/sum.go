package usage

import (
	"cmp"
	"context"
	"slices"

	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
)

func summarize(r *kit.Run) func(ctx context.Context, q *summary) error {
	return func(ctx context.Context, q *summary) error {
		if err := q.check(); err != nil {
			return err
		}
		return r.Call(api.SummarizeUsage.Op, func(c api.Caller) error {
			s, _, err := api.SummarizeUsage.Call(ctx, c, &q.UsageSelection)
			if err != nil {
				return err
			}
			if q.Limit != "" {
				s.Windows = only(s.Windows, q.Limit)
				if total := only([]admin.Usage{s.Total}, q.Limit); len(total) > 0 {
					s.Total = total[0]
				} else {
					s.Total.Limits = []admin.LimitUsage{}
				}
			}
			if q.CSV {
				return writeCSV(r, s.Windows)
			}
			return kit.More(r, r.Print(s, func() { printSummary(r, &s) }), len(s.Windows), "")
		})
	}
}

func printSummary(a *kit.Run, s *admin.UsageSummary) {
	u := &s.Total
	if len(s.Windows) == 0 { // zeros would claim that nothing was requested
		a.Out.Pairs("from", kit.Instant(s.From), "to", kit.Instant(s.To))
		return
	}
	a.Out.Pairs(
		"from", kit.Instant(s.From), "to", kit.Instant(s.To), "windows",
		digits(int64(len(s.Windows)))+" "+string(u.Window),
		"requests", digits(u.Requests), "refused", digits(u.Refused), "degraded", digits(u.Degraded),
	)
	a.Out.Println("")
	t := term.Table{
		Header: []string{
			"LIMIT", "CONSUMED", "PER WINDOW", "DEBITED", "RETURNED", "REFUSED BY", "TOKENS REFUSED", "ADJUSTED",
		},
		Right: []int{1, 2, 3, 4, 5, 6, 7}, Cut: []int{0},
	}
	shadow := slices.ContainsFunc(u.Limits, func(l admin.LimitUsage) bool { return l.WouldRefuse > 0 })
	if shadow {
		t.Header, t.Right = append(t.Header, "WOULD REFUSE", "TOKENS"), append(t.Right, 8, 9)
	}
	for _, l := range u.Limits {
		row := []string{
			l.Limit, digits(l.Consumed), digits(l.Consumed / int64(max(1, len(s.Windows)))), digits(l.Debited),
			digits(l.Returned),
			digits(l.Refused), digits(l.RefusedTokens), digits(l.Adjustments),
		}
		if shadow {
			row = append(row, digits(l.WouldRefuse), digits(l.WouldRefuseTokens))
		}
		t.Row(row...)
	}
	a.Out.Table(&t)
	if a.Out.Terminal && len(s.Windows) > 1 {
		for _, l := range u.Limits {
			a.Out.Println("")
			a.Out.Println(a.Out.Bold(term.Clean(l.Limit)) + " consumed, " + string(u.Window))
			chart(a, s, l.Limit)
		}
	}
}

// chart draws what was consumed of a limit in each window of the period, with zero for windows without usage.
func chart(a *kit.Run, s *admin.UsageSummary, limit string) {
	first, last := s.Windows[0].Start, s.Windows[len(s.Windows)-1].Start
	var values []float64
	at := 0
	for start := first; !start.After(last) && len(values) < 100_000; start = s.Total.Window.Next(start) {
		v := 0.0
		if at < len(s.Windows) && s.Windows[at].Start.Equal(start) {
			for _, l := range s.Windows[at].Limits {
				if l.Limit == limit {
					v = float64(l.Consumed)
				}
			}
			at++
		}
		values = append(values, max(0, v))
	}
	a.Out.Chart(values, startText(s.Total.Window, first), startText(s.Total.Window, last))
}

func top(r *kit.Run) func(ctx context.Context, q *ranking) error {
	return func(ctx context.Context, q *ranking) error {
		if err := (&figures{Limit: q.Limit}).check(); err != nil {
			return err
		}
		q.By = cmp.Or(q.By, admin.ByEntity)
		return r.Call(api.TopUsage.Op, func(c api.Caller) error {
			list, _, err := api.TopUsage.Call(ctx, c, &q.TopQuery)
			if err != nil {
				return err
			}
			items := list.Items
			if q.CSV {
				return writeCSV(r, only(items, q.Limit))
			}
			return kit.PrintPage(r, items, "", func() {
				printTop(r, items, &q.TopQuery)
				counted := slices.ContainsFunc(items, func(u admin.Usage) bool { return u.Requests > 0 })
				if q.Limit == "" && !counted && slices.ContainsFunc(items, Spent) {
					r.Err.Println(
						"the store does not count requests, so this list is not ranked: rank it by a limit with " +
							"--limit",
					)
				}
			})
		})
	}
}

// Spent reports whether anything was debited.
func Spent(u admin.Usage) bool {
	return slices.ContainsFunc(u.Limits, func(l admin.LimitUsage) bool { return l.Debited > 0 })
}

func printTop(a *kit.Run, items []admin.Usage, q *api.TopQuery) {
	t := term.Table{
		Header: []string{"#", "ENTITY", "REQUESTS", "REFUSED", "LIMIT", "CONSUMED", "DEBITED", "RETURNED"},
		Right:  []int{0, 2, 3, 5, 6, 7}, Cut: []int{1, 4},
	}
	switch q.By {
	case admin.ByResource:
		t.Header[1] = "RESOURCE"
	case admin.ByParent:
		t.Header = append(t.Header, "OWN")
		t.Right = append(t.Right, 8)
	case admin.ByLimit:
		t.Header[1] = "NAMESPACE"
	default:
	}
	for n, u := range items {
		limits := u.Limits
		if q.Limit != "" {
			limits = nil
			for _, o := range only([]admin.Usage{u}, q.Limit) {
				limits = o.Limits
			}
		}
		name := cmp.Or(u.Entity, u.Resource)
		if q.By == admin.ByLimit {
			name = cmp.Or(a.Requested(), "-")
		}
		for _, l := range limits {
			row := []string{
				digits(int64(n + 1)), name, digits(u.Requests), digits(u.Refused), l.Limit, digits(l.Consumed),
				digits(l.Debited), digits(l.Returned),
			}
			if q.By == admin.ByParent {
				row = append(row, digits(ownOf(u.Own, l.Limit)))
			}
			t.Row(row...)
		}
	}
	a.Out.Table(&t)
}

func ownOf(own *admin.OwnUsage, limit string) int64 {
	if own != nil {
		for _, l := range own.Limits {
			if l.Limit == limit {
				return l.Consumed
			}
		}
	}
	return 0
}
