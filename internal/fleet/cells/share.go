package cells

import (
	"maps"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/fleet"
)

const (
	// jump: a change of a share by more than 1/jump is published at once.
	jump = 10
	// step: a change by more than 1/step is published after half a half-life.
	step = 100
)

// share computes the shares of a namespace.
func (l *ledger) share(next map[string]Shares, namespace string, set Settings, now time.Time) {
	if l.learning(now) {
		for name := range l.accounts {
			_, shares := l.Last(name)
			next[name][namespace] = shares.Of(namespace)
		}
		return
	}
	names := slices.Sorted(maps.Keys(l.accounts))
	t := l.target(names, namespace, set, now)
	targets := make(map[string]int64, len(t.cells))
	for i, name := range t.cells {
		targets[name] = t.shares[i]
	}
	if set.Mode == Strict {
		targets = l.Issue(namespace, Whole, targets, now)
	}
	for name, share := range targets {
		next[name][namespace] = share
	}
	l.rest(next, t, namespace, now)
}

// rest lets missing cells keep what they have, and gives drained ones nothing.
func (l *ledger) rest(next map[string]Shares, t target, namespace string, now time.Time) {
	for name, a := range l.accounts {
		if !slices.Contains(t.cells, name) {
			next[name][namespace] = 0
			if !a.draining && l.Missing(name, now) {
				_, shares := l.Last(name)
				next[name][namespace] = shares.Of(namespace)
			}
		}
	}
}

// target returns how a namespace should be divided: as before, unless the difference is large enough.
func (l *ledger) target(names []string, namespace string, set Settings, now time.Time) target {
	t := target{at: now, pool: Whole}
	var weights []int64
	for _, name := range names {
		a := l.accounts[name]
		switch {
		case l.Missing(name, now):
			if set.Mode == Strict {
				t.pool -= l.Held(name, namespace, now)
			}
		case !a.draining:
			t.cells = append(t.cells, name)
			var w int64
			if set.Weights == Offered && namespace != Default {
				w = l.offered(a, namespace, now)
			}
			weights = append(weights, w)
		}
	}
	t.shares = divide(t.pool, weights, set.Floor)
	before, ok := l.targets[namespace]
	if ok && before.pool == t.pool && slices.Equal(before.cells, t.cells) && !differ(before.shares, t.shares, jump) &&
		(now.Sub(before.at) < set.HalfLife/2 || !differ(before.shares, t.shares, step)) {
		return before
	}
	l.targets[namespace] = t
	return t
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

// differ reports whether any share has changed by more than 1/in.
func differ(a, b []int64, in int64) bool {
	for i := range a {
		if d := a[i] - b[i]; max(d, -d) > max(a[i], b[i])/in {
			return true
		}
	}
	return false
}
