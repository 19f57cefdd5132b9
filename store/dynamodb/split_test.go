package dynamodb_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// TestDayUnsplit checks that a bucket that is written once a second stays one item.
func TestDayUnsplit(t *testing.T) {
	t.Parallel()
	unraced(t)
	st := newStage(t)
	a, b := bkt("a"), per("rpm", 1000, time.Minute, 1000)
	s, _ := st.join()
	day := int64(60 * 60) // one hour is enough
	if long(t) {
		day *= 24
	}
	for range day {
		st.clock.Advance(time.Second)
		st.want(s, true, of(a, b, 1))
	}
	if n, writes := st.shards(a), intOf(st.shard(a, 0), "wc"); n != 1 || writes != day {
		t.Errorf("%d shards after %d writes, want 1 after %d", n, writes, day)
	}
}

// hammer writes to a bucket from several processes, each of them about 500 times a second, and returns a store.
func (st *stage) hammer(t *testing.T, b store.Bucket, l *store.Limit, processes int, d time.Duration, change ...func(*dynamodb.Config)) *dynamodb.Store {
	st.slow(200 * time.Microsecond)
	until := time.Now().Add(d)
	done := make(chan struct{})
	var s *dynamodb.Store
	for range processes {
		each, _ := st.join(append(slices.Clone(change), st.flow())...)
		s = each
		go func() {
			defer func() { done <- struct{}{} }()
			for next := time.Now(); next.Before(until); next = next.Add(2 * time.Millisecond) {
				time.Sleep(time.Until(next)) // real time: that of the bubble
				if _, err := each.Take(t.Context(), store.Take{Debits: []store.Debit{of(b, l, 1)}}); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	for range processes {
		<-done
	}
	return s
}

// TestSplitHot checks that a bucket that is written 2,000 times a second is split, and that one at the maximum is not.
func TestSplitHot(t *testing.T) {
	t.Parallel()
	unraced(t)
	for _, tt := range []struct{ most, processes, want int }{
		{64, 4, 4}, {2, 4, 2}, {1, 4, 1}, {64, 1, 1},
	} {
		t.Run(fmt.Sprint(tt.most, tt.processes), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := newStage(t)
				b, l := bkt("a"), per("tps", 1_000_000, time.Second, 1_000_000)
				s := st.hammer(t, b, l, tt.processes, 7*time.Second, func(c *dynamodb.Config) { c.MaxShards = tt.most })
				n := st.shards(b)
				if n < min(2, tt.want) || n > tt.want {
					t.Errorf("%d shards, want up to %d", n, tt.want)
				}
				state := st.state(b)
				if len(state.Limits) != 1 || state.Limits[0].Debited < int64(tt.processes)*3000*1000 {
					t.Errorf("state %+v", state)
				}
				var sum int64
				for k := range n {
					sum += intOf(st.shard(b, k), "D_tps")
				}
				if got := state.Limits[0].Debited; got != sum {
					t.Errorf("the bucket shows %d debited, its shards %d", got, sum)
				}
				st.must(s.Close())
			})
		})
	}
}

// throttle throttles the process's next n writes to shard 0, for a reason.
func (p *process) throttle(n int64, reason string) {
	var writes atomic.Int64
	p.before = func(_ string, in any) error {
		if shardOf(in) == 0 && writes.Add(1) <= n {
			return &types.ThrottlingException{ThrottlingReasons: []types.ThrottlingReason{{Reason: &reason}}}
		}
		return nil
	}
}

// shardOf returns the shard that a write is for, or -1 if it is not a write.
func shardOf(in any) int {
	u, ok := in.(*sdk.UpdateItemInput)
	if !ok {
		return -1
	}
	pk := u.Key["PK"].(*types.AttributeValueMemberS).Value
	k, err := strconv.Atoi(pk[strings.LastIndex(pk, "#")+1:])
	if err != nil {
		panic(err)
	}
	return k
}

