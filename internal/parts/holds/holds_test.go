package holds_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/parts/holds"
	"github.com/weirlimits/weir/internal/policy/held"
	"github.com/weirlimits/weir/store"
)

// TestSuspended checks that a lease loses its slots by the machine's clock if the monotonic one stands still meanwhile,
// and that a clock that is set back lets it keep none for longer.
func TestSuspended(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		what   string
		jump   time.Duration
		goesOn bool
		lost   bool
	}{
		{"less than it is valid", 5 * time.Second, false, false},
		{"longer than it is valid", 2 * time.Minute, false, true},
		{"longer, although it would go on in an outage", 2 * time.Minute, true, true},
		{"back", -time.Hour, false, false},
	} {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var jump atomic.Int64
				failing := errors.New("away")
				h := holds.New(holds.Config{
					Settle:  func(context.Context, store.Settle) (store.Outcome, error) { return store.Outcome{}, failing },
					Timeout: time.Second, Max: time.Hour,
					Wall: func(at time.Time) time.Time { return at.Add(time.Duration(jump.Load())) },
				})
				l := store.Slots("parallel", 5000, 30*time.Second)
				debits := []store.Debit{{
					Bucket: store.Bucket{Namespace: "n", Entity: "alice", Resource: "api"}, Epoch: 1,
					Charges: []store.Charge{{Limit: l, Amount: 1000}},
				}}
				hold := &store.Hold{Birth: 1, End: time.Now().Add(time.Minute), Valid: 50 * time.Second}
				var lease holds.Lease
				h.Add(&lease, holds.Terms{Ctx: t.Context(), GoesOn: tt.goesOn}, debits, []store.Level{{Hold: hold}}, time.Now())
				own := lease.Context(t.Context())
				time.Sleep(10 * time.Second)
				jump.Store(int64(tt.jump))
				time.Sleep(2 * time.Second)
				if lost := own.Err() != nil; lost != tt.lost {
					t.Errorf("lost: %t", lost)
				}
				if tt.lost && !errors.Is(context.Cause(own), held.ErrSlotLost) {
					t.Error(context.Cause(own))
				}
				time.Sleep(40 * time.Second)
				if own.Err() == nil {
					t.Error("valid for longer than the store keeps it")
				}
				if lease.Current(debits); debits[0].Charges[0].Hold != nil {
					t.Error("a slot that is lost would be given back")
				}
				h.Close()
			})
		})
	}
}

// TestEndedMeanwhile checks that slots that were taken again for leases that have ended by then are given back.
func TestEndedMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := store.Slots("parallel", 5000, 30*time.Second)
		of := func(amount int64) []store.Debit {
			return []store.Debit{{
				Bucket: store.Bucket{Namespace: "n", Entity: "alice", Resource: "api"}, Epoch: 1,
				Charges: []store.Charge{{Limit: l, Amount: amount}},
			}}
		}
		hold := &store.Hold{Birth: 1, End: time.Now().Add(time.Minute), Valid: 50 * time.Second}
		var ends, shrinks, goesOn holds.Lease
		var amounts []int64
		h := holds.New(holds.Config{
			Settle: func(_ context.Context, s store.Settle) (store.Outcome, error) {
				c := s.Debits[0].Charges[0]
				if amounts = append(amounts, c.Amount); c.Amount < 0 {
					if c.Hold != hold {
						t.Errorf("gave back of %+v", c.Hold)
					}
					return store.Outcome{Levels: []store.Level{{}}}, nil
				}
				ends.End(nil)
				shrinks.Update(of(1000))
				return store.Outcome{Levels: []store.Level{{Hold: hold}}}, nil
			},
			Timeout: time.Second, Max: time.Hour,
		})
		terms := holds.Terms{Ctx: t.Context(), GoesOn: true}
		h.Add(&ends, terms, of(1000), []store.Level{{}}, time.Now())
		h.Add(&shrinks, terms, of(3000), []store.Level{{}}, time.Now())
		h.Add(&goesOn, terms, of(1000), []store.Level{{}}, time.Now())
		if err := h.Restore(t.Context(), of(1000)); err != nil || !slices.Equal(amounts, []int64{5000, -3000}) {
			t.Errorf("%d, %v", amounts, err)
		}
		if shrinks.Behind() || goesOn.Behind() {
			t.Error("not taken")
		}
		h.Close()
	})
}
