package admin

import (
	"encoding/csv"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/cli/term"
)

func UsageCmd(a *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{
		Use:   "usage",
		Short: "Show recorded usage: what was spent and refused, by entity, resource and time",
		Long: `Usage is recorded by hour, day and month, in UTC. Consumed tokens are those debited minus
those returned. --from and --to accept 2026-11-21T13, 2026-11-21, 2026-11 or an RFC 3339
time. The range starts with the window that contains --from and ends before --to.`,
	}, usageListCmd(a), usageSummaryCmd(a), usageTopCmd(a))
}

// UsageFlags are the flags that the usage commands share.
type UsageFlags struct {
	by, Window, From, To, limit string
	csv                         bool
}

func (f *UsageFlags) add(cmd *cobra.Command, by string) *cobra.Command {
	if by != "" {
		cmd.Flags().StringVar(&f.by, "by", "", "group usage by "+by)
	}
	cmd.Flags().StringVar(&f.Window, "window", "daily", "`TYPE` of window: hourly, daily or monthly")
	cmd.Flags().StringVar(&f.From, "from", "", "start with the window that contains `TIME` (default a day, 30 days or 12 months ago)")
	cmd.Flags().StringVar(&f.To, "to", "", "end before `TIME` (default now)")
	cmd.Flags().StringVar(&f.limit, "limit", "", "show only the limit with this `NAME`")
	cmd.Flags().BoolVar(&f.csv, "csv", false, "write comma-separated values")
	return cmd
}

// Period parses the window type and the times. It sets an end, so that all pages cover the same time.
func (f *UsageFlags) Period() (w weir.Window, from, to time.Time, err error) {
	w = weir.Window(f.Window)
	switch w {
	case weir.Hourly, weir.Daily, weir.Monthly:
	default:
		return w, from, to, kit.Usagef("--window %q must be hourly, daily or monthly", f.Window)
	}
	if from, err = moment("from", f.From); err == nil {
		to, err = moment("to", f.To)
	}
	if to.IsZero() {
		to = w.Next(w.Start(time.Now()))
	}
	return w, from, to, err
}

// moment parses a time.
func moment(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02T15", time.DateOnly, "2006-01"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, kit.Usagef("--%s %q is not a time such as 2026-11-21 or 2026-11-21T13", flag, text)
}

func usageListCmd(a *kit.Run) *cobra.Command {
	var flags UsageFlags
	var page kit.PageFlags
	var query weir.UsageQuery
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List windows, ordered by start",
		Args:  kit.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if query.Window, query.From, query.To, err = flags.Period(); err != nil {
				return err
			}
			query.By = weir.UsageBy(flags.by)
			return a.With(stores.Existing, func(lim *weir.Limiter) error {
				found, next, err := kit.Collect(&page, func(after string, size int) ([]weir.Usage, string, error) {
					query.After, query.Max = after, size
					page, err := lim.Usage(cmd.Context(), query)
					return only(page.Windows, flags.limit), page.Next, err
				})
				if err != nil {
					return err
				}
				if flags.csv {
					return a.More(usageCSV(a, found), next)
				}
				return kit.PrintPage(a, found, next, func() { usageTable(a, found) })
			})
		},
	}
	cmd.Flags().StringVar(&query.Entity, "entity", "", "show only the entity with this `ID`, or with --by parent, that parent")
	cmd.Flags().StringVar(&query.Resource, "resource", "", "show only the resource with this `NAME`")
	return page.Add(flags.add(cmd, "`KEY`: entity, parent, resource, namespace or store (default entity)"))
}

// only keeps the figures of one limit in windows, and drops windows without it.
func only(windows []weir.Usage, limit string) []weir.Usage {
	if limit == "" {
		return windows
	}
	var out []weir.Usage
	for _, u := range windows {
		for _, l := range u.Limits {
			if l.Limit == limit {
				u.Limits = []weir.LimitUsage{l}
				out = append(out, u)
				break
			}
		}
	}
	return out
}

var usageHeader = []string{
	"START", "ENTITY", "RESOURCE", "REQUESTS", "REFUSED", "LIMIT", "CONSUMED", "DEBITED", "RETURNED", "PEAK/MIN", "REFUSED BY", "ADJUSTED",
}

// usageRows returns a row for each limit of each window.
func usageRows(windows []weir.Usage, format func(int64) string) (rows [][]string) {
	for _, u := range windows {
		head := []string{StartText(u.Window, u.Start), dash(u.Entity), dash(u.Resource), format(u.Requests), format(u.Refused)}
		if len(u.Limits) == 0 {
			rows = append(rows, append(head, "-", "-", "-", "-", "-", "-", "-"))
		}
		for _, l := range u.Limits {
			rows = append(rows, append(head[:len(head):len(head)], l.Limit, format(l.Consumed), format(l.Debited),
				format(l.Returned), format(l.Peak), format(l.Refused), format(l.Adjustments)))
		}
	}
	return rows
}

func usageTable(a *kit.Run, windows []weir.Usage) {
	t := term.Table{Header: usageHeader, Right: []int{3, 4, 6, 7, 8, 9, 10, 11}, Cut: []int{1, 2, 5}}
	for _, row := range usageRows(windows, digits) {
		t.Row(row...)
	}
	a.Out.Table(&t)
}

// usageCSV writes windows for spreadsheets, with a header.
func usageCSV(a *kit.Run, windows []weir.Usage) error {
	w := csv.NewWriter(a.Out.W)
	_ = w.Write([]string{
		"start", "entity", "resource", "requests", "refused", "limit", "consumed", "debited", "returned", "peak", "refused_by", "adjustments",
	})
	for _, row := range usageRows(windows, digits) {
		for i, cell := range row {
			if cell == "-" {
				row[i] = ""
			}
		}
		_ = w.Write(row) // Error returns the first error
	}
	w.Flush()
	return w.Error()
}

func digits(n int64) string { return strconv.FormatInt(n, 10) }

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// StartText formats a window's start in a form that also shows the window's type.
func StartText(w weir.Window, t time.Time) string {
	switch w {
	case weir.Hourly:
		return t.UTC().Format("2006-01-02T15")
	case weir.Monthly:
		return t.UTC().Format("2006-01")
	default:
		return t.UTC().Format(time.DateOnly)
	}
}
