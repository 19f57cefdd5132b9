// Package governor has the commands for budgets of DynamoDB capacity: a proxy that keeps one, and what shows a fleet's.
package governor

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/governor"
	"github.com/weirlimits/weir/governor/s3coord"
	"github.com/weirlimits/weir/governor/storecoord"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
)

//go:embed fields.txt
var fields string

var _ = api.Describe("governor", fields)

// Cmd returns the command weir governor.
func Cmd(a *kit.Run) *cobra.Command {
	return kit.Group(
		&cobra.Command{Use: "governor", Short: "Keep DynamoDB clients within a budget of capacity"},
		governorProxyCmd(a), governorWatchCmd(a),
	)
}

// governorWatch selects a fleet.
type governorWatch struct {
	Fleet string        `json:"fleet" arg:"FLEET"`
	Once  bool          `json:"once"`
	Every time.Duration `json:"every" range:"100ms.." default:"2s"`
}

func governorWatchCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{
		Use: "watch FLEET", Short: "Show the shares of a fleet's workers, live",
		Long: `Shows, until interrupted, how much of a fleet's budgets its workers want, use and may use, in
capacity units per second. FLEET is s3://BUCKET/PREFIX, or the name of a fleet whose records
are in the store. The command writes nothing.

A worker is silent if its report has not changed for a lease: it is dead or cut off, and its
safe share stays reserved for it.`,
		Example: `  weir governor watch s3://my-bucket/jobs/nightly
  weir --store dynamodb:limits governor watch nightly --once -o json`,
	}, func(ctx context.Context, q *governorWatch) error {
		c, done, err := coordinator(ctx, a, q.Fleet)
		if err != nil {
			return err
		}
		w := &watch{Run: a, coordinator: c, seen: make(map[string]lastReport)}
		err = w.run(ctx, q.Every, q.Once)
		if closed := done(); err == nil {
			err = closed
		}
		return err
	})
}

// coordinator opens the place where a fleet keeps its records.
func coordinator(ctx context.Context, a *kit.Run, name string) (governor.Coordinator, func() error, error) {
	if rest, ok := strings.CutPrefix(name, "s3://"); ok {
		bucket, prefix, _ := strings.Cut(rest, "/")
		cfg, err := awsconfig.LoadDefaultConfig(ctx)
		if err != nil {
			return nil, nil, err
		}
		c, err := s3coord.New(s3.NewFromConfig(cfg), bucket, prefix)
		if err != nil {
			err = kit.Usage(err)
		}
		return c, func() error { return nil }, err
	}
	st, err := a.OpenStore(stores.Existing)
	if err != nil {
		return nil, nil, err
	}
	c, err := storecoord.New(st, name)
	if err != nil {
		_ = st.Close()
		return nil, nil, kit.Usage(err)
	}
	return c, st.Close, nil
}

// watch polls a fleet.
type watch struct {
	*kit.Run
	coordinator governor.Coordinator
	seen        map[string]lastReport
}

// lastReport records when a worker's report was first seen, by this process's clock.
type lastReport struct {
	seq   uint64
	since time.Time
}

// shareView is a worker's part of a budget, in units per second, as printed. A Want of -1 means as much as there is.
type shareView struct {
	Worker string      `json:"worker"`
	Budget string      `json:"budget"`
	Share  float64     `json:"share"`
	Safe   float64     `json:"safe"`
	Used   float64     `json:"used"`
	Want   float64     `json:"want"`
	Leads  bool        `json:"leads"`
	Silent api.Seconds `json:"silent"`
}

// budgetView is a budget with its workers.
type budgetView struct {
	Budget  string      `json:"budget"`
	Limit   float64     `json:"limit"`
	Shared  float64     `json:"shared"`
	Used    float64     `json:"used"`
	Workers []shareView `json:"workers"`
}

func (w *watch) run(ctx context.Context, every time.Duration, once bool) error {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		if err := w.show(ctx, !once && w.Out.Terminal); err != nil || once {
			return err
		}
		select {
		case <-ctx.Done():
			return nil // an interrupt is the normal end of a watch
		case <-t.C:
		}
	}
}

func (w *watch) show(ctx context.Context, live bool) error {
	ctx, cancel := context.WithTimeout(ctx, kit.Patience)
	defer cancel()
	view, err := governor.Inspect(ctx, w.coordinator)
	if err != nil {
		return err
	}
	budgets := w.budgets(view, time.Now())
	return w.Print(budgets, func() {
		if live {
			w.Out.Printf("\x1b[H\x1b[2J")
		}
		w.tables(view, budgets)
	})
}

func (w *watch) budgets(view governor.FleetView, now time.Time) []budgetView {
	all := []budgetView{}
	place := make(map[string]int)
	for _, one := range view.Workers {
		i, ok := place[one.Budget]
		if !ok {
			i = len(all)
			place[one.Budget] = i
			all = append(all, budgetView{Budget: one.Budget, Limit: unit(one.Limit)})
		}
		s, ok := w.seen[one.Worker]
		if !ok || s.seq != one.Seq {
			s = lastReport{one.Seq, now}
			w.seen[one.Worker] = s
		}
		v := shareView{
			Worker: one.Worker, Budget: one.Budget, Share: unit(one.Share), Safe: unit(one.Safe), Used: unit(one.Used),
			Want:  unit(one.Want),
			Leads: one.Worker == view.Leader,
		}
		if one.Want < 0 {
			v.Want = -1
		}
		if silent := now.Sub(s.since); view.Lease > 0 && silent >= view.Lease {
			v.Silent = api.Seconds(silent)
		}
		b := &all[i]
		b.Shared += v.Share
		b.Used += v.Used
		b.Workers = append(b.Workers, v)
	}
	return all
}

func (w *watch) tables(view governor.FleetView, budgets []budgetView) {
	if len(budgets) == 0 {
		w.Out.Println("no workers")
		return
	}
	w.Out.Println(fmt.Sprintf("epoch %d, led by %s", view.Epoch, cmp.Or(view.Leader, "no worker")))
	for _, b := range budgets {
		w.Out.Println()
		w.Out.Println(fmt.Sprintf("%s: limit %g/s, shared %.4g, used %.4g", b.Budget, b.Limit, b.Shared, b.Used))
		shares(w.Run, b.Workers, true)
	}
}

var shares = kit.Columns([]kit.Column[shareView]{
	{Name: "worker", Cut: true},
	{Name: "share", Of: func(v *shareView) any { return figure(v.Share) }},
	{Name: "used", Of: func(v *shareView) any { return figure(v.Used) }},
	{Name: "want", Of: func(v *shareView) any {
		if v.Want < 0 {
			return kit.Number("all")
		}
		return figure(v.Want)
	}},
	{Name: "safe", Of: func(v *shareView) any { return figure(v.Safe) }},
	{Name: "state", Of: func(v *shareView) any {
		switch {
		case v.Silent > 0:
			return "silent for " + kit.Span(time.Duration(v.Silent))
		case v.Leads:
			return "leads"
		}
		return ""
	}},
})

func figure(n float64) kit.Number { return kit.Number(fmt.Sprintf("%.4g", n)) }

func unit(thousandths int64) float64 { return float64(thousandths) / 1000 }
