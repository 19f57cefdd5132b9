package admin

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
)

// doctorFlags describe a table to create first.
type doctorFlags struct {
	Create  bool              `json:"create_table"`
	PITR    bool              `json:"pitr"`
	Protect bool              `json:"deletion_protection"`
	Tags    map[string]string `json:"tag"`
}

// DoctorCmd returns the command that checks a store.
func DoctorCmd(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "doctor", Short: "Check whether the store can be used, and say what to do if it cannot",
		Long: `Checks the store without changing anything. For a DynamoDB table it checks the
credentials and region, the table with its keys, indexes and expiry, the version of its
layout, and how far this machine's clock is off. For a Redis server it checks the
connection, role, version, eviction policy and layout.

With --create-table it first creates the table, or completes an existing weir table. It
never changes a table that is not weir's.`,
		Example: `  weir doctor --store 'dynamodb://weir?region=eu-central-1'
  weir doctor --store 'dynamodb://weir?region=eu-central-1' --create-table --pitr --tag team=gateway`,
	}, func(ctx context.Context, q *doctorFlags) error { return doctor(ctx, r, q) })
}

// creation returns how to create the table, or nil if it is not wanted.
func (f *doctorFlags) creation(dynamo bool) (*stores.Creation, error) {
	switch given := f.PITR || f.Protect || len(f.Tags) > 0; {
	case !dynamo && (given || f.Create):
		return nil, kit.Usagef("--create-table, --pitr, --deletion-protection and --tag are only for a dynamodb: store")
	case !f.Create && given:
		return nil, kit.Usagef("--pitr, --deletion-protection and --tag need --create-table")
	case !f.Create:
		return nil, nil //nolint:nilnil // it is not wanted
	}
	return &stores.Creation{Tags: f.Tags, PITR: f.PITR, DeletionProtection: f.Protect}, nil
}

func doctor(ctx context.Context, a *kit.Run, flags *doctorFlags) error {
	if err := a.NeedStore(); err != nil {
		return err
	}
	create, err := flags.creation(strings.HasPrefix(a.Store, "dynamodb:"))
	if err != nil {
		return err
	}
	view := &kit.DoctorView{Store: a.Store}
	if view.Findings, err = stores.Inspect(ctx, a.Store, create); err != nil {
		return err
	}
	view.OK = !slices.ContainsFunc(view.Findings, func(f stores.Finding) bool { return !f.OK })
	if err := a.Print(view, func() { kit.Findings(a, view) }); err != nil {
		return err
	}
	if !view.OK {
		return kit.Quiet(kit.WithCode(errors.New("problems found"), kit.Unavailable))
	}
	return nil
}
