package fleet

import (
	"cmp"
	"slices"
	"time"
)

// Version orders grants: a later epoch is newer, and within an epoch a later seq.
type Version struct {
	Epoch uint64 `json:"epoch"`
	Seq   uint64 `json:"seq"`
}

// Compare orders versions.
func (v Version) Compare(o Version) int {
	return cmp.Or(cmp.Compare(v.Epoch, o.Epoch), cmp.Compare(v.Seq, o.Seq))
}

// Shares are amounts by key. The key "" stands for all keys that are not listed.
type Shares map[string]int64

// Of returns the share of a key.
func (s Shares) Of(key string) int64 {
	if n, ok := s[key]; ok {
		return n
	}
	return s[""]
}

// Grant is what a party may use: its shares and, once they have expired, the safe ones.
type Grant struct {
	Shares, Safe Shares
	Expires      time.Time // zero: never
}

// Ledger is a leader's account of what every party may be using. What was granted counts until the party has confirmed
// newer grants, or until it expires. A ledger is pure: the time is passed in.
type Ledger struct {
	// Patience is how long a party may show no sign of life before it is missing.
	Patience time.Duration
	// Whole is what a party may be using of any key if it may be following grants that the ledger does not contain.
	Whole int64

	looked  time.Time
	parties map[string]*party
}

type party struct {
	seen   time.Time // zero: not yet
	issued []issue   // what it may be following, oldest first
	acked  Version   // the newest that it has confirmed
	lost   Version   // grants that it may be following and the ledger does not contain; zero: none
}

// issue is a grant that was published.
type issue struct {
	Version
	Grant
}

// MaxIssues bounds what is kept for a party that does not confirm anything.
const MaxIssues = 8

// NewLedger returns an empty ledger.
func NewLedger(patience time.Duration, whole int64, now time.Time) *Ledger {
	return &Ledger{Patience: patience, Whole: whole, looked: now, parties: make(map[string]*party)}
}

// BeginRound must be called before what was read is observed. If nothing could be read for as long as makes a party
// missing, nothing could be written either: then all count as seen now.
func (l *Ledger) BeginRound(now time.Time) {
	if now.Sub(l.looked) >= l.Patience {
		for _, p := range l.parties {
			if !p.seen.IsZero() {
				p.seen = now
			}
		}
	}
	l.looked = now
}

// Observe records when a party was seen, and which grants it confirms to follow: the zero version if none. It reports
// whether the party is new. If the ledger does not contain the grants that a party confirms, the registry has lost
// them. Then this party, and every other that has confirmed nothing as new, may be using anything until it confirms
// newer ones. So observe all parties before the first confirmation.
func (l *Ledger) Observe(name string, seen time.Time, ack Version) (added bool) {
	p := l.parties[name]
	if added = p == nil; added {
		p = new(party)
		l.parties[name] = p
	}
	if seen.After(p.seen) {
		p.seen = seen
	}
	if ack.Compare(p.acked) > 0 {
		p.acked = ack
	}
	contained := slices.ContainsFunc(p.issued, func(i issue) bool { return i.Version == ack })
	known := contained || ack == Version{} || len(p.issued) > 0 && ack.Compare(p.issued[0].Version) < 0
	if !known {
		for _, o := range l.parties {
			if (o == p || o.acked.Compare(ack) < 0) && o.lost.Compare(ack) < 0 {
				o.lost = ack
			}
		}
		return added
	}
	p.issued = slices.DeleteFunc(p.issued, func(i issue) bool { return i.Compare(ack) < 0 })
	if contained && ack.Compare(p.lost) > 0 { // older ones may also be lost
		p.lost = Version{}
	}
	return added
}

// Lost returns the newest grants that a party may be following and the ledger does not contain; zero if there are none.
func (l *Ledger) Lost(name string) Version { return l.parties[name].lost }

// AnyLost reports whether a party may be following grants that the ledger does not contain. Until it is not, the
// parties must not use more than they do, whatever they are granted: the ledger may have them at more.
func (l *Ledger) AnyLost() bool {
	for _, p := range l.parties {
		if p.lost != (Version{}) {
			return true
		}
	}
	return false
}

// Remove removes a party that uses nothing any more.
func (l *Ledger) Remove(name string) { delete(l.parties, name) }

