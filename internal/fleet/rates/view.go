package rates

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/fleet"
)

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

// Inspect reads the current records of a fleet. It writes nothing and does not join. If there is no fleet, the view is
// empty.
func Inspect(ctx context.Context, c fleet.Registry) (View, error) {
	rec, err := c.Get(ctx, fleet.GrantsName)
	if err != nil {
		return View{}, fmt.Errorf("read grants: %w", err)
	}
	g := new(grants)
	if err := fleet.DecodeGrants(rec, g); err != nil {
		return View{}, err
	}
	reports, err := fleet.Reports[report](ctx, c)
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
