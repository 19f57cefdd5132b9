// Package torture tests a user's own store: callers in several limiters, or several processes, spend in a namespace
// created for the test, while calls are cancelled, delayed, lost and repeated, clocks differ, and processes are killed.
// It checks the callers' answers, and what the store then shows, against the arithmetic of package reckon.
//
// A run consists of rounds. Each has fresh buckets, so that a late effect of an abandoned call disturbs no other round.
// In one round of three, a few calls are made on one bucket directly at the store, and torture searches for an order
// that explains all answers. In the others, callers spend as children of one parent, through limiters; every second one
// of these is without faults, so that the books must balance to the millitoken. In a second namespace a neighbour
// spends through the same limiters, without faults of its own: those of the others must not keep it from the store.
package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// Opener opens the store again, with its own clock if now is not nil and the store can have one: exact, or frugal, as
// users have it, with what saves calls (refusals repeated from memory, tokens debited ahead, split buckets).
type Opener func(now func() time.Time, frugal bool) (store.Store, error)

// Traits describe the kind of store.
type Traits struct {
	Shared   bool          // several processes may open it
	Atomic   bool          // it decides over several buckets in one step
	OwnClock bool          // it uses the clocks of its processes
	Frugal   bool          // it can save calls: see Opener
	InFlight time.Duration // for how long an abandoned call may still be in flight
	Back     time.Duration // by how much its time may go back, because servers' clocks do
}

// Config configures a run. Open and Namespace are required.
type Config struct {
	Open      Opener
	Traits    Traits
	Namespace string // created, and purged in the end, as is the neighbour's: NAMESPACE-beside
	Duration  time.Duration
	Rounds    int // instead of Duration; 0: Duration applies
	Processes int // started with Spawn; 0: two limiters in this process
	Spawn     func(ctx context.Context) (*exec.Cmd, error)
	Callers   int     // of each limiter
	Calls     int     // of each caller in a round of spending; 0: 150
	Rate      float64 // calls per second of all callers together; 0: unlimited
	Seed      uint64
	Faults    []Fault
	Dir       string // for the history of a failed round; "": the directory for temporary files
	Begin     func() // called when the run can start, before anything is written; may be nil
	Progress  func(share float64)
}

// Totals are counts of a run.
type Totals struct {
	Rounds   int `json:"rounds"`
	Frugal   int `json:"frugal,omitempty"` // rounds in which the store saves calls
	Calls    int `json:"calls"`
	Admitted int `json:"admitted"`
	Refused  int `json:"refused"`
	Unknown  int `json:"unknown"` // calls whose outcome is unknown to the caller
	Killed   int `json:"killed"`  // processes
}

// Report is the result of a run.
type Report struct {
	OK        bool    `json:"ok"`
	Seed      uint64  `json:"seed"`
	Namespace string  `json:"namespace"`
	Seconds   float64 `json:"seconds"`
	Processes int     `json:"processes"`
	Limiters  int     `json:"limiters"`
	Callers   int     `json:"callers"` // of all limiters
	Faults    []Fault `json:"faults"`
	Totals

	Checks []Check `json:"checks"`

	History string    `json:"history,omitempty"` // the file with all calls of the failed round
	Excerpt []*Record `json:"excerpt,omitempty"` // the last of them on the bucket concerned
}

const (
	children = 4
	parent   = "parent"
	ordered  = "ordered"
	// neighbour is the one entity of the second namespace, whose calls have no faults.
	neighbour = "neighbour"

	live   = 0 // the limit that refuses
	ledger = 1 // the limit that is so large and slow that only debits and returns move its level
)

var limitNames = [reckon.MaxLimits]string{live: "live", ledger: "ledger"}

// beside returns the name of the neighbour's namespace.
func beside(namespace string) string { return namespace + "-beside" }

func child(i int) string    { return fmt.Sprint("child-", i) }
func resource(r int) string { return fmt.Sprint("round-", r) }

const year = 366 * 24 * time.Hour

var (
	childLimits = [reckon.MaxLimits]*store.Limit{
		{Name: "live", Amount: 100_000, Period: time.Second, Burst: 200_000},
		{Name: "ledger", Amount: 1000, Period: year, Burst: 1e12},
	}
	// ownLimits are the limits of children that have other kinds: a quota, or a balance, topped up in each round.
	ownLimits = map[string][reckon.MaxLimits]*store.Limit{
		child(1): {{Name: "live", Amount: 40_000, Burst: 40_000, Window: hourly()}, childLimits[ledger]},
		child(2): {childLimits[live], store.Balance("ledger")},
		child(3): {store.Balance("live"), childLimits[ledger]},
	}
	// credits is what balances have in a round, in millitokens: one ends before the parent refuses, a ledger never.
	credits      = [reckon.MaxLimits]int64{live: 40_000, ledger: 1e12}
	parentLimits = [reckon.MaxLimits]*store.Limit{
		{Name: "live", Amount: 200_000, Period: time.Second, Burst: 300_000},
		{Name: "ledger", Amount: 1000, Period: year, Burst: 1e12},
	}
	orderLimits = reckon.Order{
		{Name: "live", Amount: 100_000, Period: 10 * time.Minute, Burst: 100_000},
		{Name: "ledger", Amount: 1000, Period: year, Burst: 10_000_000},
	}
)

func limitsOf(entity string) [reckon.MaxLimits]*store.Limit {
	if entity == parent {
		return parentLimits
	}
	if own, ok := ownLimits[entity]; ok {
		return own
	}
	return childLimits
}

