package holds_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/parts/holds"
	"github.com/weirlimits/weir/internal/policy/held"
	"github.com/weirlimits/weir/store"
)

var (
	parallel = store.Slots("parallel", 5000, 30*time.Second)
	errAway  = errors.New("away")
)

// slotsOf returns debits of slots of entities.
func slotsOf(amount int64, entities ...string) (debits []store.Debit) {
	for _, e := range entities {
		debits = append(debits, store.Debit{
			Bucket: store.Bucket{Namespace: "n", Entity: e, Resource: "api"}, Epoch: 1,
			Charges: []store.Charge{{Limit: parallel, Amount: amount}},
		})
	}
	return debits
}

// until returns a level with a hold that is valid for 50 seconds from when its request was sent.
func until() []store.Level {
	return []store.Level{{Hold: &store.Hold{Birth: 1, End: time.Now().Add(time.Minute), Valid: 50 * time.Second}}}
}

// on returns holds on a store whose settles f answers.
func on(f func(store.Settle) (store.Outcome, error)) *holds.Holds {
	return holds.New(holds.Config{
		Settle:  func(_ context.Context, s store.Settle) (store.Outcome, error) { return f(s) },
		Timeout: time.Minute, Max: time.Hour,
	})
}

// TestValid checks that a lease has slots until 100 ms before they are no longer valid, counted from when the request was
// sent that took or renewed them, however late its answer was.
func TestValid(t *testing.T) {
	t.Parallel()
	const late = 3 * time.Second
	for _, what := range []string{"taken", "renewed", "taken again"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				answers, sent := 1, time.Now().Add(-late)
				h := on(func(store.Settle) (store.Outcome, error) {
					if answers--; answers < 0 {
						return store.Outcome{}, errAway
					}
					sent = time.Now()
					levels := until()
					time.Sleep(late)
					return store.Outcome{Levels: levels}, nil
				})
				again, debits, levels := what == "taken again", slotsOf(1000, "alice"), until()
				if what == "taken" {
					answers = 0
				} else if again {
					levels = []store.Level{{}}
				}
				var lease holds.Lease
				h.Add(&lease, holds.Terms{Ctx: t.Context(), GoesOn: again}, debits, levels, sent)
				own := lease.Context(t.Context())
				if again {
					if err := h.Restore(t.Context(), debits); err != nil {
						t.Error(err)
					}
				} else if what == "renewed" {
					time.Sleep(45 * time.Second)
					synctest.Wait()
				}
				time.Sleep(time.Until(sent) + 50*time.Second - 101*time.Millisecond)
				if lease.Current(debits); debits[0].Charges[0].Hold == nil || own.Err() != nil {
					t.Errorf("lost %v too early: %v", time.Until(sent)+50*time.Second, context.Cause(own))
				}
				time.Sleep(time.Millisecond)
				synctest.Wait()
				if lease.Current(debits); debits[0].Charges[0].Hold != nil || again != (own.Err() == nil) {
					t.Errorf("%v before the store forgets it: %v", time.Until(sent)+50*time.Second, context.Cause(own))
				}
				h.Close()
			})
		})
	}
}

// TestRefusedRenewal checks that a lease ends at once if its renewal is refused, because others may have its slots, and
// that it does not go on without them.
func TestRefusedRenewal(t *testing.T) {
	t.Parallel()
	for _, goesOn := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			h := on(func(store.Settle) (store.Outcome, error) {
				calls++
				return store.Outcome{Levels: []store.Level{{Refused: true}}}, nil
			})
			var lease holds.Lease
			h.Add(&lease, holds.Terms{Ctx: t.Context(), GoesOn: goesOn}, slotsOf(1000, "alice"), until(), time.Now())
			own := lease.Context(t.Context())
			time.Sleep(45 * time.Second)
			synctest.Wait()
			if !errors.Is(context.Cause(own), held.ErrSlotLost) || lease.Behind() || calls != 1 {
				t.Errorf("goes on %t: %v, behind %t, %d calls", goesOn, context.Cause(own), lease.Behind(), calls)
			}
			h.Close()
		})
	}
}

// TestTakenAgainOnce checks that a call that takes slots again is repeated as it was until its outcome is known, that no
// other request is decided before, and that a chain's other buckets do not hide the one of which slots are taken again.
func TestTakenAgainOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls []store.Settle
		answers := []error{errAway, store.ErrSettled, nil}
		h := on(func(s store.Settle) (store.Outcome, error) {
			if calls = append(calls, s); len(calls) > len(answers) {
				return store.Outcome{}, errAway
			}
			return store.Outcome{Levels: until()}, answers[len(calls)-1]
		})
		terms := holds.Terms{Ctx: t.Context(), GoesOn: true}
		var first, second holds.Lease
		h.Add(&first, terms, slotsOf(1000, "team"), []store.Level{{}}, time.Now())
		chain := slotsOf(1000, "alice", "team")
		if err := h.Restore(t.Context(), chain); !errors.Is(err, errAway) {
			t.Errorf("the outcome is not known: %v", err)
		}
		h.Add(&second, terms, slotsOf(2000, "team"), []store.Level{{}}, time.Now())
		if err := h.Restore(t.Context(), chain); err != nil || first.Behind() || second.Behind() {
			t.Errorf("%v, behind: %t and %t", err, first.Behind(), second.Behind())
		}
		if len(calls) != len(answers) {
			t.Fatalf("%d calls", len(calls))
		}
		for i, want := range []int64{1000, 1000, 3000} {
			if got := calls[i].Debits[0].Charges[0].Amount; got != want || (calls[i].ID == calls[0].ID) != (i < 2) {
				t.Errorf("call %d takes %d by %s, want %d", i, got, calls[i].ID, want)
			}
		}
		h.Close()
	})
}

// TestRenewedApart checks that a renewal names as many slots as its hold has: a bucket that was lost counts none of those
// taken before.
func TestRenewedApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		renewed := make(map[store.Hold]int64)
		h := on(func(s store.Settle) (store.Outcome, error) {
			c := s.Debits[0].Charges[0]
			renewed[*c.Hold] += c.Amount
			return store.Outcome{}, errAway
		})
		var leases [3]holds.Lease
		first, next, reborn := until(), until(), until()
		next[0].Hold.End = next[0].Hold.End.Add(30 * time.Second)
		reborn[0].Hold.Birth = 2
		for i, levels := range [][]store.Level{first, next, reborn} {
			h.Add(&leases[i], holds.Terms{Ctx: t.Context()}, slotsOf(int64(i+1), "alice"), levels, time.Now())
		}
		time.Sleep(43 * time.Second)
		h.Close()
		for i, levels := range [][]store.Level{first, next, reborn} {
			if got := renewed[*levels[0].Hold]; got == 0 || got%int64(i+1) != 0 || got/int64(i+1) != renewed[*first[0].Hold] {
				t.Errorf("renewed %v", renewed)
			}
		}
		runtime.KeepAlive(&leases)
	})
}
