package memory

import "github.com/weirlimits/weir/store"

// Measures implements [store.Measured].
func (s *Store) Measures() []store.Measure {
	return []store.Measure{{Name: "buckets", Help: "Buckets in the store.", Value: float64(s.table.Len())}}
}
