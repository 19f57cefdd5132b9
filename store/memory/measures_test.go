package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

func TestMeasures(t *testing.T) {
	t.Parallel()
	s := memory.New(nil)
	limit := &store.Limit{Name: "rpm", Amount: 1000, Period: time.Minute, Burst: 10_000}
	for _, entity := range []string{"alice", "bob"} {
		take := store.Take{Debits: []store.Debit{{Bucket: store.Bucket{Namespace: "n", Entity: entity, Resource: "api"}, Charges: []store.Charge{{Limit: limit, Amount: 1000}}}}}
		if _, err := s.Take(context.Background(), take); err != nil {
			t.Fatal(err)
		}
	}
	if ms := s.Measures(); len(ms) != 1 || ms[0].Name != "buckets" || ms[0].Value != 2 || ms[0].Total {
		t.Errorf("%+v", ms)
	}
}
