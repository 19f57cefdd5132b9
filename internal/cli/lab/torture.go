package lab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/lab/cost"
	"github.com/weirlimits/weir/internal/lab/torture"
)

// tortureFlags are the flags of weir torture. Those that are nil depend on the store.
type tortureFlags struct {
	Duration  time.Duration `json:"duration" range:"1ms.." default:"30s"`
	Processes *int          `json:"processes" range:"0..64"`
	Callers   int           `json:"callers" range:"1..64" default:"4"`
	Seed      uint64        `json:"seed"`
	Faults    string        `json:"faults" default:"all"`
	Rate      *float64      `json:"rate" range:"0.."`
}

// TortureCmd returns the command weir torture.
func TortureCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{
		Use: "torture", Short: "Test a store under faults, and check that weir keeps its promises on it",
		Long: `Runs callers that spend, settle and read in a namespace that is created for the test and
purged at the end. Meanwhile calls are cancelled, delayed, lost and repeated, clocks
differ and processes are killed; a tenant in a second namespace has none of that. Then it
checks the answers the callers got against what the store shows. No other namespace is
touched. The exit code is 0 if all promises were kept, otherwise 1; the calls of the
failed round are then saved to a file.

A store in memory or on disk is tested from one process; for other stores, more processes
are started. On DynamoDB, a third of the rounds runs with remembered refusals, prefetch and
split buckets. The faults are ` + torture.Names(torture.AllFaults) + `.`,
		Example: `  weir torture --store memory: --duration 10s
  weir torture --store 'dynamodb://weir?region=eu-central-1' --rate 100
  weir torture --store redis://localhost --processes 8 --faults kill,drop`,
	}, func(ctx context.Context, q *tortureFlags) error { return runTorture(ctx, a, q) })
}

// TortureWorkerCmd is the process that weir torture starts.
func TortureWorkerCmd(a *kit.Run) *cobra.Command {
	cmd := kit.Func(a, kit.Spec{Use: "torture-worker", Short: "Run a process of weir torture"},
		func(ctx context.Context, _ *struct{}) error {
			t, err := stores.OpenTorture(a.Store)
			if err != nil {
				return err
			}
			return torture.Work(ctx, a.In, a.Out.W, t.Open)
		})
	cmd.Hidden = true
	return cmd
}

func runTorture(ctx context.Context, a *kit.Run, q *tortureFlags) error {
	at, err := a.StoreAlone()
	if err != nil {
		return err
	}
	t, err := stores.OpenTorture(at)
	if err != nil {
		return err
	}
	cfg, err := tortureConfig(a, q, t)
	if err != nil {
		return kit.Usage(err)
	}
	cfg.Begin = func() { announce(a, cfg) }
	progress := term.NewProgress(a.Err)
	cfg.Progress = func(share float64) { progress.Update("torturing", share) }
	rep, err := torture.Run(ctx, cfg)
	progress.Done()
	switch {
	case errors.Is(err, torture.ErrInUse):
		return kit.Usagef("%w: leave out --namespace, or give an unused name", err)
	case err != nil:
		return err
	}
	if err := a.Print(rep, func() { Show(a, rep.Document()) }); err != nil {
		return err
	}
	switch {
	case !rep.OK:
		return kit.Quiet(errors.New("a promise was broken"))
	case rep.Seconds < q.Duration.Seconds():
		return ctx.Err()
	}
	return nil
}

func tortureConfig(a *kit.Run, q *tortureFlags, t *stores.Torture) (cfg torture.Config, err error) {
	cfg = torture.Config{
		Open: t.Open, Traits: t.Traits, Namespace: a.Namespace,
		Duration: q.Duration, Processes: t.Processes, Callers: q.Callers, Rate: t.Rate, Seed: q.Seed,
		Spawn: func(ctx context.Context) (*exec.Cmd, error) { return spawnTorture(ctx, a) }, Dir: ".",
	}
	kit.Override(&cfg, q)
	for cfg.Seed == 0 {
		cfg.Seed = rand.Uint64() >> 1
	}
	if cfg.Namespace == weir.DefaultNamespace {
		cfg.Namespace = fmt.Sprintf("torture-%s-%04x", time.Now().UTC().Format("20060102-150405"), rand.IntN(1<<16))
	}
	if cfg.Processes > 0 && !t.Traits.Shared {
		return cfg, fmt.Errorf("--processes %d: only one process at a time can use this store", cfg.Processes)
	}
	if cfg.Faults, err = torture.ParseFaults(q.Faults); err != nil {
		return cfg, fmt.Errorf("--faults: %w", err)
	}
	cannot := map[torture.Fault]string{}
	if cfg.Processes == 0 {
		cannot[torture.Kill] = "there are no processes to kill: see --processes"
	}
	if !t.Traits.OwnClock {
		cannot[torture.Skew] = "the store uses its own clock"
	}
	for fault, why := range cannot {
		if q.Faults != "all" && slices.Contains(cfg.Faults, fault) {
			return cfg, fmt.Errorf("--faults %s: %s", fault, why)
		}
	}
	cfg.Faults = slices.DeleteFunc(cfg.Faults, func(f torture.Fault) bool { return cannot[f] != "" })
	return cfg, nil
}

// spawnTorture starts this program again. It passes the store in the environment, because arguments are visible to all
// users of the machine.
func spawnTorture(ctx context.Context, a *kit.Run) (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, "torture-worker")
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), "WEIR_STORE="+string(a.Store), "WEIR_SERVER=")
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// unitsPerCall is about how many write units a call takes on DynamoDB: the child's write, the parent's write, and the
// undo of a refusal. Repeated writes and split buckets take more, tokens debited ahead fewer.
const unitsPerCall = 3

// announce prints what is about to happen.
func announce(a *kit.Run, cfg torture.Config) {
	a.Err.Println(fmt.Sprintf(
		"namespaces %s and %[1]s-beside are created for this test, and purged at the end", cfg.Namespace,
	))
	if !strings.HasPrefix(string(a.Store), "dynamodb:") {
		return
	}
	if cfg.Rate == 0 {
		a.Err.Println("with --rate 0 there is no bound on the cost")
		return
	}
	calls := cfg.Rate * cfg.Duration.Seconds()
	text := fmt.Sprintf("at most %.0f calls, and about %.0f write units", calls, unitsPerCall*calls)
	if prices, err := cost.ReadPrices(cost.DefaultPrices); err == nil {
		text += fmt.Sprintf(": about $%.2f on demand", math.Ceil(unitsPerCall*calls*prices.Write/1e4)/100)
	}
	a.Err.Println(text)
}