// hourly returns the windows of the quota: a run of a few seconds rarely meets the end of one.
func hourly() (w calendar.Window) {
	if err := w.UnmarshalText([]byte("hour@UTC")); err != nil {
		panic(err)
	}
	return w
}

// ErrInUse reports that the namespace exists.
var ErrInUse = errors.New("it exists: torture needs a new namespace, which it creates and purges")

// run is the state of a run.
type run struct {
	Config

	lim    *weir.Limiter
	store  store.Store // for looking at buckets: without faults, with its own clock
	frugal splitter    // the same store, frugal; nil if it cannot be
	ids    [2]string   // of the namespaces: the children's, and the neighbour's
	hands  []hand
	setups []setup
	failed []float64
	r      *rand.Rand
	rep    *Report

	mu      sync.Mutex
	records map[call]*Record
	sorted  []*Record
}

// call identifies a call within a round.
type call struct{ process, life, caller, n int }

// Run tests the store and returns the results: Report.OK is whether all promises were kept. The namespace is purged
// in any case, even if ctx ends; Run then reports what was found so far, unless there is an error.
func Run(ctx context.Context, cfg Config) (_ *Report, err error) {
	var now func() time.Time
	if cfg.skewed() && !cfg.Traits.Shared {
		now = jumpy(cfg.Seed)
	}
	st, err := cfg.Open(now, false)
	if err != nil {
		return nil, err
	}
	lim, err := weir.New(weir.Config{Store: st, StoreTimeout: 4 * patience, Cooldown: -1})
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	defer func() { err = errors.Join(err, lim.Close()) }()
	r := &run{
		Config: cfg, lim: lim.In(cfg.Namespace), store: st, r: rand.New(rand.NewPCG(cfg.Seed, 0)),
		rep: &Report{
			Seed: cfg.Seed, Namespace: cfg.Namespace, Faults: cfg.Faults, Processes: max(1, cfg.Processes),
			Checks: newChecks(),
		},
	}
	if cfg.Traits.Frugal {
		if r.frugal, err = openSplitter(cfg.Open); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, r.frugal.Close()) }()
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
		err = nil // an error caused by the end of ctx is not the store's
	}
	if err != nil {
		return nil, err
	}
	return r.rep, r.report(f)
}

// prepare creates the namespace, with limits and entities. It goes on if ctx ends while it does, so that clear finds
// all that has been created.
func (r *run) prepare(ctx context.Context) error {
	names := []string{r.Namespace, beside(r.Namespace)}
	for _, name := range names {
		_, err := admin.New(r.lim).Namespaces.Get(ctx, name)
		if err == nil {
			return fmt.Errorf("namespace %q: %w", name, ErrInUse)
		}
		if !errors.Is(err, weir.ErrNotFound) {
			return err
		}
	}
	if r.Begin != nil {
		r.Begin()
	}
	ctx = context.WithoutCancel(ctx)
	var err error
	for i, name := range names {
		var ns admin.Namespace
		if ns, err = admin.New(r.lim).Namespaces.Create(ctx, name); err != nil {
			break
		}
		r.ids[i] = ns.ID
		if err = admin.New(r.lim.In(name)).Limits.Set(ctx, admin.Scope{}, public(childLimits)...); err != nil {
			break
		}
	}
	if err == nil {
		err = admin.New(r.lim).Limits.Set(ctx, admin.Scope{Entity: parent}, public(parentLimits)...)
	}
	if err == nil {
		err = admin.New(r.lim).Entities.Create(ctx, admin.Entity{ID: parent})
	}
	for i := range children {
		if err == nil {
			err = admin.New(r.lim).Entities.Create(ctx, admin.Entity{ID: child(i), Parent: parent, Cascade: true})
		}
	}
	if err != nil {
		return errors.Join(err, r.clear(ctx))
	}
	return nil
}

func public(limits [reckon.MaxLimits]*store.Limit) (all []weir.Limit) {
	for _, l := range limits {
		all = append(all, weir.Limit(record.Plain(l)))
	}
	return all
}

// clear purges the namespaces that were created, even if ctx has ended.
func (r *run) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var errs []error
	for i, name := range []string{r.Namespace, beside(r.Namespace)} {
		if r.ids[i] == "" {
			continue
		}
		err := admin.New(r.lim).Namespaces.Delete(ctx, name)
		if err == nil {
			err = admin.New(r.lim).Namespaces.Purge(ctx, name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf(
				"namespace %s is left behind (remove it with: weir namespace delete %[1]s,"+
					" then weir namespace purge %[1]s): %[2]w", name, err,
			))
		}
	}
	return errors.Join(errs...)
}

// limiters is the number of limiters in this process if no others are started.
const limiters = 2

// hire starts the workers.
func (r *run) hire(ctx context.Context) error {
	n := cmp.Or(r.Processes, limiters)
	r.rep.Limiters, r.rep.Callers = n, n*r.Callers
	r.failed = make([]float64, n)
	for i := range n {
		s := setup{
			Process: i + 1, NamespaceID: r.ids[0], Beside: beside(r.Namespace), Rate: r.Rate / float64(n), Seed: r.Seed,
			Frugal: r.Traits.Frugal,
		}
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
		// It ends when its input does, after completing what it has begun.
		cmd, err := r.Spawn(context.WithoutCancel(ctx))
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
		w, err = newWorker(s, nil, lent{r.store})
	}
	if err != nil {
		return nil, err
	}
	return local{w}, nil
}

// lent is a store that its owner closes.
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

// report adds a failure to the report.
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
