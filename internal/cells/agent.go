package cells

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store"
)

// Config configures an [Agent]. Registry, Local and Cell are required.
type Config struct {
	Registry store.Catalog // of the store where the cells meet
	Local    store.Catalog // of the cell's own store
	Cell     string
	// Alone says that no other process decides on the cell's store.
	Alone bool
	// Beat is how often the agent writes that it is there, reads the grants and, where it leads, writes them. Between
	// 100 ms and 1 min; defaults to 1 s.
	Beat time.Duration
	// Expiry is after how long without a beat a cell is missing. At least four beats; defaults to ten.
	Expiry time.Duration
	// Valid is for how long deciders go by the shares that they read in the cell's store. At least three beats; defaults to
	// four.
	Valid time.Duration
	// Decide is how long a decision may be under way at most. Defaults to 1 s.
	Decide time.Duration
	// Changed is called when the cell has other shares. Defaults to nobody.
	Changed func()
	// Log is told what people should know. Defaults to nobody.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Beat = cmp.Or(c.Beat, time.Second)
	c.Expiry = cmp.Or(c.Expiry, 10*c.Beat)
	c.Valid = cmp.Or(c.Valid, 4*c.Beat)
	c.Decide = cmp.Or(c.Decide, time.Second)
	if c.Changed == nil {
		c.Changed = func() {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Check returns what is wrong with a configuration.
func (c Config) Check() error { return c.withDefaults().check() }

func (c Config) check() error {
	switch {
	case c.Registry == nil || c.Local == nil:
		return errors.New("cells: the registry and the cell's own store are required")
	case c.Beat < 100*time.Millisecond || c.Beat > time.Minute:
		return fmt.Errorf("cells: a beat of %s is not between 100ms and 1m", c.Beat)
	case c.Expiry < 4*c.Beat:
		return fmt.Errorf("cells: an expiry of %s is less than four beats of %s", c.Expiry, c.Beat)
	case c.Valid < 3*c.Beat:
		return fmt.Errorf("cells: shares that are valid for %s are not for three beats of %s", c.Valid, c.Beat)
	}
	return CheckName(c.Cell)
}

// Agent is a process's part in its cell. It implements [weir.Shares]. Close it.
type Agent struct {
	cfg      Config
	registry Registry
	id       string
	offers   offers
	used     used
	table    atomic.Pointer[table]

	// Of the goroutine that beats.
	seq      uint64
	written  uint64 // version of the own record
	birth    string // of the cell, as the registry has it
	settings Settings
	changed  time.Time // when the grants were last seen to change
	patience time.Duration
	last     uint64  // version of the grants' record, as read last
	known    *grants // the newest
	ledger   *ledger
	epoch    uint64
	ours     uint64 // version of the grants' record that the ledger stands for

	reading sync.Mutex // of the cell's record, and what comes of it
	ack     Version    // nothing older is in use in the cell
	adopted time.Time  // when the record as it is was first read
	held    heldRecord
	deaf    bool // the last reading failed
	doubled int  // how often the cell's name is used, as was logged: 0 once, 1 elsewhere, 2 here but not first

	mu     sync.Mutex
	status Status
	closed bool
	stop   context.CancelFunc
	done   sync.WaitGroup
}

// table is what deciders go by.
type table struct {
	epoch  uint64
	shares Shares
	least  bool
	until  time.Time
}

// Status is how an agent stands.
type Status struct {
	Instance string
	Leads    bool
	Contact  time.Time // when it last read the grants; zero: never
	Err      error     // why the last beat did not work; nil when it did
	View     View      // as of then, without what instances offer
}

var _ weir.Shares = (*Agent)(nil)

// New returns an agent, which does nothing before Start; its deciders have no share.
func New(cfg Config) (*Agent, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg.withDefaults(), id: strings.ToLower(rand.Text()[:12]), settings: Settings{}.WithDefaults()}
	a.registry = Registry{a.cfg.Registry}
	a.status.Instance = a.id
	a.table.Store(&table{})
	return a, nil
}

// Start begins to beat. A registry that does not answer is no error: the cell goes on with what its own store has. It
// fails when the cell is not in the registry. Errors: [ErrNotFound], trouble of the cell's own store.
func (a *Agent) Start(ctx context.Context) error {
	if err := a.apply(ctx); err != nil {
		return fmt.Errorf("cell %s: read shares: %w", a.cfg.Cell, err)
	}
	if err := a.beat(ctx); errors.Is(err, ErrNotFound) {
		return err
	} else if err != nil {
		a.note(err)
	}
	ctx, a.stop = context.WithCancel(context.WithoutCancel(ctx))
	a.done.Go(func() {
		a.every(ctx, func(ctx context.Context) {
			if err := a.beat(ctx); ctx.Err() == nil {
				a.note(err)
			}
		})
	})
	a.done.Go(func() { a.every(ctx, a.refresh) })
	return nil
}

// every runs f with each beat until ctx ends.
func (a *Agent) every(ctx context.Context, f func(context.Context)) {
	tick := time.NewTicker(a.cfg.Beat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		f(ctx)
	}
}

// note remembers how a beat went, and logs when that is another than before.
func (a *Agent) note(err error) {
	a.mu.Lock()
	before := a.status.Err
	a.status.Err = err
	a.mu.Unlock()
	switch {
	case err != nil && before == nil:
		a.cfg.Log.Warn("the cell is cut off from the registry and keeps its shares", slog.String("cell", a.cfg.Cell), slog.Any("error", err))
	case err == nil && before != nil:
		a.cfg.Log.Info("the registry of cells answers again", slog.String("cell", a.cfg.Cell))
	}
}

// Close ends the beats. The cell keeps its share until it is missing.
func (a *Agent) Close() error {
	a.mu.Lock()
	closed := a.closed
	a.closed = true
	a.mu.Unlock()
	if closed || a.stop == nil {
		return nil
	}
	a.stop()
	a.done.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), max(a.cfg.Beat, minTimeout))
	defer cancel()
	return errors.Join(a.resign(ctx), a.leave(ctx))
}

// Status returns how the agent stands.
func (a *Agent) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// Share implements weir.Shares.
func (a *Agent) Share(namespace string) weir.Share {
	t := a.table.Load()
	return weir.Share{Num: t.shares.Of(namespace), Den: Whole, Epoch: t.epoch, Least: t.least, Until: t.until}
}

// Stale implements weir.Shares: it reads the cell's record, once for all who ask at a time.
func (a *Agent) Stale(ctx context.Context, epoch uint64) {
	if a.table.Load().epoch > epoch {
		return
	}
	_ = a.apply(ctx) // it will be tried again with the next beat
}

// Count counts a decision of the cell's limiter: as offered, and what it has admitted.
func (a *Agent) Count(e weir.DecidedEvent) {
	if e.Allowed || e.Err == nil || errors.Is(e.Err, weir.ErrExceeded) {
		a.offers.count(e.Namespace)
	}
	debits, share := e.Debits()
	a.used.count(e.Namespace, debits, share)
}

// CountAdjusted counts what leases of the cell's limiter take besides, or give back.
func (a *Agent) CountAdjusted(e weir.AdjustedEvent) {
	debits, share := e.Debits()
	if share.Den == 0 {
		share = a.Share(e.Namespace)
	}
	a.used.count(e.Namespace, debits, share)
}
