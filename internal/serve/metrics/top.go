package metrics

import (
	"cmp"
	"math"
	"slices"
)

// key names what a top ranks.
type key struct{ entity, resource string }

// top finds the largest of many counters with the memory of a few, by the Space-Saving algorithm (Metwally, Agrawal,
// El Abbadi 2005). A key without a counter takes over the smallest one and continues from its value, so no count is
// too low. Each count remembers by how much it may be too high.
//
// If N is the sum of everything added, no count is more than N/room too high, and every key with more than N/room has
// a counter.
type top struct {
	room  int
	by    map[key]int // indexes in all
	all   []count
	floor int64 // upper bound for keys without a counter
}

type count struct {
	key
	n    int64
	over int64 // by how much n may be too high
}

func newTop(room int) *top { return &top{room: room, by: make(map[key]int, room)} }

// plus adds non-negative numbers and saturates at the largest, because requests for all available tokens can add up to
// it.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// add adds n ≥ 0.
func (t *top) add(k key, n int64) {
	i, known := t.by[k]
	switch {
	case known:
		t.all[i].n = plus(t.all[i].n, n)
		return
	case n == 0:
		return
	case len(t.all) < t.room:
		i = len(t.all)
		t.all = append(t.all, count{})
	default:
		i = t.least()
		delete(t.by, t.all[i].key)
		t.floor = max(t.floor, t.all[i].n)
	}
	t.all[i], t.by[k] = count{k, plus(t.floor, n), t.floor}, i
}

// least returns the index of the smallest count.
func (t *top) least() (least int) {
	for i := range t.all {
		if t.all[i].n < t.all[least].n {
			least = i
		}
	}
	return least
}

// sub takes back n ≥ 0 that was added for the key. For a key without a counter it does nothing: the floor is then
// only higher than necessary.
func (t *top) sub(k key, n int64) {
	if i, known := t.by[k]; known {
		t.all[i].n = max(0, t.all[i].n-n) // tokens added in another process may be taken back here
	}
}

// rank returns the n largest counts, largest first.
func rank(cs []count, n int) []count {
	slices.SortFunc(cs, func(a, b count) int {
		return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.entity, b.entity), cmp.Compare(a.resource, b.resource))
	})
	return cs[:min(n, len(cs))]
}
