package rates

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/fleet"
)

// protocol is a worker's part in its fleet. Only the goroutine that beats uses it.
type protocol struct {
	w     *Worker
	sent  map[uint64]time.Time // when the reports were sent that grants may still answer
	hurry struct{ waits, lowered, newcomers bool }

	// While leading.
	now       time.Time // when the reports were read
	ledger    *fleet.Ledger
	last      *grants
	reports   map[string]*report
	forgotten map[string]uint64 // the last reports of the dead, by seq, as long as they are there
}

// whole exceeds every budget, even if many are added up.
const whole = 1 << 48

// lease returns how long shares are valid.
func (p *protocol) lease() time.Duration { return leaseRefreshes * p.w.cfg.Refresh }

// Beat implements [fleet.Protocol].
func (p *protocol) Beat() (beat time.Duration, hurry bool) {
	return p.w.cfg.Refresh, p.hurry.waits || p.hurry.lowered || p.hurry.newcomers
}

// None implements [fleet.Protocol].
func (p *protocol) None() *grants { return new(grants) }

// Report implements [fleet.Protocol].
func (p *protocol) Report(_ context.Context, seq uint64) (any, error) {
	p.w.lapse() // the timer stands still while the machine is suspended
	now := time.Now()
	maps.DeleteFunc(p.sent, func(_ uint64, t time.Time) bool { return now.Sub(t) > 2*p.lease() })
	p.sent[seq] = now
	p.hurry.lowered = false
	r := report{Seq: seq, Ack: p.w.follows(), Budgets: make([]demand, len(p.w.cfg.Budgets))}
	for i, b := range p.w.budgets() {
		want, used := p.w.cfg.Demand(i)
		r.Budgets[i] = demand{b.Name, b.Limit, want, used}
	}
	return r, nil
}

// Follow implements [fleet.Protocol].
func (p *protocol) Follow(_ context.Context, g *grants) {
	mine := g.Workers[p.w.id]
	var sent time.Time
	if mine != nil {
		sent = p.sent[mine.Seq]
	}
	p.hurry.lowered = p.w.follow(g, sent) || p.hurry.lowered
	p.hurry.waits = mine == nil || !slices.ContainsFunc(mine.Rate, func(rate int64) bool { return rate > 0 })
	p.hurry.newcomers = g == p.last && p.hurry.newcomers
}

// Reports implements [fleet.Protocol].
func (p *protocol) Reports(ctx context.Context) (epoch uint64, err error) {
	p.reports, err = fleet.Reports[report](ctx, p.w.cfg.Registry)
	p.now = time.Now()
	for id, seq := range p.forgotten {
		if r := p.reports[id]; r != nil && r.Seq == seq {
			delete(p.reports, id)
		} else if err == nil {
			delete(p.forgotten, id)
		}
	}
	for _, r := range p.reports {
		epoch = max(epoch, r.Ack.Epoch)
	}
	return epoch, err
}

// TakeOver implements [fleet.Protocol]. Everything in the grants is outstanding for a whole lease.
func (p *protocol) TakeOver(g *grants) {
	p.ledger, p.last = fleet.NewLedger(p.lease(), whole, p.now), g
	expires := p.now.Add(max(p.lease(), time.Duration(g.LeaseMS)*time.Millisecond))
	before := g.Version
	before.Seq--
	for id, w := range g.Workers {
		if w == nil || p.reports[id] == nil { // without a report, it has left
			continue
		}
		p.ledger.Observe(id, p.now, w.Lost)
		p.ledger.Commit(id, before, g.of(w.HeldRate, w.HeldSafe, expires))
		p.ledger.Commit(id, g.Version, g.of(w.Rate, w.Safe, expires))
	}
}

// observe enters the reports into the ledger.
func (p *protocol) observe() {
	p.ledger.BeginRound(p.now)
	for id, w := range p.last.Workers {
		if w != nil && p.reports[id] == nil {
			p.ledger.Remove(id)
		}
	}
	for id := range p.reports {
		p.hurry.newcomers = p.ledger.Observe(id, time.Time{}, fleet.Version{}) || p.hurry.newcomers
	}
	for id, r := range p.reports {
		var seen time.Time
		if w := p.last.Workers[id]; w == nil || w.Seq != r.Seq {
			seen = p.now
		}
		p.ledger.Observe(id, seen, r.Ack)
		if p.ledger.Silent(id, p.now) >= p.w.cfg.Forget {
			p.ledger.Remove(id)
			delete(p.reports, id)
			p.forgotten[id] = r.Seq
		}
	}
}

