package governor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/fleet/rates"
)

// Governor keeps DynamoDB clients within a budget. It is safe for concurrent use. Create one with [New].
type Governor struct {
	cfg     Config
	began   time.Time
	account [2]*budget // nil if not limited
	member  *rates.Worker
	shared  []*budget // in the order of the fleet's budgets

	setting sync.Mutex // one Set at a time

	closing sync.Once
	closed  chan struct{}
	err     error

	mu      sync.RWMutex
	tables  map[string]*table
	budgets []*budget
}

// New returns a governor. With a Coordinator, it joins the fleet, which takes at most 30 s. Calls wait until the
// governor has a share.
//
// Errors: one or more [*ConfigError], joined; [*JoinError] if the coordinator cannot be read or written.
func New(cfg Config) (*Governor, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	g := &Governor{cfg: cfg, began: time.Now(), closed: make(chan struct{}), tables: make(map[string]*table)}
	for dir, units := range [2]float64{cfg.ReadUnits, cfg.WriteUnits} {
		g.account[dir] = g.configured(units, "", "", Direction(dir))
	}
	for name, limits := range cfg.Tables {
		t := &table{name: name, indexes: make(map[string]*index)}
		for dir, units := range limits.rates() {
			t.budgets[dir] = g.configured(units, name, "", Direction(dir))
		}
		for xname, xlimits := range limits.Indexes {
			x := new(index)
			for dir, units := range xlimits.rates() {
				x.budgets[dir] = g.configured(units, name, xname, Direction(dir))
			}
			t.indexes[xname], t.split = x, true
		}
		g.tables[name] = t
	}
	if cfg.Coordinator != nil {
		if err := g.join(); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (l Limits) rates() [2]float64 { return [2]float64{l.ReadUnits, l.WriteUnits} }

// configured returns the budget for a rate, or nil if there is none.
func (g *Governor) configured(units float64, table, index string, dir Direction) *budget {
	if units == 0 || math.IsInf(units, 1) {
		return nil
	}
	limit := int64(units * milli)
	if g.cfg.Coordinator == nil {
		return g.add(newBudget(limit, g.cfg.Burst, g.cfg.Start), table, index, dir)
	}
	b := g.add(newShared(limit, g.cfg.Burst), table, index, dir)
	g.shared = append(g.shared, b)
	return b
}

// add ranks a budget: indexes first, then tables, then the account, so that calls wait for the narrowest first.
func (g *Governor) add(b *budget, table, index string, dir Direction) *budget {
	b.table, b.index, b.dir = table, index, dir
	class := uint64(2)
	switch {
	case index != "":
		class = 0
	case table != "":
		class = 1
	}
	b.rank = class<<32 | uint64(len(g.budgets))
	g.budgets = append(g.budgets, b)
	return b
}

// tableOf returns a table, which may be named by its ARN. A table that was never seen has the account's limits. If it
// cannot exist, or too many are kept, it is not kept, and has only the account's budgets.
func (g *Governor) tableOf(name string) *table {
	if strings.HasPrefix(name, "arn:") {
		name, _ = resourceNames(name)
	}
	g.mu.RLock()
	t, full := g.tables[name], len(g.tables) >= maxTables
	g.mu.RUnlock()
	switch {
	case t != nil:
		return t
	case full || len(name) > maxName:
		return &table{name: name}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if t = g.tables[name]; t == nil {
		t = &table{name: name}
		for dir, all := range g.account {
			if all != nil && name != "" {
				all.mu.Lock()
				limit := all.limit
				all.mu.Unlock()
				b := newBudget(limit, g.cfg.Burst, g.cfg.Burst)
				b.implied = true
				t.budgets[dir] = g.add(b, name, "", Direction(dir))
			}
		}
		g.tables[name] = t
	}
	return t
}

// Set changes rates while the governor runs: all of them, or none if one is wrong. What budgets hold and owe stays,
// less what exceeds the new burst. Calls that wait, wait by the new rates. With a Coordinator, the lowest rate that a
// process states applies to the fleet: a lower one within three refreshes, a higher one once every process has set it.
//
// Errors: one or more [*ConfigError], joined: for rates that a [Config] would refuse, for [Unlimited], and for budgets
// that the Config does not have. Give them a rate there, which may be as high as 4,000,000.
func (g *Governor) Set(r Rates) error {
	g.setting.Lock()
	defer g.setting.Unlock()
	limits, err := g.changes(r)
	if err != nil {
		return err
	}
	now := g.now()
	for b, limit := range limits {
		b.setLimit(now, limit, g.member != nil)
	}
	g.mu.RLock()
	for _, b := range g.budgets {
		if limit, ok := limits[g.account[b.dir]]; ok && b.implied {
			b.setLimit(now, limit, false)
		}
	}
	g.mu.RUnlock()
	if g.member != nil {
		all := make([]int64, len(g.shared))
		for i, b := range g.shared {
			b.mu.Lock()
			all[i] = b.limit
			b.mu.Unlock()
		}
		g.member.SetLimits(all)
	}
	return nil
}

// changes returns the limits of the budgets that rates change.
func (g *Governor) changes(r Rates) (map[*budget]int64, error) {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, &ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	limits := make(map[*budget]int64)
	set := func(field string, budgets [2]*budget, rates [2]float64) {
		for dir, units := range rates {
			name := field + [2]string{"ReadUnits", "WriteUnits"}[dir]
			switch {
			case units == 0:
			case math.IsInf(units, 1):
				wrong(name, "cannot become Unlimited while the governor runs")
			case budgets[dir] == nil || budgets[dir].implied:
				wrong(name, "cannot be set: the Config has no such rate, or Unlimited")
			default:
				checkRate(wrong, name, units)
				limits[budgets[dir]] = int64(units * milli)
			}
		}
	}
	set("", g.account, [2]float64{r.ReadUnits, r.WriteUnits})
	for _, name := range slices.Sorted(maps.Keys(r.Tables)) {
		t, limits, field := &table{}, r.Tables[name], "Tables["+name+"]."
		g.mu.RLock()
		if known := g.tables[name]; known != nil {
			t = known
		}
		g.mu.RUnlock()
		set(field, t.budgets, limits.rates())
		for _, x := range slices.Sorted(maps.Keys(limits.Indexes)) {
			set(field+"Indexes["+x+"].", t.own(x), limits.Indexes[x].rates())
		}
	}
	return limits, errors.Join(errs...)
}

// Follow sets the rates that a source returns: at once, and then at every interval, until the context ends. When the
// source or [Governor.Set] fails, the rates stay, and failed is called with the error if it is not nil. Indexes that
// the [Config] does not have are left out: they count against their table.
func (g *Governor) Follow(ctx context.Context, every time.Duration, source Source, failed func(error)) {
	t := time.NewTicker(max(every, time.Millisecond))
	defer t.Stop()
	for {
		r, err := source(ctx)
		if err == nil {
			err = g.Set(g.known(r))
		}
		if err != nil && ctx.Err() == nil && failed != nil {
			failed(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// known returns rates without those of indexes that have no budgets.
func (g *Governor) known(r Rates) Rates {
	r.Tables = maps.Clone(r.Tables)
	g.mu.RLock()
	defer g.mu.RUnlock()
	for name, limits := range r.Tables {
		if t := g.tables[name]; t != nil {
			limits.Indexes = maps.Clone(limits.Indexes)
			maps.DeleteFunc(limits.Indexes, func(x string, _ Limits) bool { return t.own(x) == [2]*budget{} })
			r.Tables[name] = limits
		}
	}
	return r
}

func (g *Governor) now() int64 { return int64(time.Since(g.began)) }

// joinTimeout is the longest time that New may take.
const joinTimeout = 30 * time.Second

func (g *Governor) join() error {
	ctx, cancel := context.WithTimeout(context.Background(), joinTimeout)
	defer cancel()
	cfg := rates.Config{
		Registry: g.cfg.Coordinator, Worker: g.cfg.Worker, Refresh: g.cfg.Refresh, Forget: g.cfg.Forget,
		Demand: g.demand, Granted: g.granted,
	}
	for _, b := range g.shared {
		cfg.Budgets = append(cfg.Budgets, rates.Budget{Name: b.name(), Limit: b.limit})
	}
	if len(cfg.Budgets) == 0 {
		return &ConfigError{Field: "Coordinator", Reason: "shares nothing: every rate is Unlimited"}
	}
	var err error
	g.member, err = rates.Join(ctx, cfg)
	return err
}

func (g *Governor) demand(i int) (want, used int64) {
	b := g.shared[i]
	b.mu.Lock()
	defer b.mu.Unlock()
	want, used = b.meter.demand(g.now(), b.turn)
	if b.ceiling > 0 && (want < 0 || want > b.ceiling) {
		want = b.ceiling // no more than DynamoDB can take
	}
	return want, used
}

func (g *Governor) granted(shares []int64) {
	now := g.now()
	for i, share := range shares {
		g.shared[i].setShare(now, share)
	}
}

// Close ends the governor. If it is in a fleet, it leaves it: its share is free for others at once, and calls that wait
// for the share or come later fail with [ErrClosed]. Without a fleet, Close does nothing. It is idempotent.
func (g *Governor) Close() error {
	g.closing.Do(func() {
		if g.member == nil {
			return
		}
		close(g.closed)
		g.err = g.member.Close()
	})
	if errors.Is(g.err, context.DeadlineExceeded) {
		return nil // its share expires by itself
	}
	return g.err
}
