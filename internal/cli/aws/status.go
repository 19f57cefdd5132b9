package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/aws/deploy"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
)

type stackView struct {
	Name    string `json:"name"`
	Region  string `json:"region"`
	State   string `json:"state"`
	Version string `json:"version"`
	Created string `json:"created"`
	Updated string `json:"updated,omitempty"`
}

func stackViewOf(st *deploy.Stack, region string) stackView {
	return stackView{st.Name, region, st.State, st.Version, kit.Instant(st.Created), kit.Instant(st.Updated)}
}

type tableStatusView struct {
	*deploy.TableStatus

	Schema uint64 `json:"schema"`
	Client uint64 `json:"least_client_schema"`
	Target uint64 `json:"migrating_to,omitempty"`
}

type functionStatusView struct {
	Name        string      `json:"name"`
	State       string      `json:"state"`
	Update      string      `json:"last_update,omitempty"`
	Source      string      `json:"stream,omitempty"`
	LastResult  string      `json:"stream_result,omitempty"`
	Invocations float64     `json:"invocations_last_hour"`
	Errors      float64     `json:"errors_last_hour"`
	Throttles   float64     `json:"throttles_last_hour"`
	Behind      api.Seconds `json:"behind"`
	Longest     api.Seconds `json:"longest"`
}

type stackStatusView struct {
	stackView

	Weir      string               `json:"this_weir"`
	Schema    int                  `json:"this_schema"`
	Drift     []string             `json:"template_differs"`
	Budget    float64              `json:"monthly_budget,omitempty"` // USD
	Table     *tableStatusView     `json:"table,omitempty"`
	Functions []functionStatusView `json:"functions"`
	Problems  []string             `json:"problems"`
	OK        bool                 `json:"ok"`
}

// statusFlags select a stack.
type statusFlags struct {
	stackName
	awsFlags
}

// statusCmd returns the command weir aws status.
func statusCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{
		Use: "status [NAME]", Short: "Show the state of a stack on AWS",
		Long: `Shows the state of the stack NAME (weir by default): its version and this weir's, how its
template differs from the one this weir would deploy, its budget, and the state of its table, its
functions and their stream, with figures for the last hour. It changes nothing.

The exit code is 1 if something needs attention, and 4 if the stack does not exist.`,
		Example: `  weir aws status limits --region eu-central-1
  weir aws status limits -o json`,
	}, func(ctx context.Context, q *statusFlags) error {
		d, err := deployer(ctx, a, &q.awsFlags)
		if err != nil {
			return err
		}
		cfg, err := q.config(ctx, a)
		if err != nil {
			return err
		}
		s, err := d.Status(ctx, q.stack())
		if err != nil {
			return stackError(err)
		}
		view := stackStatusViewOf(s, cfg.Region)
		if err := a.Print(view, func() { status(a, &view) }); err != nil {
			return err
		}
		if !view.OK {
			return kit.Quiet(errors.New("problems found"))
		}
		return nil
	})
}

func stackStatusViewOf(s *deploy.Status, region string) stackStatusView {
	v := stackStatusView{
		stackView: stackViewOf(&s.Stack, region), Weir: stackVersion(), Schema: deploy.SchemaVersion,
		Drift: append([]string{}, s.Drift...), Functions: []functionStatusView{},
		Problems: append([]string{}, s.Problems...), OK: len(s.Problems) == 0,
	}
	v.Budget, _ = strconv.ParseFloat(s.Stack.Values["MonthlyBudget"], 64) // none in older stacks
	if s.Table != nil {
		v.Table = &tableStatusView{s.Table, s.Schema.Version, s.Schema.Client, s.Schema.Target}
	}
	for i := range s.Functions {
		f := &s.Functions[i]
		v.Functions = append(v.Functions, functionStatusView{
			f.Name, f.State, f.Update, f.Source, f.LastResult, f.Invocations, f.Errors, f.Throttles,
			api.Seconds(f.Behind), api.Seconds(f.LongestDuration),
		})
	}
	return v
}

func status(a *kit.Run, v *stackStatusView) {
	t := &term.Table{Header: []string{"WHAT", "FOUND"}}
	add := func(what, text string) { t.Rows = append(t.Rows, []string{what, text}) }
	add("stack", fmt.Sprintf("%s in %s: %s", v.Name, v.Region, v.State))
	add("version", fmt.Sprintf("%s, this weir %s", v.Version, v.Weir))
	for _, line := range v.Drift {
		add("template", line)
	}
	if len(v.Drift) > 0 {
		add("", "to update it, run weir aws upgrade "+v.Name)
	} else {
		add("template", "same as this weir's")
	}
	if v.Budget > 0 {
		add("budget", fmt.Sprintf("%g USD a month", v.Budget))
	}
	if tv := v.Table; tv != nil {
		add(
			"table",
			fmt.Sprintf(
				"%s: %s, %s items, %s bytes", tv.Name, tv.State, figure(a, float64(tv.Items)),
				figure(a, float64(tv.Bytes)),
			),
		)
		schema := fmt.Sprintf("version %d for clients from %d, this weir %d", tv.Schema, tv.Client, v.Schema)
		if tv.Target != 0 {
			schema += fmt.Sprintf(", migrating to %d", tv.Target)
		}
		add("schema", schema)
		add(
			"last hour",
			fmt.Sprintf(
				"%s units read, %s written, %s throttled", figure(a, tv.Read), figure(a, tv.Write),
				figure(a, tv.ReadsThrottled+tv.WritesThrottled),
			),
		)
	}
	for i := range v.Functions {
		f := &v.Functions[i]
		add("function", f.Name+": "+strings.Join(nonEmpty(f.State, f.Update, f.Source), ", "))
		text := fmt.Sprintf(
			"%s invocations, %s failed, %s throttled", figure(a, f.Invocations), figure(a, f.Errors),
			figure(a, f.Throttles),
		)
		if f.Source != "" && f.Behind >= 0 {
			text += ", up to " + kit.Span(time.Duration(f.Behind)) + " behind"
		}
		add("last hour", text)
	}
	for _, p := range v.Problems {
		add(a.Out.Bad("problem"), p)
	}
	a.Out.Table(t)
}

// figure formats a number, or ? if it is negative and thus unknown.
func figure(a *kit.Run, n float64) string {
	if n < 0 {
		return "?"
	}
	return a.Out.Count(int64(n))
}

func nonEmpty(all ...string) []string {
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}
