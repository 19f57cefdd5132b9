package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/load"
)

// loadRun is what a run was told.
type loadRun struct {
	target loadTarget

	file, save, page string
	noSetup, keep    bool
	workers          []string
	workerToken      string

	set          load.Settings
	loop         string
	length, warm time.Duration
	wait         string
	warmed       bool // the warm-up was given
}

func (a *app) loadRunCmd() *cobra.Command {
	var f loadRun
	cmd := &cobra.Command{
		Use:   "run [SCENARIO]",
		Short: "Ask for decisions as a scenario says, and measure what comes back",
		Long: `Asks for decisions as a scenario says, and measures what comes back: a store through the
library (--store), or weir serve over HTTP (--http) or gRPC (--grpc).

In an open loop calls are due at times that do not depend on the answers, and latency counts
from when a call was due. If the runner itself is late it says so: its figures are then not
those of what it asks. In a closed loop each user waits for its answer, then asks again.

The limits are set up in a namespace of its own, load-SCENARIO-…, which is removed with all
that is in it in the end; --keep leaves it. With --no-setup nothing is set up or removed,
and --namespace is asked as it is.

With --workers each weir load worker does an equal part, all from one time on. Only the
setup goes to --store or --http then.

The token is better given as WEIR_TOKEN, and the workers' as WEIR_LOAD_RUN_WORKER_TOKEN:
others on the machine can see the command line.`,
		Example: `  weir load run stress --store memory: --for 30s
  weir load run llm-gateway --http http://127.0.0.1:8080 --rate 500 --save run.json --html run.html
  weir load run hot-key --store 'dynamodb://limits?region=eu-west-1' --workers 10.0.0.5:7070,10.0.0.6:7070`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.warmed = cmd.Flags().Changed("warm-up")
			name := strings.Join(args, "")
			switch {
			case (name == "") == (f.file == ""):
				return usageError{fmt.Errorf("give either a SCENARIO, of weir load list, or --file FILE")}
			case f.file != "":
				name = strings.TrimSuffix(filepath.Base(f.file), filepath.Ext(f.file))
			}
			return a.loadRun(cmd.Context(), name, &f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	f.target.bind(flags)
	flags.StringVarP(&f.file, "file", "f", "", "a scenario's `FILE`; weir load list SCENARIO shows what one looks like")
	flags.DurationVar(&f.length, "for", 0, "how `LONG`, without the warm-up; a shape takes so long then (the scenario's)")
	flags.DurationVar(&f.warm, "warm-up", 0, "how `LONG` to ask before anything counts (the scenario's)")
	flags.StringVar(&f.loop, "loop", "", "`WAY` in which calls are made: open or closed (the scenario's)")
	flags.Float64Var(&f.set.Rate, "rate", 0, "`NUMBER` of calls a second in an open loop (the scenario's)")
	flags.IntVar(&f.set.Users, "users", 0, "`NUMBER` of users (the scenario's)")
	flags.StringVar(&f.wait, "wait", "", "`TIME` between a user's calls, as 0.5s..2s (the scenario's)")
	flags.StringVar(&f.set.Shape, "shape", "", "`NAME` of one of the scenario's shapes, or none")
	flags.Uint64Var(&f.set.Seed, "seed", 1, "`NUMBER` from which all that is random is drawn")
	flags.IntVar(&f.set.Callers, "callers", 4096, "`NUMBER` of calls at most that may be under way at once in an open loop")
	flags.StringVar(&f.save, "save", "", "write the report as JSON to `FILE`, for weir load report")
	flags.StringVar(&f.page, "html", "", "write a page with charts to `FILE`")
	flags.BoolVar(&f.noSetup, "no-setup", false, "ask --namespace with the limits that it has")
	flags.BoolVar(&f.keep, "keep", false, "leave the namespace that was set up")
	flags.StringSliceVar(&f.workers, "workers", nil, "`HOST:PORT,…` of each weir load worker")
	flags.StringVar(&f.workerToken, "worker-token", "", "`TOKEN` of the workers")
	return cmd
}

// settings returns what the flags change in the scenario.
func (f *loadRun) settings() (load.Settings, error) {
	set := f.set
	set.Loop, set.For = load.Loop(f.loop), load.Span(f.length)
	if f.warmed {
		warm := load.Span(f.warm)
		set.WarmUp = &warm
	}
	if f.wait != "" {
		set.Wait = &load.Range{}
		if err := set.Wait.UnmarshalText([]byte(f.wait)); err != nil {
			return set, fmt.Errorf("--wait: %w", err)
		}
	}
	if set.Users < 0 || set.Rate < 0 || f.length < 0 {
		return set, errors.New("--users, --rate and --for must not be negative")
	}
	if len(f.workers) > 0 && f.workerToken == "" {
		return set, errors.New("--workers need --worker-token")
	}
	return set, nil
}

func (a *app) loadRun(ctx context.Context, name string, f *loadRun) (err error) {
	sc, err := loadFile(name, f.file)
	if err != nil {
		return err
	}
	set, err := f.settings()
	if err != nil {
		return usageError{err}
	}
	p, err := load.NewPlan(sc, set)
	if err != nil {
		return usageError{err}
	}
	namespace := a.namespace
	source := &loadSource{name: "what the workers ask"}
	if !f.noSetup || len(f.workers) == 0 {
		if source, err = f.target.open(a, !f.noSetup); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, source.close()) }()
	}
	if !f.noSetup {
		namespace = load.Scratch(sc.Name)
		if !f.keep {
			defer func() { err = errors.Join(err, source.tearDown(context.WithoutCancel(as(ctx)), namespace)) }()
		}
		if err := source.setUp(as(ctx), p, namespace); err != nil {
			return err
		}
	}
	view := a.loadView(p, source.name)
	ctx, stop := view.begin(ctx)
	started := time.Now()
	var t *load.Tally
	if len(f.workers) > 0 {
		fleet := &load.Fleet{Addresses: f.workers, Token: f.workerToken}
		if source.http != nil {
			fleet.Measures = source.http.Measures
		}
		t, err = fleet.Run(ctx, p, sc, set, namespace, view.tell)
	} else {
		t, err = runHere(ctx, p, source, namespace, view.tell)
	}
	stop()
	if err != nil {
		return fmt.Errorf("load %s: %w", name, err)
	}
	r := p.Report(t)
	r.Target, r.Started, r.Workers = source.name, started.UTC().Truncate(time.Millisecond), len(f.workers)
	if err := f.write(r); err != nil {
		return err
	}
	if err := a.print(r, func() { a.printLoad(r) }); err != nil {
		return err
	}
	if r.Calls > 0 && r.Failed >= r.Calls {
		return fmt.Errorf("load %s: every call failed", name)
	}
	return nil
}

// runHere runs all of a plan in this process.
func runHere(ctx context.Context, p *load.Plan, source *loadSource, namespace string, tell func(*load.Tally)) (_ *load.Tally, err error) {
	target, end, err := source.target(namespace)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	twoProcessors()
	return load.Run(ctx, p, target, load.Options{Precise: true, Measures: source.measures(), Progress: tell, Every: time.Second})
}

// twoProcessors has the Go runtime look after the network while the runner watches the clock.
func twoProcessors() {
	if runtime.GOMAXPROCS(0) < 2 {
		runtime.GOMAXPROCS(2)
	}
}

func (f *loadRun) write(r *load.Report) error {
	if f.save != "" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err == nil {
			err = os.WriteFile(f.save, append(text, '\n'), 0o600)
		}
		if err != nil {
			return fmt.Errorf("save the report: %w", err)
		}
	}
	return writePage(f.page, r, nil)
}
