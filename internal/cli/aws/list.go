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

// ListCmd returns the command weir list.
func ListCmd(a *kit.Run) *cobra.Command {
	var flags awsFlags
	var regions []string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List weir's stacks on AWS",
		Long: `Lists the stacks that weir has deployed, in the environment's region or in every region given
with --region, in parallel. A region that cannot be read is reported; the others are still
listed. The command changes nothing.`,
		Example: `  weir list
  weir list --region eu-central-1 --region us-east-1`,
		Args: kit.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(regions) == 0 {
				cfg, err := flags.config(cmd.Context())
				if err != nil {
					return err
				}
				regions = []string{cfg.Region}
			}
			view := stacksIn(cmd.Context(), a, flags, regions)
			if len(view.Errors) == len(regions) {
				return errors.New("list " + view.Errors[0].Region + ": " + view.Errors[0].Error)
			}
			return a.Print(view, func() {
				t := &term.Table{Header: []string{"NAME", "REGION", "STATE", "VERSION", "CREATED", "UPDATED"}}
				for _, s := range view.Stacks {
					t.Rows = append(t.Rows, []string{s.Name, s.Region, s.State, s.Version, s.Created, s.Updated})
				}
				a.Out.Table(t)
				for _, e := range view.Errors {
					a.Err.Println(a.Err.Bad("weir:") + " list " + e.Region + ": " + term.Clean(e.Error))
				}
			})
		},
	}
	cmd.Flags().StringArrayVar(&regions, "region", nil, "AWS `REGION`; repeatable")
	flags.addAccount(cmd.Flags())
	return cmd
}

// stacksIn lists the stacks of all regions in parallel.
func stacksIn(ctx context.Context, a *kit.Run, flags awsFlags, regions []string) stacksView {
	type answer struct {
		stacks []deploy.Stack
		err    error
	}
	answers := make([]answer, len(regions))
	var wg sync.WaitGroup
	for i, region := range regions {
		wg.Go(func() {
			here := flags
			here.region = region
			d, err := deployer(ctx, a, &here)
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
			view.Errors = append(view.Errors, regionErrorView{regions[i], got.err.Error()})
		}
		for j := range got.stacks {
			view.Stacks = append(view.Stacks, stackViewOf(&got.stacks[j], regions[i]))
		}
	}
	return view
}
