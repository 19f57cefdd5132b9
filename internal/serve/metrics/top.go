package metrics

import (
	"cmp"
	"container/heap"
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
	room    int
	by      map[key]*count
	smaller byCount
	floor   int64 // upper bound for keys without a counter
}

type count struct {
	key
	n    int64
	over int64 // by how much n may be too high
	at   int   // index in smaller
}

func newTop(room int) *top { return &top{room: room, by: make(map[key]*count, room)} }

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
	c := t.by[k]
	switch {
	case c != nil:
		c.n = plus(c.n, n)
		heap.Fix(&t.smaller, c.at)
	case n == 0:
	case len(t.smaller) < t.room:
		c = &count{key: k, n: plus(t.floor, n), over: t.floor}
		t.by[k] = c
		heap.Push(&t.smaller, c)
	default:
		c = t.smaller[0]
		delete(t.by, c.key)
		t.floor = max(t.floor, c.n)
		c.key, c.n, c.over = k, plus(t.floor, n), t.floor
		t.by[k] = c
		heap.Fix(&t.smaller, 0)
	}
}

// sub takes back n ≥ 0 that was added for the key. For a key without a counter it does nothing: the floor is then
// only higher than necessary.
func (t *top) sub(k key, n int64) {
	if c := t.by[k]; c != nil {
		c.n = max(0, c.n-n) // tokens added in another process may be taken back here
		heap.Fix(&t.smaller, c.at)
	}
}

// appendTo appends the counts, in no particular order.
func (t *top) appendTo(cs []count) []count {
	for _, c := range t.smaller {
		cs = append(cs, *c)
	}
	return cs
}

// rank returns the n largest counts, largest first.
func rank(cs []count, n int) []count {
	slices.SortFunc(cs, func(a, b count) int {
		return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.entity, b.entity), cmp.Compare(a.resource, b.resource))
	})
	return cs[:min(n, len(cs))]
}

// byCount is a heap with the smallest count first.
type byCount []*count

// Len implements heap.Interface.
func (h byCount) Len() int { return len(h) }

// Less implements heap.Interface.
func (h byCount) Less(i, j int) bool { return h[i].n < h[j].n }

// Swap implements heap.Interface.
func (h byCount) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *byCount) Push(x any) {
	c := x.(*count)
	c.at = len(*h)
	*h = append(*h, c)
}

// Pop implements heap.Interface. Nothing is ever popped.
func (h *byCount) Pop() any { panic("never called") }
