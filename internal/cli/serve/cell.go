package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/admin"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/fleet/cells"
	limiter "github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/serve/metrics"
	"github.com/weirlimits/weir/store"
)

// cellFlags say which cell the process belongs to.
type cellFlags struct {
	Name     string        `json:"cell"`
	Registry string        `json:"cells"`
	Beat     time.Duration `json:"cell_beat" range:"100ms..1m" default:"1s"`

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

//nolint:unparam // a step of a part may fail
func (f *cellFlags) open(_ context.Context, s *serving) error {
	if f.Name == "" {
		return nil
	}
	s.atEnd(func() { f.close(s.log) })
	s.observers = append(s.observers, f.observer())
	s.run.Shares = func(st store.Store) (policy.Shares, error) { return f.shares(st, s.log) }
	return nil
}

// shares creates the cell's agent on the limiter's store.
func (f *cellFlags) shares(st store.Store, log *slog.Logger) (policy.Shares, error) {
	var err error
	if f.opened, err = stores.Open(f.Registry, stores.Existing); err != nil {
		return nil, fmt.Errorf("--cells: %w", err)
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
	s.metrics.counts.Register(func(to *metrics.Scrape) { f.figures().Report(to) })
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

// figures returns the cell's state, for metrics.
func (f *cellFlags) figures() metrics.Cell {
	s := f.agent.Status()
	c := metrics.Cell{Name: f.Name, Leads: s.Leads, Contact: s.Contact}
	for i := range s.View.Cells {
		if s.View.Cells[i].Missing {
			c.Missing++
		}
		if s.View.Cells[i].Name == f.Name {
			c.Others = s.View.Cells[i].Others
		}
	}
	for _, namespace := range s.View.Namespaces() {
		c.Shares = append(c.Shares, metrics.CellShare{
			Namespace: namespace, Share: admin.Part1(f.agent.Share(namespace).Num), Ratio: s.View.Ratio(namespace),
			Admitted: s.View.Admitted(namespace),
		})
	}
	return c
}