// Issue implements [fleet.Protocol].
func (p *protocol) Issue(h fleet.Head) *grants {
	p.hurry.newcomers = false
	p.observe()
	g := &grants{
		Head: h, LeaseMS: p.lease().Milliseconds(), Budgets: p.last.Budgets,
		Workers: make(map[string]*grant, len(p.reports)),
	}
	for _, r := range p.reports {
		for _, d := range r.Budgets {
			if !slices.Contains(g.Budgets, d.Name) {
				g.Budgets = append(slices.Clip(g.Budgets), d.Name)
			}
		}
	}
	n := len(g.Budgets)
	g.Limits = make([]int64, n)
	for id, r := range p.reports {
		w := &grant{
			Seq: r.Seq, Rate: make([]int64, n), Safe: make([]int64, n), HeldRate: make([]int64, n),
			HeldSafe: make([]int64, n), Lost: p.ledger.Lost(id),
		}
		for b, name := range g.Budgets {
			w.HeldRate[b], w.HeldSafe[b] = p.ledger.Outstanding(id, name, p.now)
		}
		g.Workers[id] = w
	}
	for b := range g.Budgets {
		p.divide(g, b)
	}
	p.hurry.newcomers = p.hurry.newcomers || p.starving(g)
	return g
}

// divide divides one budget. The limit is the lowest that a worker states.
func (p *protocol) divide(g *grants, budget int) {
	name := g.Budgets[budget]
	var living, missing []string
	var claims []fleet.Claim
	var limit, held, reserved, known int64
	has := make(map[string]int64)
	for id, r := range p.reports {
		out := p.ledger.Held(id, name, p.now)
		held += out
		d := r.demand(name)
		if d != nil || out > 0 {
			known++
		}
		if d == nil || p.ledger.Missing(id, p.now) {
			if missing = append(missing, id); p.ledger.Lost(id) == (fleet.Version{}) {
				reserved += out // else nobody's share rises, so what the others have need not shrink
			}
			continue
		}
		living, claims, has[id] = append(living, id), append(claims, d.claim()), out
		if limit == 0 || d.Limit < limit {
			limit = d.Limit
		}
	}
	g.Limits[budget] = limit
	for _, id := range missing {
		g.Workers[id].Safe[budget] = g.Workers[id].HeldSafe[budget]
		if p.ledger.Lost(id) != (fleet.Version{}) {
			g.Workers[id].Safe[budget] = min(g.Workers[id].HeldSafe[budget], limit/2)
		}
	}
	pool := max(0, limit-reserved)
	for i := range claims {
		// Who wants nothing keeps a tenth of an equal share, to begin with.
		claims[i].Want = max(claims[i].Want, pool/int64(len(claims))/10)
	}
	targets, content := make(map[string]int64, len(living)), make(map[string]bool, len(living))
	urgent := limit < held
	for i, target := range fleet.Divide(pool, claims) {
		targets[living[i]], content[living[i]] = target, claims[i].Want <= target
		urgent = urgent || has[living[i]] == 0 && target > 0
	}
	for id, share := range p.ledger.Issue(name, limit, targets, p.now) {
		if lost := has[id] - share; lost > 0 && content[id] && !urgent {
			// Reports arrive one after another: a worker that may yet report a higher demand keeps half of what it may
			// lose. Who wants more than its target gets no more by a later report.
			share += lost / 2
		}
		g.Workers[id].Rate[budget] = share
		g.Workers[id].Safe[budget] = min(share, limit/(2*known))
	}
}

// starving reports whether a worker has nothing of a budget that is large enough for everybody: it waits for others to
// confirm that they use less.
func (p *protocol) starving(g *grants) bool {
	for id, r := range p.reports {
		for b, name := range g.Budgets {
			if !p.ledger.Missing(id, p.now) && r.demand(name) != nil && g.Workers[id].Rate[b] == 0 &&
				g.Limits[b] >= int64(len(p.reports)) {
				return true
			}
		}
	}
	return false
}

// Commit implements [fleet.Protocol]. It removes the reports of forgotten workers.
func (p *protocol) Commit(ctx context.Context, g *grants) error {
	p.last = g
	for id, w := range g.Workers {
		// The lease counts from when the report that the grants answer was first read, at the latest.
		expires := p.now.Add(p.lease() - p.ledger.Silent(id, p.now))
		p.ledger.Commit(id, g.Version, g.of(w.Rate, w.Safe, expires))
	}
	for id := range p.forgotten {
		if err := p.w.cfg.Registry.Delete(ctx, fleet.ReportPrefix+id); err != nil {
			return fmt.Errorf("forget %s: %w", id, err)
		}
	}
	return nil
}
