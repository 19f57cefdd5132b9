package serve

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/fleet/cells"
	limiter "github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/metrics"
	"github.com/weirlimits/weir/store"
)

// cellFlags configure the cell that the process belongs to.
type cellFlags struct {
	Name     string         `json:"cell"`
	Registry secret.Address `json:"cells"`
	Beat     time.Duration  `json:"cell_beat" range:"100ms..1m" default:"1s"`

	opened store.Store // the registry's
	agent  *cells.Agent
	lim    atomic.Pointer[weir.Limiter]
}

func (f *cellFlags) check() error {
	if (f.Name == "") != (f.Registry == "") {
		return kit.Usage(errors.New("--cell and --cells must be used together: the cell's name, and the store with " +
			"the cells' registry"))
	}
	if f.Name == "" {
		return nil
	}
	if err := cells.CheckName(f.Name); err != nil {
		return kit.Usage(err)
	}
	return nil
}

func (f *cellFlags) open(_ context.Context, s *serving) error {
	if f.Name == "" {
		return nil
	}
	s.atEnd(func() { f.close(s.log) })
	s.observers = append(s.observers, f.observer())
	s.run.Shares = func(st store.Store) (policy.Shares, error) { return f.shares(st, s.log) }
	_, err := s.run.StoreAt("cells", f.Registry)
	return err
}

// shares creates the cell's agent on the limiter's store.
func (f *cellFlags) shares(st store.Store, log *slog.Logger) (policy.Shares, error) {
	var err error
	f.opened, err = openAside("cells", f.Registry, log, func(ctx context.Context) (bool, error) {
		cell, err := cells.Owner(ctx, st)
		return cell == f.Name, err
	})
	if err != nil {
		return nil, err
	}
	_, alone := st.(store.Exclusive)
	f.agent, err = cells.New(cells.Config{
		Registry: f.opened, Local: st, Cell: f.Name, Alone: alone, Beat: f.Beat, Log: log,
		Changed: func() {
			if lim := f.lim.Load(); lim != nil {
				limiter.Of(lim).Policies.SharesChanged()
			}
		},
	})
	return f.agent, err
}

// observer counts the requests that are offered to the cell.
func (f *cellFlags) observer() *weir.Observer {
	return &weir.Observer{Decided: func(_ context.Context, e weir.DecidedEvent) { f.agent.Count(e) }}
}

// ready returns an error while the cell has no share, so that it admits nothing.
func (f *cellFlags) ready() error {
	if f.agent != nil && !f.agent.Admits() {
		return decide.ErrNoShare
	}
	return nil
}

// start starts the agent's heartbeats.
func (f *cellFlags) start(ctx context.Context, s *serving) error {
	if f.agent == nil {
		return nil
	}
	f.lim.Store(s.lim)
	policies := limiter.Of(s.lim).Policies
	limiter.Of(s.lim).Meter.Tap(f.agent.Debited)
	s.atEnd(func() { f.close(s.log) })
	if err := f.agent.Start(ctx); err != nil {
		return err
	}
	policies.SharesChanged()
	s.metrics.counts.Register(func(to *metrics.Scrape) {
		reportCell(to, f.Name, f.agent.Status(), func(namespace string) int64 { return f.agent.Share(namespace).Num })
	})
	return nil
}

func (f *cellFlags) close(log *slog.Logger) {
	if f.agent != nil {
		if err := f.agent.Close(); err != nil {
			log.Warn("closing the cell's agent failed", slog.Any("error", err))
		}
	}
	if f.opened != nil {
		_ = f.opened.Close()
	}
}

// cellShare is a cell's share of a namespace's limits, and what all cells together may be admitting and have admitted.
// 1 is the whole.
type cellShare struct {
	namespace              string
	share, ratio, admitted float64
}

// reportCell adds the metrics of a cell. The shares of namespaces without a label of their own are reported as one,
// with the highest value of any of them.
func reportCell(s *metrics.Scrape, name string, st cells.Status, share func(namespace string) int64) {
	cell := []string{"cell", name}
	missing, others := 0, 0
	for i := range st.View.Cells {
		c := &st.View.Cells[i]
		if c.Missing {
			missing++
		}
		if c.Name == name {
			others = c.Others
		}
	}
	s.Gauge("weir_cell_leads", "1 in the process that divides the limits among the cells.",
		metrics.Truth(st.Leads, cell...))
	s.Gauge("weir_cell_missing", "Cells that have not been heard from.", metrics.Value(missing, cell...))
	s.Gauge("weir_cell_foreign_processes", "Processes of another installation, with another store, that use this "+
		"cell's name.", metrics.Value(others, cell...))
	s.Gauge("weir_cell_contact_age_seconds", "Time since the registry of cells was last read, or since the start.",
		metrics.Value(time.Since(st.Contact).Seconds(), cell...))
	s.Gauge("weir_cell_share_stale", "1 while the registry of cells does not answer, and the cell uses the share that "+
		"its own store has.", metrics.Truth(st.Err != nil, cell...))
	s.Gauge("weir_cell_limits_differ", "Namespaces of which two cells go by different limits, of those in use.",
		metrics.Value(len(st.View.Differ), cell...))
	var all []cellShare
	for _, namespace := range st.View.Namespaces() {
		all = append(all, cellShare{
			namespace, cells.Fraction(share(namespace)), st.View.Ratio(namespace), st.View.Admitted(namespace),
		})
	}
	for _, sh := range labeled(all, s.Namespaces) {
		labels := cell
		if s.Namespaces > 0 {
			labels = []string{"cell", name, "namespace", sh.namespace}
		}
		s.Gauge("weir_cell_share", "The cell's share of the limits; 1 is the whole. The largest of several namespaces.",
			metrics.Value(sh.share, labels...))
		s.Gauge("weir_cell_over_admission_ratio", "How much of the limits all cells together may be admitting; 1 is "+
			"the whole. The highest of several namespaces.", metrics.Value(sh.ratio, labels...))
		s.Gauge("weir_cell_admitted_ratio", "How much of a limit all cells together have recently admitted, for the "+
			"bucket with the most; 1 is the limit, or less. The highest of several namespaces.",
			metrics.Value(sh.admitted, labels...))
	}
}

// labeled returns at most the given number of shares, those with the highest ratios, and the others as one.
func labeled(all []cellShare, most int) []cellShare {
	slices.SortFunc(all, func(a, b cellShare) int {
		return cmp.Or(cmp.Compare(max(b.ratio, b.admitted), max(a.ratio, a.admitted)),
			cmp.Compare(a.namespace, b.namespace))
	})
	var own []cellShare
	rest := cellShare{namespace: metrics.Other}
	for _, sh := range all {
		if sh.namespace != cells.Default && sh.namespace != metrics.Other && len(own) < most {
			own = append(own, sh)
			continue
		}
		rest.share, rest.ratio = max(rest.share, sh.share), max(rest.ratio, sh.ratio)
		rest.admitted = max(rest.admitted, sh.admitted)
	}
	return append(own, rest)
}
