package dynamodb_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// TestFiguresOneBucket checks that a thousand callers of one bucket share writes.
func TestFiguresOneBucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s := st.open(st.flow())
		st.slow(5 * time.Millisecond / 2)
		rps, alice := per("rps", 1_000_000, time.Second, 1_000_000), bkt("alice")
		before := st.writes()
		const callers, each = 1000, 20
		var admitted atomic.Int64
		var group sync.WaitGroup
		for range callers {
			group.Go(func() {
				for range each {
					if out, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{of(alice, rps, 1)}}); err != nil {
						t.Error(err)
					} else if out.Allowed {
						admitted.Add(1)
					}
				}
			})
		}
		group.Wait()
		if n := admitted.Load(); n != callers*each {
			t.Errorf("admitted %d", n)
		}
		per := float64(st.writes()-before) / float64(admitted.Load())
		t.Logf("%.4f calls per admission", per)
		if per > 0.01 {
			t.Errorf("%.4f calls per admission", per)
		}
	})
}

// TestFiguresHammered checks that callers that ignore refusals cost next to nothing.
func TestFiguresHammered(t *testing.T) {
	t.Parallel()
	unraced(t)
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s := st.open(st.flow())
		st.slow(5 * time.Millisecond / 2)
		rpm, alice := per("rpm", 10, time.Minute, 10), bkt("alice")
		before, begun := st.writes(), time.Now()
		var admitted, refused atomic.Int64
		var group sync.WaitGroup
		for range 64 {
			group.Go(func() {
				for time.Since(begun) < 10*time.Second {
					out, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{of(alice, rpm, 1)}})
					switch {
					case err != nil:
						t.Error(err)
					case out.Allowed:
						admitted.Add(1)
					default:
						refused.Add(1)
						time.Sleep(10 * time.Millisecond) // otherwise no time would pass
					}
				}
			})
		}
		group.Wait()
		calls := float64(st.writes()-before) / time.Since(begun).Seconds()
		t.Logf("%d admitted, %d refused, %.1f calls a second", admitted.Load(), refused.Load(), calls)
		if n := admitted.Load(); n != 11 || calls > 10 {
			t.Errorf("%d admitted, %.1f calls a second", n, calls)
		}
	})
}

// TestFiguresChildRefuses checks that refusals by a child's own limit cost its parent next to nothing, and its siblings
// nothing.
func TestFiguresChildRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		parents := st.counting("parent")
		child, parent, other := bkt("child"), bkt("parent"), bkt("other")
		own, shared := per("own", 1, time.Hour, 1), per("shared", 10, time.Hour, 10)
		st.want(st.open(), true, of(child, own, 1))
		s := st.open(st.flow()) // a process that knows nothing yet
		for range 1000 {
			st.want(s, false, of(child, own, 1), of(parent, shared, 1))
			time.Sleep(10 * time.Millisecond)
		}
		s.Flush()
		if n := parents.Load(); n > 2 {
			t.Errorf("%d writes to the parent", n)
		}
		for range 10 {
			st.want(s, true, of(other, shared, 1), of(parent, shared, 1))
		}
		st.want(s, false, of(bkt("another"), shared, 1), of(parent, shared, 1))
	})
}

// TestFiguresIndependent checks that processes that share only a bucket seldom write in vain, and never admit too much.
func TestFiguresIndependent(t *testing.T) {
	t.Parallel()
	unraced(t)
	for _, tt := range []struct {
		load  float64
		most  float64
		lasts time.Duration
	}{{0.10, 1.20, 20 * time.Second}, {0.60, 1.10, 5 * time.Second}, {0.95, 1.10, 5 * time.Second}} {
		t.Run(fmt.Sprintf("%.0f%%", 100*tt.load), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := newStage(t)
				st.slow(5 * time.Millisecond / 2)
				before := st.writes()
				admitted, refused, share := st.crowd(tt.load, tt.lasts, per("rps", 1000, time.Second, 1000))
				ratio := float64(st.writes()-before) / float64(admitted)
				t.Logf("%.3f calls per admission, %d admitted, %d refused, admitted / allowed %.4f", ratio, admitted, refused, share)
				if ratio > tt.most || share > 1 {
					t.Errorf("%.3f calls per admission, admitted / allowed %.4f", ratio, share)
				}
			})
		})
	}
}

// crowd makes 50 processes ask a bucket for a share of its rate, one token at a time.
func (st *stage) crowd(load float64, lasts time.Duration, rps *store.Limit, change ...func(*dynamodb.Config)) (admitted, refused int64, share float64) {
	const clients = 50
	rate, alice := float64(rps.Amount)/1000/rps.Period.Seconds(), bkt("alice")
	begun := time.Now()
	flow := st.flow()
	var yes, no atomic.Int64
	var group sync.WaitGroup
	for i := range clients {
		s := st.open(append([]func(*dynamodb.Config){flow, func(c *dynamodb.Config) { c.RejectionTTL, c.MaxShards = -1, 1 }}, change...)...)
		rng := rand.New(rand.NewPCG(uint64(i), 7))
		group.Go(func() {
			next := begun
			for {
				next = next.Add(time.Duration(rng.ExpFloat64() * float64(time.Second) * clients / (rate * load)))
				if next.Sub(begun) >= lasts {
					return
				}
				time.Sleep(time.Until(next)) // real time: none, all who call it are in a bubble
				out, err := s.Take(st.Context(), store.Take{Debits: []store.Debit{of(alice, rps, 1)}})
				switch {
				case err != nil:
					st.Error(err)
				case out.Allowed:
					yes.Add(1)
				default:
					no.Add(1)
				}
			}
		})
	}
	group.Wait()
	allowed := float64(rps.Burst)/1000 + rate*time.Since(begun).Seconds()
	return yes.Load(), no.Load(), float64(yes.Load()) / allowed
}
