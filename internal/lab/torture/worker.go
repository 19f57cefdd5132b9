package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// setup is what a worker receives when it starts.
type setup struct {
	Process, Life int
	NamespaceID   string
	Beside        string        // the name of the neighbour's namespace
	Skew          time.Duration // of its clock; 0: the store's own clock
	Rate          float64       // calls per second; 0: unlimited
	Seed          uint64
	Frugal        bool // it opens the store frugal as well
}

// kind is what a round tests.
type kind string

const (
	ordering  kind = "order"   // the order of a few calls on one bucket, made directly at the store
	spending  kind = "spend"   // spending by entities and their parent, through a limiter
	releasing kind = "release" // returning the held leases
)

// order is what a worker has to do in a round.
type order struct {
	Round   int
	Kind    kind
	Calls   int // of each caller
	Callers int
	Sharp   bool // nothing forced, nothing returned: the strictest bound on what is admitted
	Frugal  bool // the store saves calls
	Faults  []Fault
	Held    []weir.LeaseToken
}

// worker is a limiter with callers; two limiters, of which each round uses one, if the store can be frugal.
type worker struct {
	setup
	limiter // of the round

	exact  limiter
	frugal limiter
	tell   func(*Record) error // reports each call before it is made, and its answer
	begun  time.Time
	pacing sync.Mutex
	next   time.Time // time of the next call
}

// limiter is a limiter on a store with faults.
type limiter struct {
	store *faulty
	lim   *weir.Limiter
}

func (l *limiter) close() error {
	if l.lim == nil {
		return nil
	}
	return l.lim.Close()
}

// newWorker returns a worker that owns the stores: one, or an exact and a frugal one.
func newWorker(s setup, tell func(*Record) error, stores ...store.Store) (*worker, error) {
	w := &worker{setup: s, tell: tell, begun: time.Now()}
	for i, of := range []*limiter{&w.exact, &w.frugal}[:len(stores)] {
		of.store = &faulty{
			Store: stores[i], r: rand.New(rand.NewPCG(s.Seed+uint64(i), uint64(s.Process)<<32+uint64(s.Life))),
		}
		var err error
		of.lim, err = weir.New(weir.Config{
			Store: of.store, NamespaceID: s.NamespaceID, Cooldown: cooldown, StoreTimeout: patience,
			OnUnavailable: weir.OnUnavailableDeny,
			Observer: &weir.Observer{Breaker: func(_ context.Context, e weir.BreakerEvent) {
				of.store.stopped.Store(e.State != "closed")
			}},
		})
		if err != nil {
			return nil, errors.Join(err, w.close(), stores[i].Close())
		}
	}
	return w, nil
}

func (w *worker) close() error { return errors.Join(w.exact.close(), w.frugal.close()) }

// failedWrites returns how many writes of the worker's stores had no answer.
func (w *worker) failedWrites() (n float64) {
	for _, l := range []limiter{w.exact, w.frugal} {
		if l.store != nil {
			n += failedWrites(l.store.Store)
		}
	}
	return n
}

const (
	patience = 5 * time.Second       // how long a call may take
	cooldown = 50 * time.Millisecond // short, so that a round still tests the store after a real failure

	// impatience is how long a decision may take while calls fail on purpose: after four times that, and so many calls
	// in a row, the limiter stops calling the store.
	impatience = 5 * time.Millisecond
	inARow     = 30
)