// TestSplitThrottled checks that throttling of its key splits a bucket, and throttling of the table does not.
func TestSplitThrottled(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]int{
		"TableWriteKeyRangeThroughputExceeded": 2, "TableWriteMaxOnDemandThroughputExceeded": 1,
	} {
		synctest.Test(t, func(t *testing.T) {
			st := newStage(t)
			b, l := bkt("a"), per("rpm", 1000, time.Minute, 1000)
			s, p := st.join()
			st.want(s, true, of(b, l, 1))
			st.clock.Advance(2 * time.Second) // only few writes came through
			p.throttle(3, reason)
			st.want(s, true, of(b, l, 1))
			s.Flush()
			if n := st.shards(b); n != want {
				t.Errorf("%s: %d shards, want %d", reason, n, want)
			}
			st.must(s.Close())
		})
	}
}

// TestSplitExact checks that the counters stay the same, and what is outstanding, too, at any level, except for the
// millitoken that each new half lacks.
func TestSplitExact(t *testing.T) {
	t.Parallel()
	unraced(t)
	for _, burst := range []int64{1, 2, 3, 7, 1000, 1001, 60_000} {
		for _, spent := range []int64{0, 1, burst / 2, burst - 1, burst} {
			st := newStage(t)
			b, l := bkt("a"), raw("rpm", 60_001, burst)
			s, _ := st.join()
			st.want(s, spent <= burst, charge(b, l, spent))
			before := st.state(b)
			for n := 2; n <= 16; n *= 2 {
				st.split(s, b, n)
				after := st.state(b)
				if after.ID != before.ID || after.Limits[0].Debited != spent || st.outstanding(b, "rpm") < spent || st.outstanding(b, "rpm") > spent+int64(n-1) {
					t.Fatalf("burst %d, %d spent, %d shards: %+v, was %+v", burst, spent, n, after, before)
				}
				for k := range n {
					share := func(x int64) int64 { return (x + int64(k)) / int64(n) }
					level, reading := intOf(st.shard(b, k), "L_rpm"), share(st.reading(l))
					if owed := clock.Outstanding(level, reading); owed > share(burst)+2 {
						t.Fatalf("burst %d, %d spent: shard %d of %d owes %d of %d", burst, spent, k, n, owed, share(burst))
					}
				}
			}
			// What is left can be taken, from whichever shards, and no more.
			st.want(s, true, charge(b, l, max(0, burst-st.outstanding(b, "rpm"))))
			st.want(s, false, charge(b, l, 1))
			st.must(s.Close())
		}
	}
}

// TestSplitInDebt checks that a bucket may be split while it is in debt, and that neither half has room until the debt is
// paid.
func TestSplitInDebt(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	b, l := bkt("a"), per("rpm", 60, time.Minute, 60)
	s, _ := st.join()
	st.want(s, true, of(b, l, 1))
	st.settle(s, of(b, l, 79))
	st.split(s, b, 4)
	if owed := st.outstanding(b, "rpm"); owed < 80_000 || owed > 80_003 {
		t.Errorf("%d outstanding", owed)
	}
	st.clock.Advance(20 * time.Second)
	st.want(s, false, of(b, l, 1))
	st.clock.Advance(2 * time.Second)
	st.want(s, true, of(b, l, 1))
}

// TestSplitMeanwhile checks that the steps of a split find what others do until they arrive, and that what others do
// between two steps waits for the last.
func TestSplitMeanwhile(t *testing.T) {
	t.Parallel()
	l, other := per("rpm", 60, time.Minute, 60), per("tpm", 100, time.Minute, 100)
	over := *other
	over.Override = true
	b := bkt("a")
	for name, tt := range map[string]struct {
		do   func(st *stage, s *dynamodb.Store)
		owed int64
	}{
		"a debit":        {func(st *stage, s *dynamodb.Store) { st.want(s, true, of(b, l, 5)) }, 25},
		"a return":       {func(st *stage, s *dynamodb.Store) { st.settle(s, of(b, l, -5)) }, 15},
		"a new limit":    {func(st *stage, s *dynamodb.Store) { st.settle(s, of(b, other, 30)) }, 20},
		"an override":    {func(st *stage, s *dynamodb.Store) { st.want(s, true, of(b, &over, 30)) }, 20},
		"another splits": {func(st *stage, s *dynamodb.Store) { st.split(s, b, 2) }, 20},
	} {
		for step := 1; step <= 3; step++ {
			t.Run(fmt.Sprint(name, " ", step), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					st := newStage(t)
					s, p := st.join()
					peer, _ := st.join()
					st.want(s, true, of(b, l, 20))
					if name != "a return" { // which finds out by its own write
						st.want(peer, true, of(b, l, 0))
					}
					writes := 0
					p.before = func(string, any) error {
						if writes++; writes == step {
							tt.do(st, peer)
						}
						return nil
					}
					st.split(s, b, 2)
					if got := st.outstanding(b, "rpm"); got < tt.owed*1000 || got > tt.owed*1000+1 {
						t.Errorf("%d outstanding, want %d", got, tt.owed*1000)
					}
					for _, s := range st.state(b).Limits {
						if s.Limit.Name == "tpm" {
							if owed := clock.Outstanding(s.Level, st.reading(s.Limit)); owed < 30_000 || owed > 30_001 {
								t.Errorf("%d of the new limit outstanding, want 30000", owed)
							}
						}
					}
				})
			})
		}
	}
}

