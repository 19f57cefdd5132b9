package aws

import (
	"context"
	"errors"
	"sync"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/aws/deploy"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
)

type regionErrorView struct {
	Region string `json:"region"`
	Error  string `json:"error"`
}

type stacksView struct {
	Stacks []stackView       `json:"stacks"`
	Errors []regionErrorView `json:"errors"`
}

// listFlags select regions.
type listFlags struct {
	Regions []string `json:"region"`
	account
}

var stacks = kit.Columns([]kit.Column[stackView]{
	{Name: "name"}, {Name: "region"}, {Name: "state"}, {Name: "version"}, {Name: "created"}, {Name: "updated"},
})

// listCmd returns the command weir aws list.
func listCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{
		Use: "list", Short: "List weir's stacks on AWS",
		Long: `Lists the stacks that weir has deployed, in the environment's region or in every region given
with --region, in parallel. A region that cannot be read is reported; the others are still
listed. The command changes nothing.`,
		Example: `  weir aws list
  weir aws list --region eu-central-1 --region us-east-1`,
	}, func(ctx context.Context, q *listFlags) error {
		if len(q.Regions) == 0 {
			cfg, err := (&awsFlags{account: q.account}).config(ctx, a)
			if err != nil {
				return err
			}
			q.Regions = []string{cfg.Region}
		}
		view := stacksIn(ctx, a, q)
		if len(view.Errors) == len(q.Regions) {
			return errors.New("list " + view.Errors[0].Region + ": " + view.Errors[0].Error)
		}
		return a.Print(view, func() {
			stacks(a, view.Stacks, true)
			for _, e := range view.Errors {
				a.Err.Println(a.Err.Bad("weir:") + " list " + e.Region + ": " + term.Clean(e.Error))
			}
		})
	})
}

// stacksIn lists the stacks of all regions in parallel.
func stacksIn(ctx context.Context, a *kit.Run, q *listFlags) stacksView {
	type answer struct {
		stacks []deploy.Stack
		err    error
	}
	answers := make([]answer, len(q.Regions))
	var wg sync.WaitGroup
	for i, region := range q.Regions {
		wg.Go(func() {
			d, err := deployer(ctx, a, &awsFlags{region, q.account})
			if err == nil {
				answers[i].stacks, err = d.List(ctx)
			}
			answers[i].err = err
		})
	}
	wg.Wait()
	view := stacksView{Stacks: []stackView{}, Errors: []regionErrorView{}}
	for i, got := range answers {
		if got.err != nil {
			view.Errors = append(view.Errors, regionErrorView{q.Regions[i], got.err.Error()})
		}
		for j := range got.stacks {
			view.Stacks = append(view.Stacks, stackViewOf(&got.stacks[j], q.Regions[i]))
		}
	}
	return view
}
