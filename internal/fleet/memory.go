package fleet

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"sync"
)

// Memory is a registry in this process's memory, for tests and for several governors in one process. The zero value
// is empty and ready to use.
type Memory struct {
	mu      sync.Mutex
	writes  uint64
	records map[string]Record
}

var _ Registry = (*Memory)(nil)

// Get implements [Registry].
func (m *Memory) Get(ctx context.Context, name string) (Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records[name], ctx.Err()
}

// Put implements [Registry].
func (m *Memory) Put(ctx context.Context, name string, value []byte, version string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if m.records[name].Version != version {
		return "", ErrConflict
	}
	if m.records == nil {
		m.records = make(map[string]Record)
	}
	m.writes++
	r := Record{name, strconv.FormatUint(m.writes, 10), bytes.Clone(value)}
	m.records[name] = r
	return r.Version, nil
}

// Delete implements [Registry].
func (m *Memory) Delete(ctx context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	delete(m.records, name)
	return nil
}

// List implements [Registry].
func (m *Memory) List(ctx context.Context, prefix string) ([]Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []Record
	for name, r := range m.records {
		if strings.HasPrefix(name, prefix) {
			found = append(found, r)
		}
	}
	return found, ctx.Err()
}
