// Package cli puts the weir command together. Each family of commands is a package below it.
package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/cli/admin"
	"github.com/weirlimits/weir/internal/cli/audit"
	"github.com/weirlimits/weir/internal/cli/aws"
	"github.com/weirlimits/weir/internal/cli/balance"
	"github.com/weirlimits/weir/internal/cli/cell"
	"github.com/weirlimits/weir/internal/cli/governor"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/lab"
	"github.com/weirlimits/weir/internal/cli/limits"
	"github.com/weirlimits/weir/internal/cli/migrate"
	"github.com/weirlimits/weir/internal/cli/serve"
	"github.com/weirlimits/weir/internal/cli/usage"
)

// Main runs the command and returns its exit code. The first interrupt ends it cleanly, the second at once.
func Main(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	a := kit.New(in, out, errs, os.Environ())
	root := root(a)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	return a.Execute(ctx, root)
}

const long = `weir limits how much an entity may spend on a resource, and never admits more.

Every flag can also be set in the environment or in weir.yaml, which is read from the
current folder or else from the user's configuration folder. For a flag below, such as
--store, the variable is WEIR_STORE and the key is store. For a flag of a command, such
as serve --http, the variable is WEIR_SERVE_HTTP and the key is http under serve. Flags
override the environment, and the environment overrides the file.

With --server, such as http://127.0.0.1:8080, a command works through a server instead of on
a store; the server's token, if it needs one, is read from WEIR_TOKEN. Of --store and
--server, the one that overrides the other counts.

Stores:
  disk:PATH      a folder with a file for limits and one for usage, created by the first write;
                 options: disk:PATH?mode=ahead|always|interval|off&interval=1s
  dynamodb://TABLE?region=R
                 a DynamoDB table, for any number of processes; create it with
                 weir doctor --create-table; more options: endpoint, profile, prefetch,
                 max-shards, …
  redis://HOST:PORT/DB
                 Redis 7 or later, or Valkey, for any number of processes; also rediss:,
                 unix:, redis+sentinel:, redis+cluster:, and the options prefix, margin and
                 volatile
  memory:        the memory of this process, for experiments

Exit codes:
  0 done   1 failed   2 wrong usage   3 refused by a limit   4 not found
  5 store unavailable`

// Command returns the command, for the manual pages.
func Command() *cobra.Command { return root(kit.New(nil, io.Discard, io.Discard, nil)) }

func root(a *kit.Run) *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "Distributed rate limits that never admit more than they allow",
		Long:  long,
		Example: `  weir system set -l rpm:100/min
  weir acquire key-alice gpt-4 rpm=1
  weir serve --http 127.0.0.1:8080
  weir replay access.log.gz --limit rpm:10/min --entity client`,
	}
	a.Prepare(root)
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Decide:"},
		&cobra.Group{ID: "set", Title: "Configure:"},
		&cobra.Group{ID: "look", Title: "Inspect and test:"},
	)
	inGroup(
		root, "run", serve.ServeCmd(a), serve.AggregateCmd(a), admin.AcquireCmd(a), admin.AdjustCmd(a),
		admin.AvailableCmd(a), admin.WaitCmd(a),
	)
	inGroup(
		root, "set", limits.LimitsCmd(a), admin.EntityCmd(a), admin.PlanCmd(a), admin.ResourceCmd(a),
		admin.GroupCmd(a), admin.SystemCmd(a), admin.NamespaceCmd(a), cell.Cmd(a), balance.Cmd(a),
		serve.TokenCmd(a), migrate.Cmd(a),
	)
	inGroup(
		root, "look", admin.ExplainCmd(a), admin.WatchCmd(a), usage.Cmd(a), admin.BucketCmd(a), audit.Cmd(a),
		lab.ReplayCmd(a), lab.SimulateCmd(a), lab.LoadCmd(a), lab.CostCmd(a), lab.TortureCmd(a), admin.DoctorCmd(a),
		admin.BackupCmd(a), admin.RestoreCmd(a),
		governor.Cmd(a), serve.EnvoyCmd(a), aws.Cmd(a),
	)
	root.AddCommand(readyCmd(a), versionCmd(a), lab.TortureWorkerCmd(a))
	return withVersion(a, kit.Group(root))
}

func inGroup(parent *cobra.Command, id string, cmds ...*cobra.Command) {
	for _, c := range cmds {
		c.GroupID = id
		parent.AddCommand(c)
	}
}
