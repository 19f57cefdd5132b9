package admin

import (
	"cmp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/cli/term"
)

func usageSummaryCmd(a *kit.Run) *cobra.Command {
	var flags UsageFlags
	var query weir.UsageQuery
	cmd := &cobra.Command{
		Use:   "summary",
		Short: "Sum up usage, with a chart on a terminal",
		Args:  kit.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if query.Window, query.From, query.To, err = flags.Period(); err != nil {
				return err
			}
			query.By = weir.UsageBy(flags.by)
			return a.With(stores.Existing, func(lim *weir.Limiter) error {
				s, err := lim.SummarizeUsage(cmd.Context(), query)
				if err != nil {
					return err
				}
				if flags.limit != "" {
					s.Windows = only(s.Windows, flags.limit)
					if total := only([]weir.Usage{s.Total}, flags.limit); len(total) > 0 {
						s.Total = total[0]
					} else {
						s.Total.Limits = []weir.LimitUsage{}
					}
				}
				if flags.csv {
					return usageCSV(a, s.Windows)
				}
				return a.Print(s, func() { printSummary(a, &s) })
			})
		},
	}
	cmd.Flags().StringVar(&query.Entity, "entity", "", "show only the entity with this `ID`")
	cmd.Flags().StringVar(&query.Resource, "resource", "", "show only the resource with this `NAME`")
	return flags.add(cmd, "`KEY`: entity, parent, resource, namespace or store")
}

func printSummary(a *kit.Run, s *weir.UsageSummary) {
	u := &s.Total
	a.Out.Pairs(
		"from", kit.Instant(s.From), "to", kit.Instant(s.To), "windows", digits(int64(len(s.Windows)))+" "+string(u.Window),
		"requests", digits(u.Requests), "refused", digits(u.Refused), "degraded", digits(u.Degraded),
	)
	a.Out.Println("")
	t := term.Table{
		Header: []string{"LIMIT", "CONSUMED", "PER WINDOW", "DEBITED", "RETURNED", "REFUSED BY", "TOKENS REFUSED", "ADJUSTED"},
		Right:  []int{1, 2, 3, 4, 5, 6, 7}, Cut: []int{0},
	}
	shadow := slices.ContainsFunc(u.Limits, func(l weir.LimitUsage) bool { return l.WouldRefuse > 0 })
	if shadow {
		t.Header, t.Right = append(t.Header, "WOULD REFUSE", "TOKENS"), append(t.Right, 8, 9)
	}
	for _, l := range u.Limits {
		row := []string{
			l.Limit, digits(l.Consumed), digits(l.Consumed / int64(max(1, len(s.Windows)))), digits(l.Debited), digits(l.Returned),
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
func chart(a *kit.Run, s *weir.UsageSummary, limit string) {
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
	a.Out.Chart(values, StartText(s.Total.Window, first), StartText(s.Total.Window, last))
}

func usageTopCmd(a *kit.Run) *cobra.Command {
	var flags UsageFlags
	var query weir.TopQuery
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Rank who spent most, in requests or in tokens of a limit",
		Args:  kit.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if query.Window, query.From, query.To, err = flags.Period(); err != nil {
				return err
			}
			query.By = cmp.Or(weir.UsageBy(flags.by), weir.ByEntity)
			query.Limit = flags.limit
			return a.With(stores.Existing, func(lim *weir.Limiter) error {
				top, err := lim.TopUsage(cmd.Context(), query)
				if err != nil {
					return err
				}
				if flags.csv {
					return usageCSV(a, only(top, flags.limit))
				}
				return kit.PrintPage(a, top, "", func() {
					printTop(a, top, &query)
					if query.Limit == "" && !slices.ContainsFunc(top, func(u weir.Usage) bool { return u.Requests > 0 }) && slices.ContainsFunc(top, Spent) {
						a.Err.Println("the store does not count requests, so this list is not ranked: rank it by a limit with --limit")
					}
				})
			})
		},
	}
	cmd.Flags().StringVar(&query.Resource, "resource", "", "show only the resource with this `NAME`")
	cmd.Flags().IntVar(&query.Max, "max", 10, "show at most `N` rows")
	return flags.add(cmd, "`KEY`: entity, parent, resource or limit (default entity)")
}

// Spent reports whether anything was debited.
func Spent(u weir.Usage) bool {
	return slices.ContainsFunc(u.Limits, func(l weir.LimitUsage) bool { return l.Debited > 0 })
}

func printTop(a *kit.Run, top []weir.Usage, q *weir.TopQuery) {
	t := term.Table{Header: []string{"#", "ENTITY", "REQUESTS", "REFUSED", "LIMIT", "CONSUMED", "DEBITED", "RETURNED"}, Right: []int{0, 2, 3, 5, 6, 7}, Cut: []int{1, 4}}
	switch q.By {
	case weir.ByResource:
		t.Header[1] = "RESOURCE"
	case weir.ByParent:
		t.Header = append(t.Header, "OWN")
		t.Right = append(t.Right, 8)
	case weir.ByLimit:
		t.Header[1] = "NAMESPACE"
	default:
	}
	for n, u := range top {
		limits := u.Limits
		if q.Limit != "" {
			limits = nil
			for _, o := range only([]weir.Usage{u}, q.Limit) {
				limits = o.Limits
			}
		}
		name := cmp.Or(u.Entity, u.Resource)
		if q.By == weir.ByLimit {
			name = a.Namespace
		}
		for _, l := range limits {
			row := []string{digits(int64(n + 1)), name, digits(u.Requests), digits(u.Refused), l.Limit, digits(l.Consumed), digits(l.Debited), digits(l.Returned)}
			if q.By == weir.ByParent {
				row = append(row, digits(ownOf(u.Own, l.Limit)))
			}
			t.Row(row...)
		}
	}
	a.Out.Table(&t)
}

func ownOf(own *weir.OwnUsage, limit string) int64 {
	if own != nil {
		for _, l := range own.Limits {
			if l.Limit == limit {
				return l.Consumed
			}
		}
	}
	return 0
}
