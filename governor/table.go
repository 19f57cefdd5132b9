package governor

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
)

// table is what a governor knows of a table.
type table struct {
	name    string
	budgets [2]*budget // nil: not limited
	split   bool       // an index has a budget of its own
	learned

	mu      sync.RWMutex
	indexes map[string]*index
}

// index is what it knows of a table's index.
type index struct {
	name    string
	budgets [2]*budget // nil: the table's count
	learned
}

// learned are, for each operation, how much more or less than it seems a call costs.
type learned [operations]ratio

// ratio is a moving average of cost over what the request looks like. The first observation replaces the guess, 1.
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
		// The complement, so that a ratio of 0 is not taken for none.
		if r.bits.CompareAndSwap(old, ^math.Float64bits(next)) {
			return
		}
	}
}

// tableOf returns a table, which may be named by its ARN. One that was never seen has the account's limits.
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

// budget returns the narrowest budget of an index ("": of the table), or nil.
func (t *table) budget(index string, dir Direction) *budget {
	if index != "" {
		if b := t.index(index).budgets[dir]; b != nil {
			return b
		}
	}
	return t.budgets[dir]
}
