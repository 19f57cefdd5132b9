package dynamodb_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
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

// TestSplitExact checks that what is outstanding and what the counters say stays the same, to the millitoken, at any
// level.
func TestSplitExact(t *testing.T) {
	t.Parallel()
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
				if after.ID != before.ID || after.Limits[0].Debited != spent || st.outstanding(b, "rpm") != spent {
					t.Fatalf("burst %d, %d spent, %d shards: %+v, was %+v", burst, spent, n, after, before)
				}
				for k := range n {
					share := func(x int64) int64 { return (x + int64(k)) / int64(n) }
					level, reading := intOf(st.shard(b, k), "L_rpm"), share(st.reading(l))
					if owed := clock.Outstanding(level, reading); owed > share(burst) {
						t.Fatalf("burst %d, %d spent: shard %d of %d owes %d of %d", burst, spent, k, n, owed, share(burst))
					}
				}
			}
			// What is left can be taken, from whichever shards, and no more.
			st.want(s, true, charge(b, l, burst-spent))
			st.want(s, false, charge(b, l, 1))
			st.must(s.Close())
		}
	}
}

// TestSplitInDebt checks that a bucket that owes more than its halves could hold is not split: one half would have room.
func TestSplitInDebt(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	b, l := bkt("a"), per("rpm", 60, time.Minute, 60)
	s, _ := st.join()
	st.want(s, true, of(b, l, 1))
	st.settle(s, of(b, l, 60))
	if s.Split(b, 0); st.shards(b) != 1 {
		t.Fatal("split in debt")
	}
	st.clock.Advance(time.Second)
	if s.Split(b, 0); st.shards(b) != 2 {
		t.Fatal("not split once it could be")
	}
	st.want(s, false, of(b, l, 1))
	st.clock.Advance(time.Second)
	st.want(s, true, of(b, l, 1))

	// Another process forces it into debt meanwhile.
	s2, p := st.join()
	b2 := bkt("b")
	st.want(s2, true, of(b2, l, 10))
	p.before = func(string, any) error {
		p.before = nil
		st.settle(s, of(b2, l, 60))
		return nil
	}
	if s2.Split(b2, 0); st.shards(b2) != 1 {
		t.Error("split in debt")
	}
}

// TestSplitMeanwhile checks that the write that splits leaves room for what others do between its planning and its
// arrival.
func TestSplitMeanwhile(t *testing.T) {
	t.Parallel()
	l, other := per("rpm", 60, time.Minute, 60), per("tpm", 100, time.Minute, 100)
	over := *other
	over.Override = true
	b := bkt("a")
	for name, tt := range map[string]struct {
		do   func(st *stage, s *dynamodb.Store)
		most int // number of attempts
		owed int64
	}{
		"a debit":        {func(st *stage, s *dynamodb.Store) { st.want(s, true, of(b, l, 5)) }, 1, 25},
		"a return":       {func(st *stage, s *dynamodb.Store) { st.settle(s, of(b, l, -5)) }, 1, 15},
		"too much":       {func(st *stage, s *dynamodb.Store) { st.settle(s, of(b, l, -15)) }, 2, 5},
		"a new limit":    {func(st *stage, s *dynamodb.Store) { st.settle(s, of(b, other, 30)) }, 2, 20},
		"an override":    {func(st *stage, s *dynamodb.Store) { st.want(s, true, of(b, &over, 30)) }, 2, 20},
		"another splits": {func(st *stage, s *dynamodb.Store) { s.Split(b, 0) }, 2, 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := newStage(t)
			s, p := st.join()
			peer, _ := st.join()
			st.want(s, true, of(b, l, 20))
			st.settle(peer, of(b, l, 0)) // which makes no call
			if name == "another splits" {
				st.want(peer, true, of(b, l, 0))
			}
			writes := 0
			p.before = func(op string, _ any) error {
				if writes++; writes == 1 {
					tt.do(st, peer)
				}
				return nil
			}
			s.Split(b, 0)
			if got := st.outstanding(b, "rpm"); got != tt.owed*1000 || st.shards(b) != 2 {
				t.Errorf("%d outstanding on %d shards, want %d on 2", got, st.shards(b), tt.owed*1000)
			}
			for _, s := range st.state(b).Limits {
				if s.Limit.Name == "tpm" {
					if owed := clock.Outstanding(s.Level, st.reading(s.Limit)); owed != 30_000 {
						t.Errorf("%d of the new limit outstanding, want 30000", owed)
					}
				}
			}
			if writes > tt.most+1 {
				t.Errorf("%d writes, want at most %d and the child's", writes, tt.most)
			}
		})
	}
}

