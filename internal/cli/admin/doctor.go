package admin

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
)

type doctorFlags struct {
	create, pitr, protect bool
	tags                  []string
}

func DoctorCmd(a *kit.Run) *cobra.Command {
	var flags doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether the store can be used, and say what to do if it cannot",
		Long: `Checks the store without changing anything. For a DynamoDB table it checks the
credentials and region, the table with its keys, indexes and expiry, the version of its
layout, and how far this machine's clock is off. For a Redis server it checks the
connection, role, version, eviction policy and layout.

With --create-table it first creates the table, or completes an existing weir table. It
never changes a table that is not weir's.`,
		Example: `  weir doctor --store 'dynamodb://weir?region=eu-central-1'
  weir doctor --store 'dynamodb://weir?region=eu-central-1' --create-table --pitr --tag team=gateway`,
		Args: kit.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return doctor(cmd.Context(), a, flags) },
	}
	cmd.Flags().BoolVar(&flags.create, "create-table", false, "first create the table, or complete it")
	cmd.Flags().BoolVar(&flags.pitr, "pitr", false, "with --create-table: turn on point-in-time recovery")
	cmd.Flags().BoolVar(&flags.protect, "deletion-protection", false, "with --create-table: turn on deletion protection")
	cmd.Flags().StringArrayVar(&flags.tags, "tag", nil, "with --create-table: add the tag `KEY=VALUE`; repeatable")
	return cmd
}

// creation returns how to create the table, or nil if it is not wanted.
func (f *doctorFlags) creation(dynamo bool) (*stores.Creation, error) {
	switch given := f.pitr || f.protect || len(f.tags) > 0; {
	case !dynamo && (given || f.create):
		return nil, kit.Usagef("--create-table, --pitr, --deletion-protection and --tag are only for a dynamodb: store")
	case !f.create && given:
		return nil, kit.Usagef("--pitr, --deletion-protection and --tag need --create-table")
	case !f.create:
		return nil, nil //nolint:nilnil // it is not wanted
	}
	tags := make(map[string]string)
	for _, tag := range f.tags {
		key, value, ok := strings.Cut(tag, "=")
		if !ok || key == "" {
			return nil, kit.Usagef("--tag %q is not KEY=VALUE", tag)
		}
		tags[key] = value
	}
	return &stores.Creation{Tags: tags, PITR: f.pitr, DeletionProtection: f.protect}, nil
}

func doctor(ctx context.Context, a *kit.Run, flags doctorFlags) error {
	create, err := flags.creation(strings.HasPrefix(a.Store, "dynamodb:"))
	if err != nil {
		return err
	}
	view := &kit.DoctorView{Store: a.Store}
	if view.Findings, err = stores.Inspect(ctx, a.Store, create); err != nil {
		return err
	}
	view.OK = true
	for _, f := range view.Findings {
		view.OK = view.OK && f.OK
	}
	if err := a.Print(view, func() { a.Findings(view) }); err != nil {
		return err
	}
	if !view.OK {
		return kit.Quiet(kit.WithCode(errors.New("problems found"), kit.Unavailable))
	}
	return nil
}
