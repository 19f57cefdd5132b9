package dynamodb_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/weirlimits/weir/store"
)

// TestCoalesceRoom checks that waiting takes ride together as far as they fit, in order, and that one that does not fit
// delays none.
func TestCoalesceRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s := st.open(noGuard)
		rpm, alice := per("rpm", 10, time.Hour, 100), bkt("alice")
		st.want(s, true, of(alice, rpm, 60))
		st.slow(50 * time.Millisecond)
		var group sync.WaitGroup
		answers := map[int64]bool{}
		var mu sync.Mutex
		group.Go(func() { st.take(s, of(alice, rpm, 1)) })
		synctest.Wait()
		before := st.writes()
		for _, n := range []int64{20, 30, 15, 5, 4} { // 39 are left: 20, 15 and 4 fit in their order
			synctest.Wait()
			group.Go(func() {
				out := st.take(s, of(alice, rpm, n))
				mu.Lock()
				defer mu.Unlock()
				answers[n] = out.Allowed
			})
		}
		group.Wait()
		for n, want := range map[int64]bool{20: true, 30: false, 15: true, 5: false, 4: true} {
			if answers[n] != want {
				t.Errorf("%d: allowed %t", n, answers[n])
			}
		}
		if n := st.writes() - before; n > 2 {
			t.Errorf("%d writes", n)
		}
		if n := st.outstanding(alice, "rpm"); n != 100_000 {
			t.Errorf("%d outstanding", n)
		}
	})
}

// TestCoalesceReleases checks that what is remembered of a bucket keeps no request alive that has been answered: not the
// debits of a take, and with them whatever its caller holds.
func TestCoalesceReleases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s := st.open(noGuard)
		rpm, alice := per("rpm", 10, time.Hour, 1), bkt("alice")
		var asked []weak.Pointer[store.Debit]
		for range 3 { // admitted, refused by the table, refused from memory
			debits := []store.Debit{of(alice, rpm, 1)}
			asked = append(asked, weak.Make(&debits[0]))
			if _, err := s.Take(t.Context(), store.Take{Debits: debits}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		runtime.GC()
		for i, d := range asked {
			if d.Value() != nil {
				t.Errorf("take %d is kept alive", i)
			}
		}
		runtime.KeepAlive(s)
	})
}

// TestCoalesceAbandon checks that a caller that leaves ends only its own waiting. The write goes on for the others
// aboard, and what it debited for that caller is returned.
func TestCoalesceAbandon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s := st.open(noGuard)
		rpm, alice := per("rpm", 10, time.Hour, 10), bkt("alice")
		st.slow(100 * time.Millisecond)
		var group sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		begun := time.Now()
		for _, tokens := range []int64{4, 3} { // one aboard, one that waits
			synctest.Wait()
			group.Go(func() {
				_, err := s.Take(ctx, store.Take{Debits: []store.Debit{of(alice, rpm, tokens)}})
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 10*time.Millisecond {
					t.Errorf("%v after %v", err, time.Since(begun))
				}
			})
		}
		synctest.Wait()
		group.Go(func() { st.want(s, true, of(alice, rpm, 2)) })
		group.Wait()
		s.Flush()
		st.fake.Before, st.fake.After = nil, nil
		d, _ := st.number(alice, "D_rpm")
		r, _ := st.number(alice, "R_rpm")
		if d != "6000" || r != "4000" && r != "3999" { // the clock has advanced by one
			t.Errorf("debited %s, returned %s", d, r)
		}
	})
}

// TestCoalesceAbandonedTake checks that if the caller leaves a take, the debits of its other buckets are returned, too.
func TestCoalesceAbandonedTake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s := st.open(noGuard)
		rpm := per("rpm", 10, time.Hour, 10)
		st.slow(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := s.Take(ctx, store.Take{Debits: []store.Debit{of(bkt("a"), rpm, 4), of(bkt("b"), rpm, 5)}})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(time.Second)
		s.Flush()
		st.fake.Before, st.fake.After = nil, nil
		for _, b := range []string{"a", "b"} {
			if n := st.outstanding(bkt(b), "rpm"); n != 0 {
				t.Errorf("%s has %d outstanding", b, n)
			}
		}
	})
}
