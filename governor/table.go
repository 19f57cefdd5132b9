package governor

import (
	"math"
	"sync"
	"sync/atomic"
)

const (
	maxName    = 255    // bytes of the longest name that DynamoDB takes
	maxTables  = 10_000 // that are kept; as many as an account and a region may have
	maxIndexes = 100    // of a table that are kept; more than one may have
)

// table is what a governor has found out about a table.
type table struct {
	name    string
	budgets [2]*budget // nil if not limited
	split   bool       // an index has a budget of its own
	learned

	mu      sync.RWMutex
	indexes map[string]*index
}

// index is what it has found out about an index of a table.
type index struct {
	budgets [2]*budget // nil if the table's apply
	learned
}

// learned is, for each operation, the ratio of actual to expected cost.
type learned [operations]ratio

// ratio is a moving average of the actual cost over the expected cost. The first observation replaces the initial 1.
type ratio struct{ bits atomic.Uint64 }

const weight = 0.2 // of a new observation

func (r *ratio) load() float64 {
	if b := r.bits.Load(); b != 0 {
		return math.Float64frombits(^b)
	}
	return 1
}

func (r *ratio) observe(x float64) {
	for {
		old := r.bits.Load()
		next := x
		if old != 0 {
			was := math.Float64frombits(^old)
			next = was + weight*(x-was)
		}
		// Stored as the complement, so that a ratio of 0 differs from no ratio.
		if r.bits.CompareAndSwap(old, ^math.Float64bits(next)) {
			return
		}
	}
}

// index returns an index. If it cannot exist, or too many are kept, it is not kept.
func (t *table) index(name string) *index {
	t.mu.RLock()
	x, full := t.indexes[name], len(t.indexes) >= maxIndexes
	t.mu.RUnlock()
	switch {
	case x != nil:
		return x
	case full || len(name) > maxName:
		return new(index)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if x = t.indexes[name]; x == nil {
		x = new(index)
		if t.indexes == nil {
			t.indexes = make(map[string]*index)
		}
		t.indexes[name] = x
	}
	return x
}

// own returns the budgets of an index that has some of its own.
func (t *table) own(index string) (budgets [2]*budget) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if x := t.indexes[index]; x != nil {
		budgets = x.budgets
	}
	return budgets
}

// budget returns the narrowest budget of an index ("" for the table), or nil.
func (t *table) budget(index string, dir Direction) *budget {
	if index != "" {
		if b := t.index(index).budgets[dir]; b != nil {
			return b
		}
	}
	return t.budgets[dir]
}