// TestSplitAnswerLost checks that a step whose answer is lost is made once: it is repeated, and finds what it left.
func TestSplitAnswerLost(t *testing.T) {
	t.Parallel()
	for _, from := range []int{1, 2} {
		for step := 1; step <= 3*from; step++ {
			synctest.Test(t, func(t *testing.T) {
				st := newStage(t)
				b, l := bkt("a"), per("rpm", 60, time.Minute, 60)
				s, p := st.join()
				st.want(s, true, of(b, l, 20))
				st.split(s, b, from)
				var mu sync.Mutex
				writes := 0
				p.after = func(string, any) error {
					mu.Lock()
					defer mu.Unlock()
					if writes++; writes == step {
						return &types.InternalServerError{}
					}
					return nil
				}
				st.split(s, b, 2*from)
				if owed := st.outstanding(b, "rpm"); owed < 20_000 || owed > 20_003 {
					t.Errorf("step %d of a split of %d: %d outstanding", step, from, owed)
				}
				st.must(s.Close())
			})
		}
	}
}

// TestSplitUnfinished checks that a process that meets a bucket that is being split waits for whoever splits it, and goes
// on with the steps if nobody does.
func TestSplitUnfinished(t *testing.T) {
	t.Parallel()
	for step := 2; step <= 6; step++ {
		synctest.Test(t, func(t *testing.T) {
			st := newStage(t)
			s, p := st.join()
			l, alice := per("rpm", 60, time.Minute, 60), bkt("alice")
			st.want(s, true, of(alice, l, 1))
			st.split(s, alice, 2)
			var dead bool
			p.kill(step, false, &dead)
			if _, err := s.Split(t.Context(), alice, 4); err == nil {
				t.Fatal("the split is complete")
			}
			other := st.open(noGuard, noMemory)
			begun := time.Now()
			for range 58 {
				st.want(other, true, of(alice, l, 1))
			}
			if took := time.Since(begun); took > time.Second || st.shards(alice) != 4 {
				t.Errorf("step %d: %d shards after %v", step, st.shards(alice), took)
			}
			st.want(other, false, of(alice, l, 1))
			st.want(other, false, of(alice, l, 2))
		})
	}
}

// TestGrowOnce checks that of several processes that write to a bucket too often, only the one that freezes shard 0 makes
// the steps that split it, whether another one finds shard 0 frozen or fails to freeze it.
func TestGrowOnce(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			st := newStage(t)
			s, p := st.join()
			other, q := st.join()
			b, l := bkt("a"), per("rpm", 60, time.Minute, 60)
			st.want(s, true, of(b, l, 20))
			held := make(chan struct{})
			p.before = func(_ string, in any) error {
				if shardOf(in) == 1 {
					<-held
				}
				return nil
			}
			writes := 0
			q.before = func(string, any) error {
				if writes++; late {
					s.Grow(b, 2)
					synctest.Wait()
				}
				return nil
			}
			if !late {
				s.Grow(b, 2)
				synctest.Wait()
			}
			other.Grow(b, 2)
			other.Flush()
			if late && writes != 1 || !late && writes != 0 {
				t.Errorf("late %t: %d writes", late, writes)
			}
			close(held)
			s.Flush()
			if n := st.shards(b); n != 2 {
				t.Errorf("late %t: %d shards", late, n)
			}
		})
	}
}

