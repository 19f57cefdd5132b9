package dynamodb_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// wantTakes checks how many takes a bucket has admitted since its birth, net of those that were undone.
func (st *stage) wantTakes(b store.Bucket, want int64) {
	st.Helper()
	if got := st.state(b).Takes; got != want {
		st.Errorf("%s counts %d takes, want %d", b.Entity, got, want)
	}
}

// TestTakesCounted checks that an item counts the takes that were admitted, in the writes that admit them. It does not
// count takes that were refused, nor forced debits and returns. A take that spans several shards is counted once.
func TestTakesCounted(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s, other := st.open(noGuard), st.open(noGuard, noMemory)
	l, alice, bob := per("rpm", 60, time.Minute, 60), bkt("alice"), bkt("bob")
	st.want(s, true, of(alice, l, 10))
	st.want(s, true, of(alice, l, 0))
	st.want(other, true, of(alice, l, 10), of(bob, l, 60))
	st.want(s, false, of(alice, l, 41))
	st.settle(s, of(alice, l, 5))
	st.settle(s, of(alice, l, -5))
	st.wantTakes(alice, 3)
	st.wantTakes(bob, 1)
	if n, _ := st.number(alice, "tc"); n != "3" {
		t.Errorf("the item says %s", n)
	}
	st.split(s, alice, 4)
	before := st.state(alice).Takes
	st.want(s, true, of(alice, l, 35)) // no shard has as much
	st.wantTakes(alice, before+1)
	st.must(s.Forget(t.Context(), alice))
	st.want(s, true, of(alice, l, 1))
	st.wantTakes(alice, 1)
}

// TestTakesUndone checks that a take that another bucket refuses is not counted, whether there is anything to return of
// it, or it has melted, or it took nothing. The next write to the bucket corrects the count.
func TestTakesUndone(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		tokens int64
		melts  time.Duration
		waits  bool // whether the undo waits for a write
	}{
		"given back": {4, 0, false}, "melted": {4, time.Hour, true}, "of nothing": {0, 0, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			st := newStage(t)
			s, p := st.join()
			other := st.open(noGuard)
			l, alice, bob := per("rpm", 10, time.Hour, 10), bkt("alice"), bkt("bob")
			st.want(other, true, of(bob, l, 10))
			tries := 0
			p.before = func(_ string, in any) error {
				if isUndo(in) {
					if tries++; tt.melts > 0 {
						st.clock.Advance(tt.melts)
						st.want(other, true, of(alice, l, 0)) // what was planned no longer holds
					}
				}
				return nil
			}
			st.want(s, false, of(alice, l, tt.tokens), of(bob, l, 1))
			s.Flush()
			if want := min(int(tt.tokens), 1); tries != want {
				t.Errorf("%s: %d tries, want %d", name, tries, want)
			}
			others := int64(0)
			if tt.melts > 0 {
				others = 1
			}
			if want := others; tt.waits {
				st.wantTakes(alice, want+1) // before the undo is counted
			} else {
				st.wantTakes(alice, want)
			}
			st.want(s, true, of(alice, l, 1))
			st.wantTakes(alice, others+1)
			st.wantTakes(bob, 1)
		})
	}
}

// TestTakesClosed checks that a store that is closed corrects the counts that no later write has corrected, in one
// attempt each and nothing else, provided that the item is still the one on which the takes were made.
func TestTakesClosed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		prepare func(st *stage, s, other *dynamodb.Store, p *process)
		calls   int
		takes   int64
	}{
		"corrected": {func(*stage, *dynamodb.Store, *dynamodb.Store, *process) {}, 1, 0},
		"nothing left": {func(st *stage, s, _ *dynamodb.Store, _ *process) {
			st.want(s, true, of(bkt("alice"), per("rpm", 10, time.Hour, 10), 1))
		}, 0, 1},
		"split meanwhile": {func(st *stage, _, other *dynamodb.Store, _ *process) { st.split(other, bkt("alice"), 4) }, 1, 0},
		"split by itself": {func(st *stage, s, _ *dynamodb.Store, _ *process) { st.split(s, bkt("alice"), 4) }, 1, 0},
		"forgotten": {func(st *stage, _, other *dynamodb.Store, _ *process) {
			st.must(other.Forget(st.Context(), bkt("alice")))
			st.want(other, true, of(bkt("alice"), per("rpm", 10, time.Hour, 10), 1))
		}, 1, 1},
		"throttled": {func(_ *stage, _, _ *dynamodb.Store, p *process) { p.throttle(9, "") }, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := newStage(t)
				s, p := st.join()
				other := st.open(noGuard)
				l, alice, bob := per("rpm", 10, time.Hour, 10), bkt("alice"), bkt("bob")
				st.want(other, true, of(bob, l, 10))
				st.want(s, false, of(alice, l, 0), of(bob, l, 1))
				s.Flush()
				st.wantTakes(alice, 1)
				tt.prepare(st, s, other, p)
				s.Flush()
				calls := 0
				throttle := p.before
				p.before = func(op string, in any) error {
					if calls++; throttle != nil {
						return throttle(op, in)
					}
					return nil
				}
				for range 2 {
					st.must(s.Close())
				}
				if calls != tt.calls {
					t.Errorf("%d calls, want %d", calls, tt.calls)
				}
				st.wantTakes(alice, tt.takes)
			})
		})
	}
}

