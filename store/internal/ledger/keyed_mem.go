package ledger

import "slices"

// Mem is a [Tx] on ordered keys in memory that cannot fail. The zero value is empty.
type Mem struct {
	values map[string][]byte
	keys   []string // in order; some may be deleted
	fresh  []string // not in keys yet
}

// Len returns the number of keys.
func (m *Mem) Len() int { return len(m.values) }

// Get implements [Tx].
func (m *Mem) Get(key []byte) []byte { return m.values[string(key)] }

// Put implements [Tx]. It keeps the value, without copying it.
func (m *Mem) Put(key, value []byte) error {
	if m.values == nil {
		m.values = make(map[string][]byte)
	}
	if _, ok := m.values[string(key)]; !ok {
		m.fresh = append(m.fresh, string(key))
	}
	m.values[string(key)] = value
	return nil
}

// Delete implements [Tx].
func (m *Mem) Delete(key []byte) error {
	delete(m.values, string(key))
	return nil
}

// Cursor implements [Tx].
func (m *Mem) Cursor() Cursor {
	m.order()
	return &memCursor{m: m}
}

// order sorts the keys.
func (m *Mem) order() {
	if len(m.fresh) > 0 {
		slices.Sort(m.fresh)
		m.keys = merge(m.keys, m.fresh)
		m.fresh = nil
	}
	if len(m.keys) > 2*len(m.values) {
		m.keys = slices.DeleteFunc(m.keys, func(k string) bool { return m.values[k] == nil })
	}
}

// merge merges two sorted lists. A key that was deleted and added again is in both.
func merge(a, b []string) []string {
	out := make([]string, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0] <= b[0] {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return slices.Compact(append(append(out, a...), b...))
}

type memCursor struct {
	m  *Mem
	at int
}

// Seek implements [Cursor].
func (c *memCursor) Seek(key []byte) (k, value []byte) {
	c.at, _ = slices.BinarySearch(c.m.keys, string(key))
	return c.here()
}

// Next implements [Cursor].
func (c *memCursor) Next() (k, value []byte) {
	c.at++
	return c.here()
}

func (c *memCursor) here() (k, value []byte) {
	for ; c.at < len(c.m.keys); c.at++ {
		if v, ok := c.m.values[c.m.keys[c.at]]; ok {
			return []byte(c.m.keys[c.at]), v
		}
	}
	return nil, nil
}
