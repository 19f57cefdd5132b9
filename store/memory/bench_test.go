package memory_test

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// BenchmarkSlots compares a slot that is taken and given back with tokens, in a bucket with that limit alone.
func BenchmarkSlots(b *testing.B) {
	s := memory.New(nil)
	charge := func(l *store.Limit, amount int64, h *store.Hold) []store.Debit {
		return []store.Debit{{
			Bucket: store.Bucket{Namespace: "n", Entity: l.Name, Resource: "api"}, Epoch: 1,
			Charges: []store.Charge{{Limit: l, Amount: amount, Hold: h}},
		}}
	}
	take := func(b *testing.B, l *store.Limit) *store.Hold {
		out, err := s.Take(b.Context(), store.Take{Debits: charge(l, 1000, nil)})
		if err != nil || !out.Allowed {
			b.Fatal(out, err)
		}
		return out.Levels[0].Hold
	}
	rate := &store.Limit{Name: "rps", Amount: 1e9, Period: time.Second, Burst: 1e15}
	b.Run("take", func(b *testing.B) {
		for b.Loop() {
			take(b, rate)
		}
	})
	for name, l := range map[string]*store.Limit{"tokens": rate, "slots": store.Slots("parallel", 10_000, time.Minute)} {
		b.Run("take and return "+name, func(b *testing.B) {
			for b.Loop() {
				h := take(b, l)
				if _, err := s.Settle(b.Context(), store.Settle{Debits: charge(l, -1000, h)}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