// TestTakesAhead checks that takes that were served from what was debited ahead are counted by the next write, even if
// that returns the rest of the surplus.
func TestTakesAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s := st.open(noGuard, st.flow(), ahead(0.5))
		rps, alice := per("rps", 1000, time.Hour, 1000), bkt("alice")
		calls := st.spent(func() {
			for range 100 {
				time.Sleep(2 * time.Millisecond)
				st.want(s, true, of(alice, rps, 1))
			}
		})
		if calls > 50 {
			t.Errorf("%d calls: nothing was debited ahead", calls)
		}
		st.must(s.Close())
		st.wantTakes(alice, 100)
	})
}

// TestTakesOfABirth checks that an item's counts go with its id, even if full overrides are removed.
func TestTakesOfABirth(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.open(noGuard)
	alice := bkt("alice")
	over := func(i int) *store.Limit {
		l := per(fmt.Sprint("o", i), 1, time.Second, 1)
		l.Override = true
		return l
	}
	for i := range store.MaxOverrides {
		st.want(s, true, of(alice, over(i), 1))
	}
	was := st.state(alice)
	st.clock.Advance(time.Minute)
	st.want(s, true, of(alice, over(99), 1))
	if is := st.state(alice); is.ID == was.ID || was.Takes != store.MaxOverrides || is.Takes != 1 {
		t.Errorf("%d takes of birth %d, then %d of %d", was.Takes, was.ID, is.Takes, is.ID)
	}
}

// TestTakesRepeated checks that counts carried by a write that was not applied are carried by the write that is made
// instead.
func TestTakesRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s, p := st.join(noGuard)
		l, alice, bob := per("rpm", 10, time.Hour, 10), bkt("alice"), bkt("bob")
		st.want(st.open(noGuard), true, of(bob, l, 10))
		st.want(s, false, of(alice, l, 0), of(bob, l, 1)) // whose undo waits to be counted
		p.throttle(2, "TableWriteMaxOnDemandThroughputExceeded")
		st.clock.Advance(time.Hour)
		st.want(st.open(noGuard), true, of(alice, l, 1)) // so that the guess is wrong, too
		writes := st.writes()
		st.want(s, true, of(alice, l, 1))
		if n := st.writes() - writes; n != 2 {
			t.Errorf("%d writes, want two, and two that were throttled", n)
		}
		st.wantTakes(alice, 2)
		st.must(s.Close())
	})
}

// TestSweepUncounted checks that what others debit for the first time while full overrides are removed is counted only
// under the old id.
func TestSweepUncounted(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s, p := st.join(noGuard)
	l, alice := per("rpm", 60, time.Minute, 60), bkt("alice")
	over := func(i int) store.Debit {
		o := per(fmt.Sprint("o", i), 1, time.Second, 1)
		o.Override = true
		return store.Debit{Bucket: alice, Charges: []store.Charge{{Limit: l}, {Limit: o, Amount: 1000}}}
	}
	for i := range store.MaxOverrides {
		st.want(s, true, over(i))
	}
	st.clock.Advance(time.Minute)
	was := st.state(alice).ID
	p.before = func(string, any) error {
		p.before = nil
		st.want(st.open(noGuard), true, of(alice, l, 5))
		return nil
	}
	st.want(s, true, over(99))
	if d, ok := st.number(alice, "D_rpm"); ok || st.state(alice).ID == was {
		t.Errorf("%s debited of another birth", d)
	}
	if n := st.outstanding(alice, "rpm"); n != 5000 {
		t.Errorf("%d outstanding", n)
	}
}

// TestTakesWhileClosing takes until the store is closed: the race detector watches the counts that closing corrects.
func TestTakesWhileClosing(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s, _ := st.join()
	other := st.open(noGuard)
	many, few := per("rpm", 1_000_000, time.Hour, 1_000_000), per("rpm", 10, time.Hour, 10)
	for i := range 100 {
		st.want(other, true, of(bkt(fmt.Sprint("bob", i)), few, 10))
	}
	var next atomic.Int64
	var takers, begun sync.WaitGroup
	for range 8 {
		begun.Add(1)
		takers.Go(func() {
			first := sync.OnceFunc(begun.Done)
			for {
				bob := bkt(fmt.Sprint("bob", next.Add(1)%100))
				out, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{of(bkt("alice"), many, 0), of(bob, few, 1)}})
				first()
				switch {
				case errors.Is(err, store.ErrClosed):
					return
				case err == nil && out.Allowed:
					t.Errorf("%s was admitted above its limit", bob.Entity)
				}
			}
		})
	}
	begun.Wait()
	st.must(s.Close())
	takers.Wait()
}