// stop stops a process before the n-th write from now to shard k, until the returned function is called.
func (p *process) stop(k, n int) (release func()) {
	held := make(chan struct{})
	var writes atomic.Int64
	p.before = func(_ string, in any) error {
		if shardOf(in) == k && writes.Add(1) == int64(n) {
			<-held
		}
		return nil
	}
	return sync.OnceFunc(func() { close(held) })
}

// TestSplitLargest splits, sweeps and forgets a bucket with as many limits as one can have: each write must fit.
func TestSplitLargest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s, _ := st.join()
		b := bkt("a")
		all := func(from int) (d store.Debit) {
			d.Bucket = b
			for i := range store.MaxLimits + store.MaxOverrides {
				l := per("l"+strconv.Itoa(i), 640, time.Minute, 640)
				if l.Override = i >= store.MaxLimits; l.Override {
					l.Burst += int64(1000 * from)
				}
				d.Charges = append(d.Charges, store.Charge{Limit: l, Amount: 64_000})
			}
			return d
		}
		st.want(s, true, all(0))
		for n := 2; n <= 8; n *= 2 {
			st.split(s, b, n)
			st.want(s, true, all(0))
			st.settle(s, all(0))
		}
		it := st.shard(b, 3)
		_, err := st.fake.DeleteItem(t.Context(), &sdk.DeleteItemInput{
			TableName: new(stageTable), Key: map[string]types.AttributeValue{"PK": it["PK"], "SK": it["SK"]},
		})
		st.must(err)
		st.clock.Advance(time.Hour)
		st.want(s, true, all(0))
		st.clock.Advance(time.Hour)
		st.want(s, true, all(100)) // other overrides, which replace those that are full
		st.want(st.open(noGuard, noMemory), true, all(100))
		st.must(s.Forget(t.Context(), b))
		st.want(s, true, all(0))
	})
}

// layouts runs a test on a bucket of 60 tokens that is not split, and split into 2 and 4. One token was taken.
func layouts(t *testing.T, f func(t *testing.T, st *stage, s *dynamodb.Store, b store.Bucket, l *store.Limit)) {
	t.Helper()
	for _, n := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			st := newStage(t)
			b, l := bkt("a"), per("rpm", 60, time.Hour, 60)
			s, _ := st.join()
			st.want(s, true, of(b, l, 1))
			if n > 1 {
				st.split(s, b, n)
			}
			f(t, st, s, b, l)
		})
	}
}

// A split bucket is debited up to max_debt, wherever on its shards what it owes is.
func TestSplitMaxDebt(t *testing.T) {
	t.Parallel()
	layouts(t, func(t *testing.T, st *stage, s *dynamodb.Store, b store.Bucket, l *store.Limit) {
		t.Helper()
		debt := func(tokens, most int64) int64 {
			out, err := s.Settle(t.Context(), store.Settle{Debits: []store.Debit{{
				Bucket: b, Charges: []store.Charge{{Limit: l, Amount: tokens * 1000, MaxDebt: most * 1000}},
			}}})
			if err != nil {
				t.Fatal(err)
			}
			return out.Levels[0].Left
		}
		left := debt(59+120, 120) // all the way
		if left > 4 {             // splits cost a millitoken for each new shard
			t.Errorf("%d were left out of what the limit may be in debt", left)
		}
		st.settle(s, of(b, l, -60)) // another lease comes back: 60 of 120 in debt
		if left = debt(60, 120); left > 4 {
			t.Errorf("%d were left out, though the limit was only 60 of 120 tokens in debt", left)
		}
	})
}

// A split bucket is forgiven what it owes as a whole, and no more.
func TestSplitForgiven(t *testing.T) {
	t.Parallel()
	layouts(t, func(t *testing.T, st *stage, s *dynamodb.Store, b store.Bucket, l *store.Limit) {
		t.Helper()
		st.settle(s, of(b, l, 59+60))
		st.settle(s, of(b, l, -60)) // even
		before := st.outstanding(b, "rpm")
		_, err := s.Settle(t.Context(), store.Settle{Forgive: true, Debits: []store.Debit{of(b, l, -1_000_000)}})
		if err != nil {
			t.Fatal(err)
		}
		if got := st.outstanding(b, "rpm"); before-got > max(0, before-60_000)+4 {
			t.Errorf("%d outstanding of 60000, and %d after forgiving", before, got)
		}
	})
}
