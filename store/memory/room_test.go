package memory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// Config.MaxBuckets bounds the buckets that are not full; full ones are evicted as others are created. This must also hold
// within a second of the last time that there was no room.
func TestRoomOfFullBuckets(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	st := memory.New(&memory.Config{Now: func() time.Time { return now }, MaxBuckets: 10})
	t.Cleanup(func() { _ = st.Close() })
	lim := &store.Limit{Name: "rps", Amount: 10_000, Period: time.Second, Burst: 1000}
	take := func(entity string) error {
		_, err := st.Take(t.Context(), store.Take{Debits: []store.Debit{{
			Bucket:  store.Bucket{Namespace: "default", Entity: entity, Resource: "r"},
			Charges: []store.Charge{{Limit: lim, Amount: 1000}},
		}}})
		return err
	}
	for i := range 10 {
		if err := take(fmt.Sprint("e", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := take("one too many"); err == nil {
		t.Fatal("there is no room, and it was admitted")
	}
	now = now.Add(500 * time.Millisecond) // all have been full again for 400 ms
	if err := take("another"); err != nil {
		t.Errorf("all buckets are full, and yet: %v", err)
	}
}
