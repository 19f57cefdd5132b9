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

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/lab/load"
	"github.com/weirlimits/weir/internal/lab/traffic"
)

// loadRun describes a run.
type loadRun struct {
	scenarioName
	loadTarget

	File string `json:"file" flag:"file,f"`

	loadSettings

	Save        string      `json:"save"`
	Page        string      `json:"html"`
	NoSetup     bool        `json:"no_setup"`
	Keep        bool        `json:"keep"`
	Workers     []string    `json:"workers"`
	WorkerToken secret.Text `json:"worker_token"`
}

// loadSettings override settings of a scenario.
type loadSettings struct {
	For     time.Duration  `json:"for" range:"0s.."`
	WarmUp  *time.Duration `json:"warm_up"`
	Loop    traffic.Loop   `json:"loop"`
	Rate    float64        `json:"rate" range:"0.."`
	Users   int            `json:"users" range:"0.."`
	Wait    *traffic.Range `json:"wait"`
	Shape   string         `json:"shape"`
	Seed    uint64         `json:"seed" default:"1"`
	Callers int            `json:"callers" default:"4096"`
}

func loadRunCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{
		Use: "run [SCENARIO]", Short: "Run a load scenario and measure the answers",
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

The token comes from WEIR_TOKEN or --token-file, and the workers' token from
WEIR_LOAD_RUN_WORKER_TOKEN or --worker-token-file.`,
		Example: `  weir load run stress --store memory: --for 30s
  weir load run llm-gateway --http http://127.0.0.1:8080 --rate 500 --save run.json --html run.html
  weir load run hot-key --store 'dynamodb://limits?region=eu-west-1' --workers 10.0.0.5:7070,10.0.0.6:7070`,
		With: []any{&a.InCell},
	}, func(ctx context.Context, q *loadRun) error {
		q.Workers = kit.Words(q.Workers)
		switch {
		case (q.Scenario == "") == (q.File == ""):
			return kit.Usagef("give either a SCENARIO that weir load list shows, or --file FILE")
		case len(q.Workers) > 0 && !q.WorkerToken.Given():
			return kit.Usagef("--workers needs --worker-token-file")
		case q.File != "":
			q.Scenario = strings.TrimSuffix(filepath.Base(q.File), filepath.Ext(q.File))
		}
		if err := a.MaySend("worker-token", "workers"); err != nil {
			return err
		}
		return runLoad(ctx, a, q)
	})
}

// settings returns what the flags override in the scenario.
func (q *loadRun) settings() traffic.Settings {
	return traffic.Settings{
		Loop: q.Loop, Rate: q.Rate, Users: q.Users, Shape: q.Shape, For: traffic.Span(q.For),
		WarmUp: (*traffic.Span)(q.WarmUp), Wait: q.Wait, Seed: q.Seed, Callers: q.Callers,
	}
}

func runLoad(ctx context.Context, a *kit.Run, q *loadRun) (err error) {
	sc, err := loadFile(q.Scenario, q.File)
	if err != nil {
		return err
	}
	set := q.settings()
	p, err := traffic.NewPlan(sc, set)
	if err != nil {
		return kit.Usage(err)
	}
	namespace := a.Namespace
	source := &loadSource{name: "the workers' targets"}
	if !q.NoSetup || len(q.Workers) == 0 {
		if source, err = q.open(a, !q.NoSetup); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, source.close()) }()
	}
	if !q.NoSetup {
		namespace = load.Scratch(sc.Name)
		if !q.Keep {
			defer func() { err = errors.Join(err, source.tearDown(context.WithoutCancel(ctx), namespace)) }()
		}
		if err := source.setUp(ctx, p, namespace); err != nil {
			return err
		}
	}
	view := newLoadView(a, p, source.name)
	ctx, stop := view.begin(ctx)
	started := time.Now()
	var t *load.Tally
	if len(q.Workers) > 0 {
		fleet := &load.Fleet{Addresses: q.Workers, Token: q.WorkerToken.Reveal()}
		if source.http != nil {
			fleet.Measures = source.http.Measures
		}
		t, err = fleet.Run(ctx, p, sc, set, namespace, view.tell)
	} else {
		t, err = runHere(ctx, p, source, namespace, view.tell)
	}
	stop()
	if err != nil {
		return fmt.Errorf("load %s: %w", q.Scenario, err)
	}
	r := load.NewReport(p, t)
	r.Target, r.Started, r.Workers = source.name, started.UTC().Truncate(time.Millisecond), len(q.Workers)
	if !q.NoSetup {
		r.Limits, err = load.Bounds(p, t)
	}
	if err = errors.Join(err, q.write(r)); err != nil {
		return err
	}
	if err := a.Print(r, func() { Show(a, r.Document()) }); err != nil {
		return err
	}
	if r.Calls > 0 && r.Failed >= r.Calls {
		return fmt.Errorf("load %s: every call failed", q.Scenario)
	}
	return nil
}

// runHere runs a whole plan in this process.
func runHere(
	ctx context.Context, p *traffic.Plan, source *loadSource, namespace string, tell func(*load.Tally),
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

func (q *loadRun) write(r *load.Report) error {
	if q.Save != "" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err == nil {
			err = os.WriteFile(q.Save, append(text, '\n'), 0o600)
		}
		if err != nil {
			return fmt.Errorf("save the report: %w", err)
		}
	}
	return writePage(q.Page, r, nil)
}
