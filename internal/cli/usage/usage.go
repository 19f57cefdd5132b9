// Package usage has the commands that show what was spent and refused.
package usage

import (
	"context"
	_ "embed"
	"encoding/csv"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/policy/record"
)

//go:embed fields.txt
var fields string

var _ = api.Describe("usage", fields)

// figures is what the usage commands show of windows.
type figures struct {
	Limit string `json:"limit"`
	CSV   bool   `json:"csv"`
}

// check refuses the name of a limit that no limit can have.
func (f *figures) check() error {
	if f.Limit == "" {
		return nil
	}
	if err := record.CheckID("--limit", f.Limit); err != nil {
		return kit.Usage(err)
	}
	return nil
}

type windows struct {
	api.UsageQuery
	figures
}

type summary struct {
	api.UsageSelection
	figures
}

type ranking struct {
	api.TopQuery
	CSV bool `json:"csv"`
}

// Cmd returns the commands that show usage.
func Cmd(r *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{
		Use:   "usage",
		Short: "Show recorded usage: what was spent and refused, by entity, resource and time",
		Long: `Usage is recorded by hour, day and month, in UTC. Consumed tokens are those debited minus
those returned. --from and --to accept 2026-11-21T13, 2026-11-21, 2026-11 or an RFC 3339
time. The range starts with the window that contains --from and ends before --to.`,
	},
		kit.Func(r, kit.Spec{
			Use: "list", Short: "List windows, ordered by start",
		}, func(ctx context.Context, q *windows) error {
			if err := q.check(); err != nil {
				return err
			}
			q.Close()
			found, next, err := kit.Pages(ctx, r, api.ListUsage, &q.UsageQuery, limited(q.Limit))
			if err != nil {
				return err
			}
			if q.CSV {
				return kit.More(r, writeCSV(r, found), len(found), next)
			}
			return kit.PrintPage(r, found, next, func() { printTable(r, found) })
		}),
		kit.Func(r, kit.Spec{Use: "summary", Short: "Sum up usage, with a chart on a terminal"}, summarize(r)),
		kit.Func(
			r, kit.Spec{Use: "top", Short: "Rank by what was spent most, in requests or in tokens of a limit"},
			top(r),
		))
}

// limited returns a function that calls only, or nil if all limits are shown.
func limited(limit string) func([]admin.Usage) []admin.Usage {
	if limit == "" {
		return nil
	}
	return func(windows []admin.Usage) []admin.Usage { return only(windows, limit) }
}

// only keeps the figures of one limit in windows, and drops windows without it.
func only(windows []admin.Usage, limit string) []admin.Usage {
	if limit == "" {
		return windows
	}
	var out []admin.Usage
	for _, u := range windows {
		for _, l := range u.Limits {
			if l.Limit == limit {
				u.Limits = []admin.LimitUsage{l}
				out = append(out, u)
				break
			}
		}
	}
	return out
}

var header = []string{
	"START", "ENTITY", "RESOURCE", "REQUESTS", "REFUSED", "LIMIT", "CONSUMED", "DEBITED", "RETURNED", "PEAK/MIN",
	"REFUSED BY", "ADJUSTED",
}

// rowsOf returns a row for each limit of each window.
func rowsOf(windows []admin.Usage, format func(int64) string) (rows [][]string) {
	for _, u := range windows {
		head := []string{
			startText(u.Window, u.Start), kit.OrDash(u.Entity), kit.OrDash(u.Resource), format(u.Requests),
			format(u.Refused),
		}
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

func printTable(a *kit.Run, windows []admin.Usage) {
	t := term.Table{Header: header, Right: []int{3, 4, 6, 7, 8, 9, 10, 11}, Cut: []int{1, 2, 5}}
	for _, row := range rowsOf(windows, digits) {
		t.Row(row...)
	}
	a.Out.Table(&t)
}

// writeCSV writes windows for spreadsheets, with a header.
func writeCSV(a *kit.Run, windows []admin.Usage) error {
	w := csv.NewWriter(a.Out.W)
	_ = w.Write([]string{
		"start", "entity", "resource", "requests", "refused", "limit", "consumed", "debited", "returned", "peak",
		"refused_by", "adjustments",
	})
	for _, row := range rowsOf(windows, digits) {
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

// startText formats a window's start in a form that also shows the window's type.
func startText(w admin.Window, t time.Time) string {
	switch w {
	case admin.Hourly:
		return t.UTC().Format("2006-01-02T15")
	case admin.Monthly:
		return t.UTC().Format("2006-01")
	default:
		return t.UTC().Format(time.DateOnly)
	}
}
