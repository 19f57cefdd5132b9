package fleet

import (
	"slices"
	"time"
)

// ledger is a leader's account of what every worker may be using. It is pure: the time is passed in.
type ledger struct {
	lease, forget time.Duration
	last          grants
	looked        time.Time // when reports were last read
	workers       map[string]*account
}

// account is what the ledger knows about one worker.
type account struct {
	seen   time.Time // when the report with this seq was first read
	report report
	issued Issues[granted]
}

// granted is what a worker may use, and until when.
type granted struct {
	expires    time.Time
	rate, safe []int64
}

// newLedger continues from what another leader published. Everything in it is outstanding for a whole lease.
func newLedger(g *grants, lease time.Duration, now time.Time) *ledger {
	l := &ledger{lease: lease, last: *g, looked: now, workers: make(map[string]*account, len(g.Workers))}
	expires := now.Add(max(lease, time.Duration(g.LeaseMS)*time.Millisecond))
	before := g.Version
	before.Seq--
	for id, w := range g.Workers {
		if w == nil {
			continue
		}
		l.workers[id] = &account{seen: now, report: report{Seq: w.Seq}, issued: Issues[granted]{
			{before, granted{expires, w.HeldRate, w.HeldSafe}}, {g.Version, granted{expires, w.Rate, w.Safe}},
		}}
	}
	return l
}

// observe records the reports, which were read before now. It returns the workers to forget, and whether there is a new
// one. A worker without a report has left. If the reports could not be read for a lease, then they could not be written
// either: the workers count as seen now.
func (l *ledger) observe(reports map[string]*report, now time.Time) (forgotten []string, newcomer bool) {
	away := now.Sub(l.looked) >= l.lease
	l.looked = now
	for id, a := range l.workers {
		if reports[id] == nil {
			delete(l.workers, id)
		} else if away {
			a.seen = now
		}
	}
	for id, r := range reports {
		a := l.workers[id]
		if a == nil {
			a, newcomer = &account{seen: now}, true
			l.workers[id] = a
		}
		if r.Seq != a.report.Seq {
			a.seen = now
		}
		a.report = *r
		a.issued.Confirm(r.Ack)
		if now.Sub(a.seen) >= l.forget {
			delete(l.workers, id)
			forgotten = append(forgotten, id)
		}
	}
	return forgotten, newcomer
}

func (l *ledger) missing(a *account, now time.Time) bool { return now.Sub(a.seen) >= l.lease }

// outstanding returns the most that the worker may be using of a budget.
func (a *account) outstanding(budget int, now time.Time) (most int64) {
	for _, i := range a.issued {
		most = max(most, at(i.Grant.safe, budget))
		if now.Before(i.Grant.expires) {
			most = max(most, at(i.Grant.rate, budget))
		}
	}
	return most
}

// issue computes the next grants. They count once they are published: see commit.
func (l *ledger) issue(leader string, epoch uint64, now time.Time) *grants {
	g := &grants{
		Version: Version{epoch, l.last.Seq + 1}, Leader: leader, LeaseMS: l.lease.Milliseconds(),
		Budgets: l.last.Budgets, Workers: make(map[string]*grant, len(l.workers)),
	}
	for _, a := range l.workers {
		for _, d := range a.report.Budgets {
			if !slices.Contains(g.Budgets, d.Name) {
				g.Budgets = append(slices.Clip(g.Budgets), d.Name)
			}
		}
	}
	n := len(g.Budgets)
	if n == 0 {
		g.Count = len(l.workers)
		return g
	}
	g.Limits = make([]int64, n)
	for id, a := range l.workers {
		w := &grant{
			Seq: a.report.Seq, Rate: make([]int64, n), Safe: make([]int64, n), HeldRate: make([]int64, n),
			HeldSafe: make([]int64, n),
		}
		for _, i := range a.issued {
			for b := range n {
				w.HeldSafe[b] = max(w.HeldSafe[b], at(i.Grant.safe, b))
				if now.Before(i.Grant.expires) {
					w.HeldRate[b] = max(w.HeldRate[b], at(i.Grant.rate, b))
				}
			}
		}
		g.Workers[id] = w
	}
	for b := range n {
		l.share(g, b, now)
	}
	return g
}

// share divides one budget. The limit is the lowest that a worker states.
func (l *ledger) share(g *grants, budget int, now time.Time) {
	var living []*grant
	var claims []Claim
	var has []int64
	var limit, held, reserved, known int64
	for id, a := range l.workers {
		out := a.outstanding(budget, now)
		held += out
		d := a.report.demand(g.Budgets[budget])
		if d != nil || out > 0 {
			known++
		}
		switch {
		case d == nil || l.missing(a, now):
			reserved += out
			g.Workers[id].Safe[budget] = g.Workers[id].HeldSafe[budget]
		default:
			living, claims, has = append(living, g.Workers[id]), append(claims, d.claim()), append(has, out)
			if limit == 0 || d.Limit < limit {
				limit = d.Limit
			}
		}
	}
	g.Limits[budget] = limit
	pool := max(0, limit-reserved)
	for i := range claims {
		// Who wants nothing keeps a tenth of an equal share, to begin with.
		claims[i].Want = max(claims[i].Want, pool/int64(len(claims))/10)
	}
	targets := Divide(pool, claims)
	urgent := limit < held
	for i := range living {
		urgent = urgent || has[i] == 0 && targets[i] > 0
	}
	next := HandOut(targets, has, limit-held)
	for i, w := range living {
		if lost := has[i] - next[i]; lost > 0 && !urgent {
			// Reports arrive one after another: a worker that may yet report a higher demand keeps half of what it may
			// lose.
			next[i] += lost / 2
		}
		w.Rate[budget] = next[i]
		w.Safe[budget] = min(next[i], limit/(2*known))
	}
}

// starving reports whether a worker has nothing of a budget that is large enough for everybody: it waits for others to
// confirm that they use less.
func (l *ledger) starving(g *grants, now time.Time) bool {
	for id, a := range l.workers {
		for b, name := range g.Budgets {
			if !l.missing(a, now) && a.report.demand(name) != nil && g.Workers[id].Rate[b] == 0 &&
				g.Limits[b] >= int64(len(l.workers)) {
				return true
			}
		}
	}
	return false
}

// commit records grants as published: from now on they are outstanding.
func (l *ledger) commit(g *grants) {
	l.last = *g
	for id, w := range g.Workers {
		a := l.workers[id]
		a.issued.Publish(g.Version, granted{a.seen.Add(l.lease), w.Rate, w.Safe}, merged)
	}
}

// merged returns a grant that covers both.
func merged(a, b granted) granted {
	m := granted{expires: b.expires}
	if a.expires.After(m.expires) {
		m.expires = a.expires
	}
	for i := range max(len(a.rate), len(b.rate)) {
		m.rate = append(m.rate, max(at(a.rate, i), at(b.rate, i)))
	}
	for i := range max(len(a.safe), len(b.safe)) {
		m.safe = append(m.safe, max(at(a.safe, i), at(b.safe, i)))
	}
	return m
}