// TestSplitAnswerLost checks that if the answer to a split is lost, it is unknown whether the split was made, so its
// child is not put. The child is born empty.
func TestSplitAnswerLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		b, l := bkt("a"), per("rpm", 60, time.Minute, 60)
		s, p := st.join()
		st.want(s, true, of(b, l, 20))
		puts := 0
		p.before = func(op string, _ any) error {
			if op == "PutItem" {
				puts++
			}
			return nil
		}
		p.after = func(string, any) error { p.after = nil; return &types.InternalServerError{} }
		if s.Split(b, 0); st.shards(b) != 2 || puts != 0 || st.shard(b, 1) != nil {
			t.Fatalf("%d shards, child %v after %d puts", st.shards(b), st.shard(b, 1), puts)
		}
		st.orphaned(s, b, l, 20)
		st.must(s.Close())
	})
}

// orphaned checks that a bucket of 60, of which the given amount was debited before its child was lost, gives what is
// left on shard 0, and nothing from shard 1 before the clock has moved on.
func (st *stage) orphaned(s *dynamodb.Store, b store.Bucket, l *store.Limit, debited int64) {
	st.Helper()
	take := func() (n int64) {
		for range 100 {
			if st.take(s, of(b, l, 1)).Allowed {
				n++
			}
		}
		return n
	}
	if n, want := take(), 30-debited/2; n != want {
		st.Errorf("%d admitted right after, want %d", n, want)
	}
	if st.shard(b, 1) != nil {
		st.Error("the child did not have its time to come")
	}
	st.clock.Advance(2 * time.Second) // 1 for each shard
	first := take()
	if first > 1 || st.shard(b, 1) == nil {
		st.Errorf("%d admitted when the child is born empty, want at most 1; %v", first, st.shard(b, 1))
	}
	st.clock.Advance(2 * time.Second)
	if n := take() + first; n != 3 {
		st.Errorf("%d admitted in the end, want 3: 2 of shard 0, 1 of shard 1", n)
	}
}

// TestChildLate checks that a child that is put late finds its place taken, by a shard that was born empty.
func TestChildLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		b, l := bkt("a"), per("rpm", 60, time.Minute, 60)
		s, p := st.join(func(c *dynamodb.Config) { c.CallTimeout = time.Hour })
		peer, _ := st.join()
		st.want(s, true, of(b, l, 20))
		p.before = func(op string, _ any) error {
			if op == "PutItem" {
				p.before = nil
				st.orphaned(peer, b, l, 20)
			}
			return nil
		}
		s.Split(b, 0)
		if owed := intOf(st.shard(b, 1), "L_rpm") - st.reading(l)/2; owed < 29_000 {
			t.Errorf("the late child came through: it owes %d", owed)
		}
		st.must(s.Close())
		st.must(peer.Close())
	})
}

// TestChildSoon checks that a child that is put while others already look for it costs no tokens.
func TestChildSoon(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	b, l := bkt("a"), per("rpm", 60, time.Minute, 60)
	s, p := st.join()
	peer, _ := st.join()
	st.want(s, true, of(b, l, 20))
	p.before = func(op string, _ any) error {
		if op == "PutItem" {
			for range 30 {
				st.take(peer, of(b, l, 1))
			}
		}
		return nil
	}
	s.Split(b, 0)
	st.clock.Advance(time.Second)
	n := 0
	for range 60 {
		if st.take(peer, of(b, l, 1)).Allowed {
			n++
		}
	}
	if n != 21 {
		t.Errorf("%d admitted, want the 20 of the child and 1 of a second", n)
	}
}

// TestChildThrottled checks that the put of the child is repeated.
func TestChildThrottled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		b, l := bkt("a"), per("rpm", 60, time.Minute, 60)
		s, p := st.join()
		st.want(s, true, of(b, l, 20))
		puts := 0
		p.before = func(_ string, in any) error {
			if _, ok := in.(*sdk.PutItemInput); ok {
				if puts++; puts < 3 {
					return &types.ThrottlingException{}
				}
			}
			return nil
		}
		if s.Split(b, 0); st.shard(b, 1) == nil || st.outstanding(b, "rpm") != 20_000 {
			t.Errorf("child %v, %d outstanding", st.shard(b, 1), st.outstanding(b, "rpm"))
		}
		st.must(s.Close())
	})
}

// TestSplitUnfinished checks that while the new half of a split bucket does not exist yet, a take that was sent to it
// gets what the other half has left.
func TestSplitUnfinished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s, p := st.join()
		l, alice := per("rpm", 60, time.Minute, 60), bkt("alice")
		st.want(s, true, of(alice, l, 1))
		p.before = func(op string, _ any) error {
			if op == "PutItem" {
				return &types.InternalServerError{}
			}
			return nil
		}
		s.Split(alice, 0)
		if st.shards(alice) != 2 || st.shard(alice, 1) != nil {
			t.Fatal("the split is not half-way")
		}
		other := st.open(noGuard)
		other.Dice()
		for range 20 {
			st.want(other, true, of(alice, l, 1))
		}
	})
}
