package lab

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

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/lab/load"
)

// loadRun holds the flags of a run.
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
	warmed       bool // --warm-up was given
}

func loadRunCmd(a *kit.Run) *cobra.Command {
	var f loadRun
	cmd := &cobra.Command{
		Use:   "run [SCENARIO]",
		Short: "Run a load scenario and measure the answers",
		Long: `Requests decisions as a scenario describes, and measures the answers. The target is a store
used through the library (--store), or weir serve over HTTP (--http) or gRPC (--grpc).

In an open loop, calls are due at times that do not depend on the answers, and latency is
measured from the time a call was due. If the runner itself is late, it says so: its figures
then do not describe the target. In a closed loop, each user waits for an answer before the
next call.

The limits are set up in a separate namespace, load-SCENARIO-…, which is removed at the end
with everything in it; --keep leaves it in place. With --no-setup, nothing is set up or
removed, and calls go to --namespace as it is.

With --workers, each weir load worker makes an equal part of the calls, and all start at the
same time. Only the setup then goes to --store or --http.

Pass the token as WEIR_TOKEN, and the workers' token as WEIR_LOAD_RUN_WORKER_TOKEN, because
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
				return kit.Usagef("give either a SCENARIO that weir load list shows, or --file FILE")
			case f.file != "":
				name = strings.TrimSuffix(filepath.Base(f.file), filepath.Ext(f.file))
			}
			return runLoad(cmd.Context(), a, name, &f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	f.target.bind(flags)
	flags.StringVarP(&f.file, "file", "f", "", "scenario `FILE`; weir load list SCENARIO prints an example")
	flags.DurationVar(&f.length, "for", 0,
		"`DURATION` of the run without the warm-up; a shape is stretched to it (default from the scenario)")
	flags.DurationVar(&f.warm, "warm-up", 0, "`DURATION` of calls before measuring starts (default from the scenario)")
	flags.StringVar(&f.loop, "loop", "", "`TYPE` of loop: open or closed (default from the scenario)")
	flags.Float64Var(&f.set.Rate, "rate", 0, "`NUMBER` of calls per second in an open loop (default from the scenario)")
	flags.IntVar(&f.set.Users, "users", 0, "`NUMBER` of users (default from the scenario)")
	flags.StringVar(&f.wait, "wait", "",
		"`DURATION` between a user's calls, such as 0.5s..2s (default from the scenario)")
	flags.StringVar(&f.set.Shape, "shape", "", "`NAME` of one of the scenario's shapes, or none")
	flags.Uint64Var(&f.set.Seed, "seed", 1, "`NUMBER` that seeds all random choices")
	flags.IntVar(&f.set.Callers, "callers", 4096, "maximum `NUMBER` of concurrent calls in an open loop")
	flags.StringVar(&f.save, "save", "", "write the report as JSON to `FILE`, for weir load report")
	flags.StringVar(&f.page, "html", "", "write an HTML page with charts to `FILE`")
	flags.BoolVar(&f.noSetup, "no-setup", false, "use --namespace and the limits it already has")
	flags.BoolVar(&f.keep, "keep", false, "keep the namespace that was set up")
	flags.StringSliceVar(&f.workers, "workers", nil, "addresses of the weir load workers, as `HOST:PORT,…`")
	flags.StringVar(&f.workerToken, "worker-token", "", "`TOKEN` of the workers")
	return cmd
}

// settings returns what the flags override in the scenario.
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
		return set, errors.New("--workers needs --worker-token")
	}
	return set, nil
}

func runLoad(ctx context.Context, a *kit.Run, name string, f *loadRun) (err error) {
	sc, err := loadFile(name, f.file)
	if err != nil {
		return err
	}
	set, err := f.settings()
	if err != nil {
		return kit.Usage(err)
	}
	p, err := load.NewPlan(sc, set)
	if err != nil {
		return kit.Usage(err)
	}
	namespace := a.Namespace
	source := &loadSource{name: "the workers' targets"}
	if !f.noSetup || len(f.workers) == 0 {
		if source, err = f.target.open(a, !f.noSetup); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, source.close()) }()
	}
	if !f.noSetup {
		namespace = load.Scratch(sc.Name)
		if !f.keep {
			defer func() { err = errors.Join(err, source.tearDown(context.WithoutCancel(kit.As(ctx)), namespace)) }()
		}
		if err := source.setUp(kit.As(ctx), p, namespace); err != nil {
			return err
		}
	}
	view := newLoadView(a, p, source.name)
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
	if err := a.Print(r, func() { printLoad(a, r) }); err != nil {
		return err
	}
	if r.Calls > 0 && r.Failed >= r.Calls {
		return fmt.Errorf("load %s: every call failed", name)
	}
	return nil
}

// runHere runs a whole plan in this process.
func runHere(
	ctx context.Context, p *load.Plan, source *loadSource, namespace string, tell func(*load.Tally),
) (_ *load.Tally, err error) {
	target, end, err := source.target(namespace)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	twoProcessors()
	return load.Run(ctx, p, target, load.Options{
		Precise: true, Measures: source.measures(), Progress: tell,
		Every: time.Second,
	})
}

// twoProcessors raises GOMAXPROCS to 2, so that the Go runtime can poll the network while the runner watches the clock.
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
