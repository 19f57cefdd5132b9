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
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/fleet"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/store"
)

// Config configures an [Agent]. Registry, Local and Cell are required.
type Config struct {
	Registry store.Catalog // of the store where the cells meet
	Local    store.Catalog // of the cell's own store
	Cell     string
	// Alone states that no other process decides on the cell's store.
	Alone bool
	// Beat is the interval at which the agent writes its heartbeat, reads the grants and, if it leads, writes them.
	// Between 100 ms and 1 min; defaults to 1 s.
	Beat time.Duration
	// Expiry is the time without a beat after which a cell is missing. At least four beats; defaults to ten.
	Expiry time.Duration
	// Valid is how long deciders may use the shares that they read in the cell's store. At least three beats; defaults
	// to four.
	Valid time.Duration
	// Decide is the longest time that a decision may be in flight. Defaults to 1 s.
	Decide time.Duration
	// Changed is called when the cell's shares have changed. Defaults to nil.
	Changed func()
	// Log receives messages for operators. Defaults to discarding them.
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
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c
}

// Check returns an error if the configuration is invalid.
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
		return fmt.Errorf("cells: a validity of %s is less than three beats of %s", c.Valid, c.Beat)
	}
	return CheckName(c.Cell)
}

// Agent is a process's part in its cell. It implements [policy.Shares]. Close it when done.
type Agent struct {
	cfg    Config
	id     string
	local  localShares
	offers offers
	used   used
	member *fleet.Member[*grants]

	mu      sync.Mutex
	contact time.Time
	view    View
	cutOff  bool // the last beat failed
	closed  bool

	stop context.CancelFunc
	done sync.WaitGroup
}

// Status is an agent's current state.
type Status struct {
	Leads   bool
	Contact time.Time // when it last read the grants, or else when it was made
	Err     error     // why the last beat failed; nil if it succeeded
	View    View      // as of Contact, without the load offered to instances
}

var _ policy.Shares = (*Agent)(nil)

// New returns an agent, which does nothing before Start. Until then its deciders have no share.
func New(cfg Config) (*Agent, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg.withDefaults(), id: strings.ToLower(rand.Text()[:12]), contact: time.Now()}
	a.local.init(&a.cfg)
	r := Registry{a.cfg.Registry}
	at := fleet.Place{
		Registry: r.records(), ID: a.cfg.Cell + "/" + a.id, Log: a.cfg.Log.With(slog.String("cell", a.cfg.Cell)),
	}
	a.member = fleet.NewMember(at, &protocol{a: a, registry: r})
	return a, nil
}

// Start begins to beat. An unreachable registry is not an error: the cell continues with the shares in its own store.
// Start fails if the cell is not in the registry. Errors: [ErrNotFound], errors of the cell's own store.
func (a *Agent) Start(ctx context.Context) error {
	if err := a.local.read(ctx); err != nil {
		return fmt.Errorf("cell %s: read shares: %w", a.cfg.Cell, err)
	}
	err := a.member.Beat(ctx)
	if errors.Is(err, ErrNotFound) {
		return err
	}
	a.note(err)
	a.member.Start(ctx, a.note)
	ctx, a.stop = context.WithCancel(context.WithoutCancel(ctx))
	a.done.Go(func() { a.refresh(ctx) })
	return nil
}

// refresh reads the cell's record at each beat until ctx ends.
func (a *Agent) refresh(ctx context.Context) {
	tick := time.NewTicker(a.cfg.Beat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		bounded, cancel := context.WithTimeout(ctx, max(a.cfg.Beat, minTimeout))
		_ = a.local.read(bounded) // logged, and the next beat tries again
		cancel()
	}
}

// note logs when beats begin to fail, and when they succeed again.
func (a *Agent) note(err error) {
	a.mu.Lock()
	before := a.cutOff
	a.cutOff = err != nil
	a.mu.Unlock()
	switch {
	case err != nil && !before:
		a.cfg.Log.Warn(
			"the cell is cut off from the registry and keeps its shares", slog.String("cell", a.cfg.Cell),
			slog.Any("error", err),
		)
	case err == nil && before:
		a.cfg.Log.Info("the registry of cells answers again", slog.String("cell", a.cfg.Cell))
	}
}

// Close stops the beats. The cell keeps its share until it is missing.
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
	return a.member.Close()
}

// Status returns the agent's current state.
func (a *Agent) Status() Status {
	m := a.member.State()
	a.mu.Lock()
	defer a.mu.Unlock()
	return Status{Leads: m.Leads, Contact: a.contact, Err: m.Err, View: a.view}
}

// Share implements policy.Shares.
func (a *Agent) Share(namespace string) policy.Share {
	return a.local.share(namespace)
}

// Admits reports whether the cell has a share of any limits. One that is joining or was drained has none.
func (a *Agent) Admits() bool {
	for _, n := range a.local.table.Load().shares {
		if n > 0 {
			return true
		}
	}
	return false
}

// Stale implements policy.Shares. It reads the cell's record, once for all concurrent callers.
func (a *Agent) Stale(ctx context.Context, epoch uint64) { a.local.stale(ctx, epoch) }

// Count counts a decision of the cell's limiter: the request as offered.
func (a *Agent) Count(e weir.DecidedEvent) {
	if e.Allowed || e.Err == nil || errors.Is(e.Err, weir.ErrExceeded) {
		a.offers.count(e.Namespace)
	}
}

// Debited counts what the cell's limiter has debited or returned under a share. It is a [meter.Tap].
func (a *Agent) Debited(namespace string, debits []store.Debit, num, den int64) {
	if den == 0 { // of a lease from a token
		share := a.Share(namespace)
		num, den = share.Num, share.Den
	}
	a.used.count(namespace, debits, policy.Share{Num: num, Den: den})
}
