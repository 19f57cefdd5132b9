package cells

import (
	"time"

	"github.com/weirlimits/weir/internal/fleet"
)

const (
	// jump: a change of a share by more than 1/jump is published at once.
	jump = 10
	// step: a change by more than 1/step is published after half a half-life.
	step = 100
)

// division is how a namespace was last divided.
type division struct {
	at     time.Time
	pool   int64
	shares map[string]int64 // by cell
}

// assign computes the next shares of a namespace. Missing cells keep what they have, and drained ones get nothing. If
// one may be following lost grants, the others keep what they have, too.
func (l *ledger) assign(next map[string]Shares, namespace string, set Settings, now time.Time) {
	learning, frozen := l.learning(now), set.Mode == Strict && l.AnyLost()
	var targets map[string]int64
	if !learning && !frozen {
		targets = l.targets(namespace, set, now)
		if set.Mode == Strict {
			targets = l.Issue(namespace, Whole, targets, now)
		}
	}
	for name, a := range l.accounts {
		share, ok := targets[name]
		if learning || !ok && !a.draining && (frozen || l.Missing(name, now)) {
			_, last := l.Last(name)
			share = last.Of(namespace)
		}
		next[name][namespace] = share
	}
}

// targets returns how a namespace should be divided: as before, unless the difference is large enough.
func (l *ledger) targets(namespace string, set Settings, now time.Time) map[string]int64 {
	d := division{at: now, pool: Whole, shares: make(map[string]int64)}
	var names []string
	var weights []int64
	for name, a := range l.accounts {
		switch {
		case l.Missing(name, now):
			if set.Mode == Strict {
				d.pool -= l.Held(name, namespace, now)
			}
		case !a.draining:
			var w int64
			if set.Weights == Offered && namespace != Default {
				w = l.offered(a, namespace, now)
			}
			names, weights = append(names, name), append(weights, w)
		}
	}
	for i, share := range divide(d.pool, weights, set.Floor) {
		d.shares[names[i]] = share
	}
	before, ok := l.divisions[namespace]
	if ok && before.pool == d.pool && !differ(before.shares, d.shares, jump) &&
		(now.Sub(before.at) < set.HalfLife/2 || !differ(before.shares, d.shares, step)) {
		return before.shares
	}
	l.divisions[namespace] = d
	return d.shares
}

// divide divides a pool in proportion to weights; each cell gets at least an equal part of floor percent of it. If all
// weights are zero, it divides equally.
func divide(pool int64, weights []int64, floor int64) []int64 {
	claims := make([]fleet.Claim, len(weights))
	for i, w := range weights {
		claims[i] = fleet.Claim{Weight: w, Least: pool * floor / 100 / int64(len(weights)), Want: fleet.Unbounded}
	}
	return fleet.Divide(pool, claims)
}

// differ reports whether the cells are others, or any share has changed by more than 1/in.
func differ(a, b map[string]int64, in int64) bool {
	for name, x := range a {
		y, ok := b[name]
		if d := x - y; !ok || max(d, -d) > max(x, y)/in {
			return true
		}
	}
	return len(a) != len(b)
}
