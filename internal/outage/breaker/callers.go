package breaker

import "time"

// Key is whose a call is: two hashes. Calls in different namespaces are unrelated. So are, while all calls are in one
// namespace, those with different roots: a root is what callers within the namespace have in common, such as the top of
// a chain of entities.
type Key struct{ Space, Root uint64 }

const (
	sets = 64
	ways = 4
)

// callers are who has called lately: up to sets times ways of them, each in a place of the set that its hash names. If
// a set is full, the one who called least lately is forgotten.
type callers [sets][ways]caller

// caller is when a caller last called, and whether that call failed.
type caller struct {
	key   uint64
	last  time.Time // the zero time: never
	fails bool
}

// called records a call.
func (cs *callers) called(key uint64, now time.Time, failed bool) {
	set := &cs[key%sets]
	c := &set[0]
	for i := range set {
		if o := &set[i]; o.key == key && !o.last.IsZero() {
			c = o
			break
		} else if o.last.Before(c.last) {
			c = o
		}
	}
	*c = caller{key, now, failed}
}

// count returns how many have called since a time, and the calls of how many of them fail.
func (cs *callers) count(since time.Time) (failing, all int) {
	for i := range cs {
		for j := range cs[i] {
			c := &cs[i][j]
			if c.last.IsZero() || c.last.Before(since) {
				continue
			}
			if all++; c.fails {
				failing++
			}
		}
	}
	return failing, all
}

// find reports whether a caller has called, and whether its calls fail.
func (cs *callers) find(key uint64) (known, fails bool) {
	set := &cs[key%sets]
	for i := range set {
		if c := &set[i]; c.key == key && !c.last.IsZero() {
			return true, c.fails
		}
	}
	return false, false
}

// forget forgets who was answered last before a time, and who has failed before another.
func (cs *callers) forget(answered, failed time.Time) {
	for i := range cs {
		for j := range cs[i] {
			if c := &cs[i][j]; c.last.Before(failed) && c.fails || c.last.Before(answered) && !c.fails {
				*c = caller{}
			}
		}
	}
}
