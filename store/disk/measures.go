package disk

import "github.com/weirlimits/weir/store"

var _ store.Measured = (*Store)(nil)

// Measures implements [store.Measured].
func (s *Store) Measures() []store.Measure {
	st := s.Stats()
	failing := 0.0
	if st.Err != nil {
		failing = 1
	}
	return []store.Measure{
		{Name: "buckets", Help: "Buckets in the store.", Value: float64(s.table.Len())},
		{
			Name: "write_lag_seconds", Help: "Age of the oldest change that waits to be written.",
			Value: st.Lag.Seconds(),
		},
		{Name: "write_failing", Help: "1 if the last transaction on the file was not committed.", Value: failing},
		{Name: "transactions", Help: "Transactions on the file.", Total: true, Value: float64(st.Commits)},
		{
			Name: "records_written", Help: "Bucket records written in those transactions.", Total: true,
			Value: float64(st.Records),
		},
	}
}
