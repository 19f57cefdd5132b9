package governor

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
)

// table is what a governor knows about a table.
type table struct {
	name    string
	budgets [2]*budget // nil if not limited
	split   bool       // an index has a budget of its own
	learned

	mu      sync.RWMutex
	indexes map[string]*index
}

// index is what it knows about an index of a table.
type index struct {
	name    string
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

// tableOf returns a table, which may be named by its ARN. A table that was never seen has the account's limits.
func (g *Governor) tableOf(name string) *table {
	if strings.HasPrefix(name, "arn:") {
		name, _ = resourceNames(name)
	}
	g.mu.RLock()
	t := g.tables[name]
	g.mu.RUnlock()
	if t != nil {
		return t
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if t = g.tables[name]; t == nil {
		t = &table{name: name}
		for dir, all := range g.account {
			if all != nil && name != "" {
				b := newBudget(all.limit, g.cfg.Burst, g.cfg.Burst)
				b.implied = true
				t.budgets[dir] = g.add(b, name, "", Direction(dir))
			}
		}
		g.tables[name] = t
	}
	return t
}

func (t *table) index(name string) *index {
	t.mu.RLock()
	x := t.indexes[name]
	t.mu.RUnlock()
	if x != nil {
		return x
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if x = t.indexes[name]; x == nil {
		x = &index{name: name}
		if t.indexes == nil {
			t.indexes = make(map[string]*index)
		}
		t.indexes[name] = x
	}
	return x
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
