package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// lead writes the next grants, on condition that the record is still rec.
func (m *Member) lead(ctx context.Context, rec Record, g *grants) error {
	reports, err := readReports(ctx, m.cfg.Registry)
	if err != nil {
		return &JoinError{"read reports", err}
	}
	if rec.Version == "" {
		// if the grants were removed, the new ones must still be newer than any that were acknowledged
		for _, r := range reports {
			m.term.Epoch = max(m.term.Epoch, r.Ack.Epoch+1)
		}
	}
	now := time.Now()
	if m.ledger == nil || m.term.Own() != rec.Version {
		m.ledger = newLedger(g, leaseRefreshes*m.refresh, now)
	}
	m.ledger.lease, m.ledger.forget = leaseRefreshes*m.refresh, max(m.cfg.Forget, 8*m.refresh)
	forgotten, newcomer := m.ledger.observe(reports, now)
	next := m.ledger.issue(m.id, m.term.Epoch, now)
	m.hurry = newcomer || m.ledger.starving(next, now)
	version, err := m.cfg.Registry.Put(ctx, grantsName, encode(next), rec.Version)
	if err != nil {
		m.ledger = nil // they may or may not have been written: the next read will show
		m.setLeads(false)
		if errors.Is(err, ErrConflict) {
			return nil // another leads
		}
		return &JoinError{"write grants", err}
	}
	m.term.Wrote(version, m.patience(), m.refresh)
	m.ledger.commit(next)
	m.setLeads(true)
	m.adopt(next)
	for _, id := range forgotten {
		if err := m.cfg.Registry.Delete(ctx, reportPrefix+id); err != nil {
			return fmt.Errorf("forget %s: %w", id, err)
		}
	}
	return nil
}

func (m *Member) setLeads(leads bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status.Leads = leads
}

func readReports(ctx context.Context, c Registry) (map[string]*report, error) {
	recs, err := c.List(ctx, reportPrefix)
	if err != nil {
		return nil, err
	}
	reports := make(map[string]*report, len(recs))
	for _, rec := range recs {
		r, err := decode[report](rec)
		if err != nil {
			return nil, err
		}
		reports[strings.TrimPrefix(rec.Name, reportPrefix)] = r
	}
	return reports, nil
}

// resign lets another worker lead at once.
func (m *Member) resign(ctx context.Context) error {
	if m.ledger == nil {
		return nil
	}
	g := m.ledger.last
	g.Leader = ""
	g.Seq++
	if _, err := m.cfg.Registry.Put(ctx, grantsName, encode(&g), m.term.Own()); err != nil &&
		!errors.Is(err, ErrConflict) {
		return fmt.Errorf("leave fleet: resign: %w", err)
	}
	return nil
}

// View is the state of a fleet as its records show it.
type View struct {
	Leader  string // "" if there is currently no leader
	Epoch   uint64
	Lease   time.Duration
	Workers []WorkerView // by name, then budget
}

// WorkerView is a worker's part in a budget. Rates are in thousandths of a unit per second.
type WorkerView struct {
	Worker string
	Budget string
	Seq    uint64 // of its last report; if it does not change, the worker is missing
	Limit  int64  // of the whole fleet
	Share  int64
	Safe   int64 // what it falls back to when its lease ends
	Want   int64 // -1 means as much as possible
	Used   int64
}

// Look reads the current records of a fleet. It writes nothing and does not join. If there is no fleet, the view is
// empty.
func Look(ctx context.Context, c Registry) (View, error) {
	rec, err := c.Get(ctx, grantsName)
	if err != nil {
		return View{}, fmt.Errorf("read grants: %w", err)
	}
	g, err := decode[grants](rec)
	if err != nil {
		return View{}, err
	}
	reports, err := readReports(ctx, c)
	if err != nil {
		return View{}, fmt.Errorf("read reports: %w", err)
	}
	v := View{Leader: g.Leader, Epoch: g.Epoch, Lease: time.Duration(g.LeaseMS) * time.Millisecond}
	for id, r := range reports {
		for _, d := range r.Budgets {
			w := WorkerView{Worker: id, Budget: d.Name, Seq: r.Seq, Limit: d.Limit, Want: d.Want, Used: d.Used}
			if i := slices.Index(g.Budgets, d.Name); i >= 0 {
				w.Limit = at(g.Limits, i)
				if granted := g.Workers[id]; granted != nil {
					w.Share, w.Safe = at(granted.Rate, i), at(granted.Safe, i)
				}
			}
			v.Workers = append(v.Workers, w)
		}
	}
	slices.SortFunc(v.Workers, func(a, b WorkerView) int {
		return strings.Compare(a.Worker+"\x00"+a.Budget, b.Worker+"\x00"+b.Budget)
	})
	return v, nil
}
