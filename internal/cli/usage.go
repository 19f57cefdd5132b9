package cli

import (
	"encoding/csv"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/term"
)

func (a *app) usageCmd() *cobra.Command {
	return group(&cobra.Command{
		Use:   "usage",
		Short: "Show recorded usage: what was spent and refused, by entity, resource and time",
		Long: `Usage is recorded by hour, day and month, in UTC. Consumed tokens are those debited minus
those returned. --from and --to accept 2026-11-21T13, 2026-11-21, 2026-11 or an RFC 3339
time. The range starts with the window that contains --from and ends before --to.`,
	}, a.usageListCmd(), a.usageSummaryCmd(), a.usageTopCmd())
}

// usageFlags are the flags that the usage commands share.
type usageFlags struct {
	by, window, from, to, limit string
	csv                         bool
}

func (f *usageFlags) add(cmd *cobra.Command, by string) *cobra.Command {
	if by != "" {
		cmd.Flags().StringVar(&f.by, "by", "", "group usage by "+by)
	}
	cmd.Flags().StringVar(&f.window, "window", "daily", "`TYPE` of window: hourly, daily or monthly")
	cmd.Flags().StringVar(&f.from, "from", "", "start with the window that contains `TIME` (default a day, 30 days or 12 months ago)")
	cmd.Flags().StringVar(&f.to, "to", "", "end before `TIME` (default now)")
	cmd.Flags().StringVar(&f.limit, "limit", "", "show only the limit with this `NAME`")
	cmd.Flags().BoolVar(&f.csv, "csv", false, "write comma-separated values")
	return cmd
}

// period parses the window type and the times. It sets an end, so that all pages cover the same time.
func (f *usageFlags) period() (w weir.Window, from, to time.Time, err error) {
	w = weir.Window(f.window)
	switch w {
	case weir.Hourly, weir.Daily, weir.Monthly:
	default:
		return w, from, to, usageError{fmt.Errorf("--window %q must be hourly, daily or monthly", f.window)}
	}
	if from, err = moment("from", f.from); err == nil {
		to, err = moment("to", f.to)
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
	return time.Time{}, usageError{fmt.Errorf("--%s %q is not a time such as 2026-11-21 or 2026-11-21T13", flag, text)}
}

func (a *app) usageListCmd() *cobra.Command {
	var flags usageFlags
	var page pageFlags
	var query weir.UsageQuery
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List windows, ordered by start",
		Args:  args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if query.Window, query.From, query.To, err = flags.period(); err != nil {
				return err
			}
			query.By = weir.UsageBy(flags.by)
			return a.with(existing, func(lim *weir.Limiter) error {
				found, next, err := collect(&page, func(after string, size int) ([]weir.Usage, string, error) {
					query.After, query.Max = after, size
					page, err := lim.Usage(cmd.Context(), query)
					return only(page.Windows, flags.limit), page.Next, err
				})
				if err != nil {
					return err
				}
				if flags.csv {
					return a.more(a.usageCSV(found), next)
				}
				return printPage(a, found, next, func() { a.usageTable(found) })
			})
		},
	}
	cmd.Flags().StringVar(&query.Entity, "entity", "", "show only the entity with this `ID`, or with --by parent, that parent")
	cmd.Flags().StringVar(&query.Resource, "resource", "", "show only the resource with this `NAME`")
	return page.add(flags.add(cmd, "`KEY`: entity, parent, resource, namespace or store (default entity)"))
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
		head := []string{startText(u.Window, u.Start), dash(u.Entity), dash(u.Resource), format(u.Requests), format(u.Refused)}
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

func (a *app) usageTable(windows []weir.Usage) {
	t := term.Table{Header: usageHeader, Right: []int{3, 4, 6, 7, 8, 9, 10, 11}, Cut: []int{1, 2, 5}}
	for _, row := range usageRows(windows, digits) {
		t.Row(row...)
	}
	a.out.Table(&t)
}

// usageCSV writes windows for spreadsheets, with a header.
func (a *app) usageCSV(windows []weir.Usage) error {
	w := csv.NewWriter(a.out.W)
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

// startText formats a window's start in a form that also shows the window's type.
func startText(w weir.Window, t time.Time) string {
	switch w {
	case weir.Hourly:
		return t.UTC().Format("2006-01-02T15")
	case weir.Monthly:
		return t.UTC().Format("2006-01")
	default:
		return t.UTC().Format(time.DateOnly)
	}
}
