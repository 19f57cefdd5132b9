// Package torture puts a user's own store to the test: callers in several limiters, or several processes, spend in a
// namespace made for it, while calls are cancelled, delayed, lost and repeated, clocks are apart and processes are killed.
// What they were told and what the store then shows is held to the arithmetic of package reckon.
//
// It goes in rounds, with fresh buckets in each, so that what a caller who was cut off may still do later disturbs
// nobody. In one round of three a few calls are made on one bucket, at the store itself, and an order is looked for that
// explains all answers. In the others callers spend as children of one parent, through limiters; every second one of
// these is calm, so that the books must balance to the millitoken.
package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/torture/reckon"
	"github.com/weirlimits/weir/store"
)

// Opener opens the store anew, with a clock of its own if now is not nil and the store can have one.
type Opener func(now func() time.Time) (store.Store, error)

// Traits say what kind of store it is.
type Traits struct {
	Shared   bool          // several processes may open it
	Atomic   bool          // it decides over several buckets in one step
	OwnClock bool          // it goes by the clocks of its processes
	InFlight time.Duration // for how long a call that was cut off may still be under way
	Back     time.Duration // by how much its time may go back, since servers' clocks do
}

// Config configures a run. Open and Namespace are required.
type Config struct {
	Open      Opener
	Traits    Traits
	Namespace string // to make, and to purge in the end
	Duration  time.Duration
	Rounds    int // instead of Duration; 0: go by that
	Processes int // that are started with Spawn; 0: two limiters in this one
	Spawn     func(ctx context.Context) (*exec.Cmd, error)
	Callers   int     // of each limiter
	Calls     int     // of each caller in a round of spending; 0: 150
	Rate      float64 // calls a second of all together; 0: no bound
	Seed      uint64
	Faults    []Fault
	Dir       string // for the history of a round that failed; "": the folder for temporary files
	Begin     func() // once nothing is in the way, before anything is written; nil: nobody is told
	Progress  func(share float64)
}

// Report is what became of a run.
type Report struct {
	OK        bool    `json:"ok"`
	Seed      uint64  `json:"seed"`
	Namespace string  `json:"namespace"`
	Seconds   float64 `json:"seconds"`
	Processes int     `json:"processes"`
	Limiters  int     `json:"limiters"`
	Callers   int     `json:"callers"` // of all
	Faults    []Fault `json:"faults"`
	Rounds    int     `json:"rounds"`
	Calls     int     `json:"calls"`
	Admitted  int     `json:"admitted"`
	Refused   int     `json:"refused"`
	Unknown   int     `json:"unknown"` // calls of which the caller does not know what became
	Killed    int     `json:"killed"`  // processes
	Checks    []Check `json:"checks"`

	History string    `json:"history,omitempty"` // the file with all calls of the round that failed
	Excerpt []*Record `json:"excerpt,omitempty"` // the last of them on the bucket that it is about
}

const (
	children = 4
	parent   = "parent"
	ordered  = "ordered"

	live   = 0 // the limit that refuses
	ledger = 1 // the limit that is large, and so slow that its level moves by debits and returns alone
)

var limitNames = [reckon.MaxLimits]string{live: "live", ledger: "ledger"}

func child(i int) string    { return fmt.Sprint("child-", i) }
func resource(r int) string { return fmt.Sprint("round-", r) }

const year = 366 * 24 * time.Hour

var (
	childLimits  = [reckon.MaxLimits]*store.Limit{{Name: "live", Amount: 100_000, Period: time.Second, Burst: 200_000}, {Name: "ledger", Amount: 1000, Period: year, Burst: 1e12}}
	parentLimits = [reckon.MaxLimits]*store.Limit{{Name: "live", Amount: 200_000, Period: time.Second, Burst: 300_000}, {Name: "ledger", Amount: 1000, Period: year, Burst: 1e12}}
	orderLimits  = reckon.Order{{Name: "live", Amount: 100_000, Period: 10 * time.Minute, Burst: 100_000}, {Name: "ledger", Amount: 1000, Period: year, Burst: 10_000_000}}
)

func limitsOf(entity string) [reckon.MaxLimits]*store.Limit {
	if entity == parent {
		return parentLimits
	}
	return childLimits
}

// ErrInUse says that the namespace exists.
var ErrInUse = errors.New("it exists: torture works in a namespace of its own, which it makes and purges")

// run is a run under way.
type run struct {
	Config

	lim    *weir.Limiter
	store  store.Store // to look at: without faults, with its own clock
	id     string      // of the namespace
	hands  []hand
	setups []setup
	failed []float64
	r      *rand.Rand
	rep    *Report

	mu      sync.Mutex
	records map[call]*Record
	sorted  []*Record
}

// call names a call of a round.
type call struct{ process, life, caller, n int }

