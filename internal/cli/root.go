// Package cli implements the weir command, with one file for each command or group of commands.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/term"
	"github.com/weirlimits/weir/store"
)

// app is one run of the command.
type app struct {
	in       io.Reader
	out, err *term.Screen
	env      []string

	configFile, store, namespace, output string

	timeout  time.Duration // of each store call
	within   time.Duration // of each decision; 0 means the limiter's default
	observer *weir.Observer

	onUnavailable weir.Unavailable // for the limiter; "" means its default
	instances     func() int
	shares        func(store.Store) (weir.Shares, error) // nil if the limits are not shared
	opened        store.Store                            // the limiter's store, set by open
	lastGood      func([]store.Key) (store.Got, bool)    // see weir.Config
	late          func(why error) store.Store            // returns a stand-in for a store that does not answer; nil for none

	// started is set once arguments, flags and configuration are valid. Any error before that is wrong usage.
	started bool
}

// patience is how long an interactive command waits for the store.
const patience = 10 * time.Second

// Main runs the command and returns its exit code. The first interrupt ends it cleanly, the second at once.
func Main(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	env := os.Environ()
	a := &app{in: in, out: term.New(out, env), err: term.New(errs, env), env: env, timeout: patience}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return done
	}
	if !a.started {
		err = usageError{err}
	}
	return a.report(ctx, err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "Distributed rate limits that never admit more than they allow",
		Long: `weir limits how much an entity may spend on a resource, and never admits more.

Every flag can also be set in the environment or in weir.yaml, which is read from the
current folder or else from the user's configuration folder. For a flag below, such as
--store, the variable is WEIR_STORE and the key is store. For a flag of a command, such
as serve --http, the variable is WEIR_SERVE_HTTP and the key is http under serve. Flags
override the environment, and the environment overrides the file.

Stores:
  disk:PATH      a folder with one file, created by the first write;
                 options: disk:PATH?mode=ahead|always|interval|off&interval=1s
  dynamodb://TABLE?region=R
                 a DynamoDB table, for any number of processes; create it with
                 weir doctor --create-table; more options: endpoint, profile, prefetch,
                 max-shards, …
  redis://HOST:PORT/DB
                 Redis 7 or later, or Valkey, for any number of processes; also rediss:,
                 unix:, redis+sentinel:, redis+cluster:, and the option prefix
  memory:        the memory of this process, for experiments

Exit codes:
  0 done   1 failed   2 wrong usage   3 refused by a limit   4 not found
  5 store unavailable`,
		Example: `  weir system set -l rpm:100/min
  weir acquire key-alice gpt-4 rpm=1
  weir serve --http 127.0.0.1:8080
  weir replay access.log.gz --limit rpm:10/min --entity client`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.configure(cmd); err != nil {
				return err
			}
			if err := a.checkOutput(); err != nil {
				return err
			}
			if err := cmd.ValidateRequiredFlags(); err != nil {
				return err
			}
			a.started = true
			return nil
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVar(&a.configFile, "config", "", "read flags from `FILE` instead of weir.yaml")
	flags.StringVar(&a.store, "store", "disk:./weir-data", "`URL` of the store")
	flags.StringVar(&a.namespace, "namespace", weir.DefaultNamespace, "`NAME` of the namespace to work in")
	flags.StringVarP(&a.output, "output", "o", "table", "output `FORMAT`: table, json or yaml")

	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Decide:"},
		&cobra.Group{ID: "set", Title: "Configure:"},
		&cobra.Group{ID: "look", Title: "Inspect and test:"},
		&cobra.Group{ID: "aws", Title: "On AWS:"},
	)
	inGroup(root, "run", a.serveCmd(), a.aggregateCmd(), a.acquireCmd(), a.availableCmd(), a.waitCmd())
	inGroup(root, "set", a.limitsCmd(), a.entityCmd(), a.resourceCmd(), a.systemCmd(), a.namespaceCmd(), a.cellCmd(), a.tokenCmd())
	inGroup(root, "look", a.explainCmd(), a.watchCmd(), a.usageCmd(), a.bucketCmd(), a.auditCmd(), a.replayCmd(), a.simulateCmd(), a.loadCmd(), a.costCmd(), a.tortureCmd(), a.doctorCmd(), a.governorCmd(), a.envoyCmd())
	inGroup(root, "aws", a.templateCmd(), a.deployCmd(), a.statusCmd(), a.listCmd(), a.upgradeCmd(), a.destroyCmd())
	root.AddCommand(a.versionCmd(), a.tortureWorkerCmd())
	return group(root)
}

func inGroup(parent *cobra.Command, id string, cmds ...*cobra.Command) {
	for _, c := range cmds {
		c.GroupID = id
		parent.AddCommand(c)
	}
}

// group makes a command that only holds subcommands. On its own it prints its help; an unknown subcommand is wrong usage.
func group(cmd *cobra.Command, sub ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(sub...)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		err := fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return fmt.Errorf("%w: did you mean %s?", err, near[0])
		}
		return fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.SuggestionsMinimumDistance = 2
	return cmd
}

// args requires exactly the named arguments, and its errors name the one that is missing.
func args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return fmt.Errorf("%s is missing: %s", names[len(args)], cmd.UseLine())
		}
		if len(args) > len(names) {
			return fmt.Errorf("%q is one argument too many: %s", args[len(names)], cmd.UseLine())
		}
		return nil
	}
}

// as returns ctx with the user's name as the principal, under which changes are audited.
func as(ctx context.Context) context.Context {
	name := "uid " + strconv.Itoa(os.Getuid()) // a container may have no name for it
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	return weir.WithPrincipal(ctx, name)
}