// Silent returns for how long a party has shown no sign of life. One that never has is silent forever.
func (l *Ledger) Silent(name string, now time.Time) time.Duration {
	return now.Sub(l.parties[name].seen)
}

// Missing reports whether a party has been silent for too long.
func (l *Ledger) Missing(name string, now time.Time) bool { return l.Silent(name, now) >= l.Patience }

// Outstanding returns the most that a party may be using of a key now, and after its shares have expired.
func (l *Ledger) Outstanding(name, key string, now time.Time) (shares, safe int64) {
	if l.parties[name].lost != (Version{}) {
		return l.Whole, l.Whole
	}
	for _, i := range l.parties[name].issued {
		safe = max(safe, i.Safe.Of(key))
		if i.Expires.IsZero() || now.Before(i.Expires) {
			shares = max(shares, i.Shares.Of(key))
		}
	}
	return shares, safe
}

// Held returns the most that a party may be using of a key.
func (l *Ledger) Held(name, key string, now time.Time) int64 {
	shares, safe := l.Outstanding(name, key, now)
	return max(shares, safe)
}

// Issued returns the shares that a party may be using, oldest first.
func (l *Ledger) Issued(name string) (all []Shares) {
	for _, i := range l.parties[name].issued {
		all = append(all, i.Shares)
	}
	return all
}

// Last returns what a party was last granted: nothing, if it never was.
func (l *Ledger) Last(name string) (Version, Shares) {
	issued := l.parties[name].issued
	if len(issued) == 0 {
		return Version{}, nil
	}
	return issued[len(issued)-1].Version, issued[len(issued)-1].Shares
}

// Issue returns the next shares of the parties that have targets: nobody keeps more than its target, and what nobody
// may be using of the pool goes to those that lack something, in proportion. If parties may be using more than the
// pool, nobody is given more than it was last granted; nor is a party that may be following lost grants.
func (l *Ledger) Issue(key string, pool int64, targets map[string]int64, now time.Time) map[string]int64 {
	held := make(map[string]int64, len(targets))
	var lacking int64
	for name := range l.parties {
		held[name] = l.Held(name, key, now)
		pool -= held[name]
	}
	for name, target := range targets {
		lacking += max(0, target-held[name])
	}
	next := make(map[string]int64, len(targets))
	for name, target := range targets {
		if next[name] = min(target, held[name]); pool < 0 || l.Lost(name) != (Version{}) {
			_, last := l.Last(name)
			next[name] = min(target, last.Of(key))
		}
		if lack := target - held[name]; lack > 0 && pool > 0 {
			next[name] += scale(lack, min(pool, lacking), lacking)
		}
	}
	return next
}

// Commit records a grant as published: from now on it is outstanding. It ignores one of the version last published. If
// a party has too many, the two oldest become one that covers both.
func (l *Ledger) Commit(name string, v Version, g Grant) {
	p := l.parties[name]
	if n := len(p.issued); n > 0 && p.issued[n-1].Version == v {
		return
	}
	p.issued = append(p.issued, issue{v, g})
	if len(p.issued) > MaxIssues {
		p.issued[1].Grant = merged(p.issued[0].Grant, p.issued[1].Grant)
		p.issued = slices.Delete(p.issued, 0, 1)
	}
}

// merged returns a grant that covers both.
func merged(a, b Grant) Grant {
	g := Grant{Shares: a.Shares.merge(b.Shares), Safe: a.Safe.merge(b.Safe), Expires: b.Expires}
	if a.Expires.IsZero() || !g.Expires.IsZero() && a.Expires.After(g.Expires) {
		g.Expires = a.Expires
	}
	return g
}

func (s Shares) merge(o Shares) Shares {
	return s.combine(o, func(a, b int64) int64 { return max(a, b) })
}

// Cap returns the smaller share of each key.
func (s Shares) Cap(o Shares) Shares {
	return s.combine(o, func(a, b int64) int64 { return min(a, b) })
}

func (s Shares) combine(o Shares, f func(a, b int64) int64) Shares {
	m := make(Shares)
	for _, one := range []Shares{s, o} {
		for key := range one {
			m[key] = f(s.Of(key), o.Of(key))
		}
	}
	return m
}
