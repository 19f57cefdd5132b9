package dynamodb

import (
	"sync/atomic"

	"github.com/weirlimits/weir/store"
)

// measures count the writes to buckets.
type measures struct{ applied, denied, failed, aboard atomic.Uint64 }

// wrote counts a write and its riders.
func (m *measures) wrote(riders int, applied bool, err error) {
	m.aboard.Add(uint64(riders))
	switch {
	case err != nil:
		m.failed.Add(1)
	case applied:
		m.applied.Add(1)
	default:
		m.denied.Add(1)
	}
}

// Measures implements [store.Measured].
func (s *Store) Measures() []store.Measure {
	s.memories.mu.Lock()
	buckets, shards := len(s.memories.m), 0
	for _, m := range s.memories.m {
		shards += len(m.all())
	}
	s.memories.mu.Unlock()
	total := func(name, help string, n *atomic.Uint64) store.Measure {
		return store.Measure{Name: name, Help: help, Total: true, Value: float64(n.Load())}
	}
	return []store.Measure{
		{
			Name:  "clock_skew_seconds",
			Help:  "How far DynamoDB's clock is ahead of this machine's, as far as weir corrects for it.",
			Value: s.Skew().Seconds(),
		},
		{Name: "remembered_buckets", Help: "Buckets whose state the process remembers.", Value: float64(buckets)},
		{Name: "remembered_items", Help: "Items that the remembered buckets are split into.", Value: float64(shards)},
		total("writes_applied", "Writes to buckets whose condition held.", &s.measures.applied),
		total(
			"writes_denied",
			"Writes to buckets whose condition did not hold: refusals, and guesses of the level that were wrong.",
			&s.measures.denied,
		),
		total("writes_failed", "Writes to buckets without an answer.", &s.measures.failed),
		total("writes_shared", "Callers whose debits and returns the writes carried.", &s.measures.aboard),
	}
}
