package cells

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/fleet"
)

// ledger is a controller's account of the shares that may be in use in each cell. It is pure: the time is passed in.
type ledger struct {
	*fleet.Ledger

	accounts  map[string]*account
	since     time.Time           // when it took over from another controller; zero: from none
	capped    bool                // as last published
	divisions map[string]division // by namespace
	measures  map[string]*measure // by key
}

// account is the account of one cell.
type account struct {
	birth     string
	store     string // the installation that is the cell; "": none has reported
	draining  bool
	instances map[string]*instance
}

// instance is an instance as last read.
type instance struct {
	record instanceRecord
	seen   time.Time
	heard  bool // it has beaten since it was first read, at seen
	other  bool // it belongs to an installation that is not the cell, and has no share
	since  time.Time
}

// newLedger takes over from what was published. All of it is outstanding.
func newLedger(g *grants, expiry time.Duration, now time.Time) *ledger {
	l := &ledger{
		Ledger: fleet.NewLedger(expiry, Whole, now), accounts: make(map[string]*account, len(g.Cells)),
		capped: g.capped(), divisions: make(map[string]division), measures: make(map[string]*measure),
	}
	for name, c := range g.Cells {
		l.since = now
		l.accounts[name] = &account{birth: c.Birth, store: c.Store, instances: make(map[string]*instance)}
		l.Observe(name, now, c.Lost)
		if len(c.Held) > 0 {
			before := c.Version
			before.Seq-- // so that only a confirmation of the shares themselves clears it
			l.Commit(name, before, fleet.Grant{Shares: c.Held})
		}
		l.Commit(name, c.Version, fleet.Grant{Shares: c.Shares})
	}
	return l
}

// seen is what was read about a cell: its record, and its instances by id.
type seen struct {
	cellRecord
	instances map[string]instanceRecord
}

// observe takes in what was read before now. A cell without a record has left and holds nothing.
func (l *ledger) observe(cells map[string]seen, now time.Time) {
	l.BeginRound(now)
	for name, a := range l.accounts {
		if c, ok := cells[name]; !ok || c.Birth != a.birth {
			delete(l.accounts, name)
			l.Remove(name)
		}
	}
	for name, c := range cells {
		a := l.accounts[name]
		if a == nil {
			a = &account{birth: c.Birth, instances: make(map[string]*instance)}
			l.accounts[name] = a
			l.Observe(name, time.Time{}, Version{})
		}
		a.draining = c.Draining
	}
	for name, c := range cells {
		l.observeInstances(name, l.accounts[name], c.instances, now)
	}
}

// offered returns the load offered to a cell's instances.
func (l *ledger) offered(a *account, namespace string, now time.Time) (n int64) {
	for _, s := range a.instances {
		if !s.other && now.Sub(s.seen) < l.Patience {
			n += s.record.Offered[namespace]
		}
	}
	return n
}

// learning reports whether the controller has not yet seen which instances are alive.
func (l *ledger) learning(now time.Time) bool {
	return !l.since.IsZero() && now.Sub(l.since) < l.Patience
}

// issue computes the next grants. They take effect once they are published: see commit.
func (l *ledger) issue(h fleet.Head, set Settings, now time.Time) *grants {
	g := &grants{Head: h, Settings: set, Cells: make(map[string]*cell, len(l.accounts))}
	next := make(map[string]Shares, len(l.accounts))
	for name := range l.accounts {
		next[name] = make(Shares)
	}
	for _, namespace := range l.namespaces(set, now) {
		l.assign(next, namespace, set, now)
	}
	g.Over, g.Differ = l.over(now), l.differ(now)
	for name, a := range l.accounts {
		c := &cell{
			Birth: a.birth, Version: g.Version, Shares: next[name], Held: make(Shares), Missing: l.Missing(name, now),
			Store: a.store, Others: l.others(a, now), Lost: l.Lost(name),
		}
		for namespace := range c.Shares {
			c.Held[namespace] = l.Held(name, namespace, now)
		}
		if maps.Equal(c.Held, c.Shares) {
			c.Held = nil
		}
		g.Cells[name] = c
	}
	changed := g.capped() != l.capped // then all adopt their shares once more
	for name, c := range g.Cells {
		before, shares := l.Last(name)
		if !changed && maps.Equal(shares, c.Shares) && before.Compare(c.Lost) > 0 {
			c.Version = before
		}
	}
	return g
}

// maxNamespaces limits how many namespaces have shares of their own, because the grants are one record.
const maxNamespaces = 200

// namespaces returns the namespaces that have or need shares of their own, the default first.
func (l *ledger) namespaces(set Settings, now time.Time) []string {
	held := make(map[string]bool)
	offered := make(map[string]int64)
	for name, a := range l.accounts {
		for _, shares := range l.Issued(name) {
			for namespace := range shares {
				held[namespace] = true
			}
		}
		for _, s := range a.instances {
			if s.other {
				continue
			}
			for namespace, n := range s.record.Offered {
				offered[namespace] += n
			}
		}
	}
	delete(held, Default)
	delete(offered, Default)
	maps.DeleteFunc(held, func(namespace string, _ bool) bool {
		return (set.Weights != Offered || offered[namespace] == 0) && l.likeDefault(namespace)
	})
	if set.Weights == Offered && !l.learning(now) {
		for _, namespace := range slices.SortedFunc(maps.Keys(offered), func(a, b string) int {
			return cmp.Or(cmp.Compare(offered[b], offered[a]), cmp.Compare(a, b)) // busiest first
		}) {
			if len(held) < maxNamespaces && offered[namespace] > 0 {
				held[namespace] = true
			}
		}
	}
	return append([]string{Default}, slices.Sorted(maps.Keys(held))...)
}

// likeDefault reports whether all shares of a namespace that may be in use equal the default's, so that it needs none
// of its own.
func (l *ledger) likeDefault(namespace string) bool {
	for name := range l.accounts {
		for _, shares := range l.Issued(name) {
			if shares.Of(namespace) != shares[Default] {
				return false
			}
		}
	}
	return true
}

// commit records grants as published: from now on they are outstanding.
func (l *ledger) commit(g *grants) {
	l.capped = g.capped()
	for name, c := range g.Cells {
		l.Commit(name, c.Version, fleet.Grant{Shares: c.Shares})
	}
}
