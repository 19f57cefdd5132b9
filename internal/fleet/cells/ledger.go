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
	expiry   time.Duration // see Config.Expiry
	last     grants
	accounts map[string]*account
	since    time.Time // when it took over from another controller; zero: from none
	targets  map[string]target
	measures map[string]*measure // by key
}

// account is the account of one cell.
type account struct {
	birth     string
	store     string // the installation that is the cell; "": none has reported
	draining  bool
	seen      time.Time // when an instance was last seen to change; zero: not yet
	instances map[string]*sighting
	issued    fleet.Issues[Shares] // those that may be in use in the cell
}

// sighting is an instance as last read.
type sighting struct {
	record instanceRecord
	seen   time.Time
	heard  bool // it has beaten since it was first read, at seen
	other  bool // it belongs to an installation that is not the cell, and has no share
	since  time.Time
}

// target is how a namespace was last divided.
type target struct {
	at     time.Time
	cells  []string
	pool   int64
	shares []int64
}

// newLedger takes over from what was published. All of it is outstanding.
func newLedger(g *grants, expiry time.Duration, now time.Time) *ledger {
	l := &ledger{
		expiry: expiry, last: *g, accounts: make(map[string]*account, len(g.Cells)), targets: make(map[string]target),
		measures: make(map[string]*measure),
	}
	for name, c := range g.Cells {
		l.since = now
		a := &account{birth: c.Birth, store: c.Store, seen: now, instances: make(map[string]*sighting)}
		if len(c.Held) > 0 {
			before := c.Version
			before.Seq-- // so that only a confirmation of the shares themselves clears it
			a.issued = append(a.issued, fleet.Issue[Shares]{Version: before, Grant: c.Held})
		}
		a.issued = append(a.issued, fleet.Issue[Shares]{Version: c.Version, Grant: c.Shares})
		l.accounts[name] = a
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
	maps.DeleteFunc(l.accounts, func(name string, a *account) bool {
		c, ok := cells[name]
		return !ok || c.Birth != a.birth
	})
	for name, c := range cells {
		a := l.accounts[name]
		if a == nil {
			a = &account{birth: c.Birth, instances: make(map[string]*sighting)}
			l.accounts[name] = a
			a.assume(c.instances)
		}
		a.draining = c.Draining
		l.sight(a, c.instances, now)
	}
}

// assume assumes that a cell has the whole, if it uses grants that have been lost.
func (a *account) assume(instances map[string]instanceRecord) {
	var ack Version
	for _, r := range instances {
		if r.Ack.Compare(ack) > 0 {
			ack = r.Ack
		}
	}
	if (ack != Version{}) {
		a.issued = fleet.Issues[Shares]{{Version: ack, Grant: Shares{Default: Whole}}}
	}
}

// missing reports whether nothing has been heard of a cell for an expiry.
func (l *ledger) missing(a *account, now time.Time) bool {
	return a.seen.IsZero() || now.Sub(a.seen) >= l.expiry
}

// offered returns the load offered to a cell's instances.
func (l *ledger) offered(a *account, namespace string, now time.Time) (n int64) {
	for _, s := range a.instances {
		if !s.other && now.Sub(s.seen) < l.expiry {
			n += s.record.Offered[namespace]
		}
	}
	return n
}

// held returns the largest share that may be in use in a cell.
func (a *account) held(namespace string) (most int64) {
	for _, i := range a.issued {
		most = max(most, i.Grant.Of(namespace))
	}
	return most
}

// current returns the shares last granted to a cell.
func (a *account) current() Shares {
	if len(a.issued) == 0 {
		return nil
	}
	return a.issued[len(a.issued)-1].Grant
}

// learning reports whether the controller does not know yet which instances are alive.
func (l *ledger) learning(now time.Time) bool {
	return !l.since.IsZero() && now.Sub(l.since) < l.expiry
}

// issue computes the next grants. They take effect once they are published: see commit.
func (l *ledger) issue(leader string, epoch uint64, set Settings, now time.Time) *grants {
	g := &grants{
		Version: Version{Epoch: epoch, Seq: l.last.Seq + 1}, Leader: leader, Settings: set,
		Cells: make(map[string]*cell, len(l.accounts)),
	}
	next := make(map[string]Shares, len(l.accounts))
	for name := range l.accounts {
		next[name] = make(Shares)
	}
	for _, namespace := range l.namespaces(set, now) {
		l.share(next, namespace, set, now)
	}
	g.Over = l.over(now)
	for name, a := range l.accounts {
		c := &cell{
			Birth: a.birth, Version: g.Version, Shares: next[name], Held: make(Shares), Missing: l.missing(a, now),
			Store: a.store, Others: l.others(a, now),
		}
		if before := len(a.issued) - 1; before >= 0 && maps.Equal(a.issued[before].Grant, c.Shares) {
			c.Version = a.issued[before].Version
		}
		for namespace := range c.Shares {
			c.Held[namespace] = a.held(namespace)
		}
		if maps.Equal(c.Held, c.Shares) {
			c.Held = nil
		}
		g.Cells[name] = c
	}
	return g
}

// maxNamespaces limits how many namespaces have shares of their own, because the grants are one record.
const maxNamespaces = 200

// namespaces returns the namespaces that have or need shares of their own, the default first.
func (l *ledger) namespaces(set Settings, now time.Time) []string {
	held := make(map[string]bool)
	offered := make(map[string]int64)
	for _, a := range l.accounts {
		for _, i := range a.issued {
			for namespace := range i.Grant {
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
	for _, a := range l.accounts {
		for _, i := range a.issued {
			if i.Grant.Of(namespace) != i.Grant[Default] {
				return false
			}
		}
	}
	return true
}

// commit records grants as published: from now on they are outstanding.
func (l *ledger) commit(g *grants) {
	l.last = *g
	for name, c := range g.Cells {
		a := l.accounts[name]
		if n := len(a.issued); n > 0 && a.issued[n-1].Version == c.Version {
			continue
		}
		a.issued.Publish(c.Version, c.Shares, merged)
	}
}

// merged returns shares that cover both.
func merged(a, b Shares) Shares {
	m := make(Shares)
	for _, s := range []Shares{a, b} {
		for namespace := range s {
			m[namespace] = max(a.Of(namespace), b.Of(namespace))
		}
	}
	return m
}
