package admin

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/internal/fleet/cells"
)

// doctorFlags describe a table to create first.
type doctorFlags struct {
	Create  bool              `json:"create_table"`
	PITR    bool              `json:"pitr"`
	Protect bool              `json:"deletion_protection"`
	Tags    map[string]string `json:"tag"`
	Cell    string            `json:"cell"`
	Cells   secret.Address    `json:"cells"`
}

// registry returns the address of the cells' registry; "" for none.
func (f *doctorFlags) registry(r *kit.Run) (secret.Address, error) {
	switch {
	case (f.Cell == "") != (f.Cells == ""):
		return "", kit.Usagef(
			"--cell and --cells must be used together: the cell's name, and the store with the cells' registry")
	case f.Cell == "":
		return "", nil
	}
	if err := cells.CheckName(f.Cell); err != nil {
		return "", kit.Usage(err)
	}
	return r.StoreAt("cells", f.Cells)
}

// DoctorCmd returns the command that checks a store.
func DoctorCmd(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "doctor", Short: "Check whether the store can be used, and say what to do if it cannot",
		Long: `Checks the store without changing anything. For a DynamoDB table it checks the
credentials and region, the table with its keys, indexes and expiry, the version of its
layout, and how far this machine's clock is off. For a Redis server it checks the
connection, role, version, eviction policy, persistence and layout. It measures round trips
to both, of which a decision needs several. It shows whether usage is booked and how far its reader
is behind, which share of the limits the store has if it belongs to a cell, which records were
changed by hand since a manifest was applied, and of a table its stream and point-in-time recovery.

With --cell and --cells it also checks the cell in the registry: its state and share, its processes,
and whether all cells together admit no more than the limits.

With --create-table it first creates the table, or completes an existing weir table. It
never changes a table that is not weir's.`,
		Example: `  weir doctor --store 'dynamodb://weir?region=eu-central-1'
  weir doctor --store 'dynamodb://weir?region=eu-central-1' --create-table --pitr --tag team=gateway
  weir doctor --store redis://10.0.0.5 --cell eu-1 --cells dynamodb://weir-cells?region=eu-west-1`,
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
	at, err := a.StoreAlone()
	if err != nil {
		return err
	}
	create, err := flags.creation(strings.HasPrefix(string(at), "dynamodb:"))
	if err != nil {
		return err
	}
	registry, err := flags.registry(a)
	if err != nil {
		return err
	}
	found, err := stores.Inspect(ctx, at, create)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(found, stores.Finding.Bad) {
		found = append(found, configuration(ctx, a)...)
	}
	if registry != "" {
		found = append(found, stores.InspectCell(ctx, at, registry, flags.Cell)...)
	}
	found = append(found, stores.Finding{
		Name: "on_unavailable", OK: true,
		Detail: "weir serve answers " + string(stores.OnUnavailable(at)) + " while the store does not answer",
	}, stores.Finding{
		Name: "time zones", OK: true,
		Detail: "database " + calendar.TZData + ", by which the windows of quotas are counted",
	})
	view := &kit.DoctorView{Store: at, OK: !slices.ContainsFunc(found, stores.Finding.Bad), Findings: found}
	if err := a.Print(view, func() { kit.Findings(a, view) }); err != nil || view.OK {
		return err
	}
	return kit.Quiet(kit.WithCode(errors.New("problems found"), kit.Unavailable))
}
