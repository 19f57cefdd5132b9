package disk_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
)

func TestMeasures(t *testing.T) {
	t.Parallel()
	s, err := disk.Open(filepath.Join(t.TempDir(), "store"), &disk.Config{Mode: disk.Always})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	limit := &store.Limit{Name: "rpm", Amount: 1000, Period: time.Minute, Burst: 10_000}
	take := store.Take{Debits: []store.Debit{{Bucket: store.Bucket{Namespace: "n", Entity: "alice", Resource: "api"}, Charges: []store.Charge{{Limit: limit, Amount: 1000}}}}}
	if _, err := s.Take(t.Context(), take); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, m := range s.Measures() {
		got[m.Name] = m.Value
	}
	if got["buckets"] != 1 || got["transactions"] < 1 || got["records_written"] < 1 || got["write_failing"] != 0 || got["write_lag_seconds"] != 0 {
		t.Errorf("%v", got)
	}
}