// do carries out an order.
func (w *worker) do(ctx context.Context, o order) error {
	if w.limiter = w.exact; o.Frugal {
		w.limiter = w.frugal
	}
	w.store.set(o.Faults)
	defer w.store.set(nil)
	var wg sync.WaitGroup
	errs := make([]error, o.Callers+1)
	callers := make([]*caller, o.Callers+1)
	for i := range callers {
		r := rand.New(rand.NewPCG(w.Seed, uint64(o.Round)<<24+uint64(w.Process)<<12+uint64(i)))
		callers[i] = &caller{worker: w, order: o, id: i, r: r}
	}
	if o.Kind == spending {
		last := callers[o.Callers]
		if err := last.beside(ctx, 1); err != nil {
			return err
		}
		if slices.Contains(o.Faults, Fail) {
			if err := callers[0].fail(ctx, last); err != nil {
				return err
			}
		}
		wg.Go(func() { errs[o.Callers] = last.beside(ctx, o.Calls) })
	}
	for i, c := range callers[:o.Callers] {
		wg.Go(func() {
			switch o.Kind {
			case ordering:
				errs[i] = c.probe(ctx)
			case spending:
				errs[i] = c.spend(ctx)
			case releasing:
				c.n = 1 << 20 // distinct from its earlier calls
				errs[i] = c.release(ctx)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// fail makes calls that fail until the limiter does not call the store for their caller, and then one of the neighbour.
func (c *caller) fail(ctx context.Context, beside *caller) error {
	within := parts.Of(c.lim).Within
	within.Set(impatience)
	c.store.failing.Store(true)
	var err error
	for i := 0; i < inARow && err == nil && !c.store.stopped.Load(); i++ {
		if err = c.take(ctx); err == nil {
			err = pause(ctx, 4*impatience/10)
		}
	}
	within.Set(patience)
	if err == nil {
		err = beside.beside(ctx, 1)
	}
	c.store.failing.Store(false)
	return err
}

// now returns the time for records: it never goes back while the process lives.
func (w *worker) now() int64 { return w.begun.Add(time.Since(w.begun)).UnixNano() }

// pace waits for the worker's next turn.
func (w *worker) pace(ctx context.Context) error {
	if w.Rate <= 0 {
		return ctx.Err()
	}
	w.pacing.Lock()
	now := time.Now()
	if w.next.Before(now) {
		w.next = now
	}
	wait := w.next.Sub(now)
	w.next = w.next.Add(time.Duration(float64(time.Second) / w.Rate))
	w.pacing.Unlock()
	return pause(ctx, wait)
}

// caller is one caller of a worker.
type caller struct {
	*worker
	order

	id     int
	n      int
	r      *rand.Rand
	leases []*weir.Lease
}

// call reports a call, makes it, and reports the answer.
func (c *caller) call(ctx context.Context, rec Record, ask func(context.Context, *Record) error) (*Record, error) {
	if err := c.pace(ctx); err != nil {
		return nil, err
	}
	rec.Round, rec.Process, rec.Life, rec.Caller, rec.N = c.Round, c.Process, c.Life, c.id, c.n
	c.n++
	rec.Asked = c.now()
	if err := c.tell(&rec); err != nil {
		return nil, err
	}
	hurried, cancel := c.hurry(ctx, rec.Op)
	defer cancel()
	err := ask(hurried, &rec)
	rec.Told = c.now()
	var config *weir.ConfigError
	if errors.As(err, &config) || errors.Is(err, weir.ErrNoLimits) || errors.Is(err, store.ErrInvalid) {
		return nil, fmt.Errorf("%s: %w", rec.String(), err) // our mistake, or the store has lost its catalog
	}
	if err != nil {
		rec.Result, rec.Err = Unknown, err.Error()
	}
	return &rec, c.tell(&rec)
}

// hurry cancels some calls and gives others too little time.
func (c *caller) hurry(ctx context.Context, op Op) (context.Context, context.CancelFunc) {
	brief := time.Duration(c.r.Int64N(int64(3 * time.Millisecond)))
	switch {
	case c.id == c.Callers: // the neighbour
	case c.Kind == ordering || op == OpHold: // an abandoned take may be undone later, unseen by the caller
	case slices.Contains(c.Faults, Deadline) && c.r.IntN(faultShare) == 0:
		return context.WithTimeout(ctx, brief)
	case slices.Contains(c.Faults, Cancel) && c.r.IntN(faultShare) == 0:
		ctx, cancel := context.WithCancel(ctx)
		t := time.AfterFunc(brief, cancel)
		return ctx, func() { t.Stop(); cancel() }
	}
	return ctx, func() {}
}

// spend spends through the limiter, and settles.
func (c *caller) spend(ctx context.Context) error {
	for range c.Calls {
		var err error
		switch n := c.r.IntN(16); {
		case n == 0:
			_, err = c.call(ctx, Record{
				Op: OpLook, Charges: []Charge{{Entity: child(c.r.IntN(children))}},
			}, func(ctx context.Context, rec *Record) error {
				a, err := c.lim.Available(ctx, rec.Charges[0].Entity, resource(c.Round))
				rec.At, rec.Result = a.At, Applied
				return err
			})
		case n <= 6 && !c.Sharp && len(c.leases) > 0:
			err = c.settle(ctx)
		default:
			err = c.take(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// take acquires a lease of a child, which charges its parent.
func (c *caller) take(ctx context.Context) error {
	name, amounts := child(c.r.IntN(children)), c.amounts()
	var lease *weir.Lease
	_, err := c.call(ctx, Record{
		Op: OpTake, Charges: both(name, amounts, 1000, false),
	}, func(ctx context.Context, rec *Record) (err error) {
		lease, err = c.acquire(ctx, c.lim, rec, name, amounts)
		return err
	})
	if err == nil && lease != nil && !c.Sharp {
		c.leases = append(c.leases, lease)
	}
	return err
}

// amounts draws what to request.
func (c *caller) amounts() [reckon.MaxLimits]int64 {
	amounts := [reckon.MaxLimits]int64{c.r.Int64N(20) + 1, c.r.Int64N(5) + 1}
	if c.r.IntN(8) == 0 {
		amounts[0] = 0
	}
	return amounts
}

// acquire acquires a lease, and records the answer.
func (c *caller) acquire(
	ctx context.Context, lim *weir.Limiter, rec *Record, entity string, amounts [reckon.MaxLimits]int64,
) (*weir.Lease, error) {
	lease, err := lim.Acquire(ctx, weir.Request{
		Entity: entity, Resource: resource(c.Round), Tokens: tokens(amounts),
	})
	var over *weir.ExceededError
	switch {
	case errors.As(err, &over):
		rec.At, rec.Result = over.At, Refused
		return nil, nil
	case err == nil:
		rec.At, rec.Result = lease.Decision().At, Admitted
	}
	return lease, err
}

// beside spends as the neighbour does. It is kept out if its call does not reach a store that has not failed.
func (c *caller) beside(ctx context.Context, calls int) error {
	lim := c.lim.In(c.Beside)
	for range calls {
		amounts, op := c.amounts(), OpTake
		if c.store.stopped.Load() {
			op = OpBeside
		}
		if _, err := c.call(ctx, Record{
			Op: op, Charges: both(neighbour, amounts, 1000, false)[:1],
		}, func(ctx context.Context, rec *Record) error {
			before := c.store.reached.Load()
			_, err := c.acquire(ctx, lim, rec, neighbour, amounts)
			if errors.Is(err, weir.ErrUnavailable) && c.store.reached.Load() == before && !c.store.failed.Load() {
				rec.Result, rec.Err = KeptOut, err.Error()
				return nil
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// settle adjusts a lease, returns it, or lets it leave the process.
func (c *caller) settle(ctx context.Context) error {
	i := c.r.IntN(len(c.leases))
	lease := c.leases[i]
	drop := func() { c.leases = slices.Delete(c.leases, i, i+1) }
	entity, holds := holdings(lease.Token("", time.Time{}))
	switch c.r.IntN(4) {
	case 0:
		delta := [reckon.MaxLimits]int64{c.r.Int64N(21) - 10, c.r.Int64N(5) - 2}
		for i := range delta {
			delta[i] = max(delta[i], -holds[i])
		}
		_, err := c.call(ctx, Record{
			Op: OpAdjust, Charges: both(entity, delta, 1000, true),
		}, func(ctx context.Context, rec *Record) error {
			rec.Result = Applied
			_, err := lease.Adjust(ctx, tokens(delta))
			return err
		})
		return err
	case 1:
		drop()
		id := fmt.Sprintf("torture-%s-%d-%d.%d-%d-%d", c.NamespaceID, c.Round, c.Process, c.Life, c.id, c.n)
		_, err := c.call(ctx, Record{Op: OpHold, Lease: id}, func(_ context.Context, rec *Record) error {
			h := lease.Token(id, time.Now().Add(10*time.Minute))
			rec.Held, rec.Result = &h, Applied
			return nil
		})
		return err
	default:
		drop()
		_, err := c.call(ctx, Record{
			Op: OpReturn, Charges: both(entity, holds, -1000, true),
		}, func(ctx context.Context, rec *Record) error {
			rec.Result = Applied
			err := lease.Rollback(ctx)
			if again := lease.Rollback(ctx); !errors.Is(again, weir.ErrRolledBack) {
				rec.Result = Twice
			}
			return err
		})
		return err
	}
}

// release returns all held leases, as every other process does, and repeats a return whose answer was lost.
func (c *caller) release(ctx context.Context) error {
	for i := range c.Held {
		if i%c.Callers != c.id {
			continue
		}
		h := c.Held[i]
		entity, holds := holdings(h)
		for range 2 {
			rec, err := c.call(ctx, Record{
				Op: OpRelease, Lease: h.ID, Charges: both(entity, holds, -1000, true),
			}, func(ctx context.Context, rec *Record) error {
				lease, err := c.lim.LeaseFromToken(ctx, h)
				if err == nil {
					err = lease.Rollback(ctx)
				}
				rec.Result = Applied
				if errors.Is(err, weir.ErrSettled) {
					rec.Result, err = Before, nil
				}
				return err
			})
			if err != nil {
				return err
			}
			if rec.Result != Unknown {
				break
			}
		}
	}
	return nil
}

// both charges a child and its parent.
func both(entity string, amounts [reckon.MaxLimits]int64, unit int64, force bool) []Charge {
	for i := range amounts {
		amounts[i] *= unit
	}
	return []Charge{{Entity: entity, Amounts: amounts, Force: force}, {Entity: parent, Amounts: amounts, Force: force}}
}

func tokens(amounts [reckon.MaxLimits]int64) weir.Tokens {
	t := weir.Tokens{}
	for i, n := range amounts {
		if n != 0 {
			t[limitNames[i]] = n
		}
	}
	return t
}

// holdings returns the tokens that a lease holds of its entity, which equal those of the parent.
func holdings(h weir.LeaseToken) (entity string, holds [reckon.MaxLimits]int64) {
	for _, c := range h.Charges {
		if i := slices.Index(limitNames[:], c.Limit.Name); i >= 0 && c.Entity == h.Entity {
			holds[i] = c.Tokens
		}
	}
	return h.Entity, holds
}