// Run puts the store to the test and returns what became of it: Report.OK says whether all promises were kept. The
// namespace is purged in any case, also when ctx ends, upon which what was found so far is reported, if no error is in
// the way.
func Run(ctx context.Context, cfg Config) (_ *Report, err error) {
	var now func() time.Time
	if cfg.skewed() && !cfg.Traits.Shared {
		now = jumpy(cfg.Seed)
	}
	st, err := cfg.Open(now)
	if err != nil {
		return nil, err
	}
	lim, err := weir.New(weir.Config{Store: st, StoreTimeout: patience, Cooldown: -1})
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	defer func() { err = errors.Join(err, lim.Close()) }()
	r := &run{
		Config: cfg, lim: lim.In(cfg.Namespace), store: st, r: rand.New(rand.NewPCG(cfg.Seed, 0)),
		rep: &Report{Seed: cfg.Seed, Namespace: cfg.Namespace, Faults: cfg.Faults, Processes: max(1, cfg.Processes), Checks: newChecks()},
	}
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.clear(ctx)) }()
	defer func() { err = errors.Join(err, r.dismiss()) }()
	if err := r.hire(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	more := func() bool {
		if cfg.Rounds > 0 {
			return r.rep.Rounds < cfg.Rounds
		}
		return time.Since(began) < cfg.Duration
	}
	var f *failure
	for f == nil && err == nil && ctx.Err() == nil && more() {
		f, err = r.round(ctx, r.rep.Rounds)
		if cfg.Progress != nil {
			cfg.Progress(float64(time.Since(began)) / float64(max(1, cfg.Duration)))
		}
	}
	r.rep.Seconds = time.Since(began).Seconds()
	if ctx.Err() != nil && f == nil {
		err = nil // what it came to is no trouble of the store
	}
	if err != nil {
		return nil, err
	}
	return r.rep, r.report(f)
}

// prepare makes the namespace, with limits and entities.
func (r *run) prepare(ctx context.Context) error {
	_, err := r.lim.NamespaceByName(ctx, r.Namespace)
	if err == nil {
		return fmt.Errorf("namespace %q: %w", r.Namespace, ErrInUse)
	}
	if !errors.Is(err, weir.ErrNotFound) {
		return err
	}
	if r.Begin != nil {
		r.Begin()
	}
	ns, err := r.lim.CreateNamespace(ctx, r.Namespace)
	if err != nil {
		return err
	}
	r.id = ns.ID
	err = r.lim.SetLimits(ctx, weir.Scope{}, public(childLimits)...)
	if err == nil {
		err = r.lim.SetLimits(ctx, weir.Scope{Entity: parent}, public(parentLimits)...)
	}
	if err == nil {
		err = r.lim.CreateEntity(ctx, weir.Entity{ID: parent})
	}
	for i := range children {
		if err == nil {
			err = r.lim.CreateEntity(ctx, weir.Entity{ID: child(i), Parent: parent, Cascade: true})
		}
	}
	if err != nil {
		return errors.Join(err, r.clear(ctx))
	}
	return nil
}

func public(limits [reckon.MaxLimits]*store.Limit) (all []weir.Limit) {
	for _, l := range limits {
		all = append(all, weir.Limit{Name: l.Name, Amount: l.Amount / 1000, Period: l.Period, Burst: l.Burst / 1000})
	}
	return all
}

// clear purges the namespace, also when ctx has ended.
func (r *run) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	err := r.lim.DeleteNamespace(ctx, r.Namespace)
	if err == nil {
		err = r.lim.PurgeNamespace(ctx, r.Namespace)
	}
	if err != nil {
		return fmt.Errorf("namespace %q is left behind (remove it with: weir namespace delete %s, then weir namespace purge %s): %w",
			r.Namespace, r.Namespace, r.Namespace, err)
	}
	return nil
}

// Limiters in this process, where no others are started.
const limiters = 2

// hire starts the workers.
func (r *run) hire(ctx context.Context) error {
	n := r.Processes
	if n == 0 {
		n = limiters
	}
	r.rep.Limiters, r.rep.Callers = n, n*r.Callers
	r.failed = make([]float64, n)
	for i := range n {
		s := setup{Process: i + 1, NamespaceID: r.id, Rate: r.Rate / float64(n), Seed: r.Seed}
		if r.skewed() && r.Traits.Shared {
			s.Skew = time.Duration(r.r.Int64N(int64(2*maxSkew))) - maxSkew
		}
		r.setups = append(r.setups, s)
		h, err := r.start(ctx, s)
		if err != nil {
			return err
		}
		r.hands = append(r.hands, h)
	}
	return nil
}

func (c *Config) skewed() bool { return c.Traits.OwnClock && slices.Contains(c.Faults, Skew) }

// start starts a worker.
func (r *run) start(ctx context.Context, s setup) (hand, error) {
	if r.Processes > 0 {
		cmd, err := r.Spawn(context.WithoutCancel(ctx)) // it ends when its input does, with what it has begun
		if err != nil {
			return nil, err
		}
		return start(cmd, s)
	}
	var w *worker
	var err error
	if r.Traits.Shared {
		w, err = s.open(r.Open, nil)
	} else {
		w, err = newWorker(s, lent{r.store}, nil)
	}
	if err != nil {
		return nil, err
	}
	return local{w}, nil
}

// lent is a store that somebody else closes.
type lent struct{ store.Store }

// Close implements [store.Store].
func (lent) Close() error { return nil }

func (r *run) dismiss() error {
	var errs []error
	for _, h := range r.hands {
		errs = append(errs, h.close())
	}
	return errors.Join(errs...)
}

// report tells what was found.
func (r *run) report(f *failure) (err error) {
	r.rep.OK = f == nil
	if f == nil {
		return nil
	}
	r.rep.Checks[f.check].Failure = f.err.Error()
	r.rep.Excerpt = f.excerpt(r.sorted)
	r.rep.History, err = save(r.Dir, r.sorted)
	return err
}
