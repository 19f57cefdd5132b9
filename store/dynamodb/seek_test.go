package dynamodb_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// hot throttles the process's writes to some shards, and counts those to each.
func (p *process) hot(shards ...int) (writes map[int]int) {
	writes = make(map[int]int)
	p.before = func(_ string, in any) error {
		k := shardOf(in)
		writes[k]++
		if slices.Contains(shards, k) {
			return errHot
		}
		return nil
	}
	return writes
}

var errHot = &types.ThrottlingException{ThrottlingReasons: []types.ThrottlingReason{{Reason: new("TableWriteKeyRangeThroughputExceeded")}}}

// TestSeek checks that a process that does not know that a bucket is split finds its shards although it cannot reach
// shard 0, and gets what they have, and no more.
func TestSeek(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 4, 8} {
		synctest.Test(t, func(t *testing.T) {
			st := newStage(t)
			b, l := bkt("a"), per("rpm", 64, time.Minute, 64)
			s, _ := st.join()
			st.want(s, true, of(b, l, 0))
			st.split(s, b, n)
			fresh, p := st.join(noGuard, func(c *dynamodb.Config) { c.MaxShards = 8 })
			writes := p.hot(0)
			g := st.keep(l)
			st.want(fresh, true, of(b, l, 1))
			tried := 0
			for _, w := range writes {
				tried += w
			}
			if depths := fresh.Depths(b); len(depths) != n || writes[0] != 1 || tried > 3 {
				t.Errorf("%d shards: known as %v after writes to %v", n, depths, writes)
			}
			left := 64 - 64/n - 1
			for i := range left {
				if !st.take(fresh, of(b, l, 1)).Allowed {
					t.Fatalf("%d shards: refused after %d of %d, %v", n, i, left, st.rooms(b, l))
				}
			}
			p.before = nil
			for range 2 * 64 {
				st.take(fresh, of(b, l, 1))
			}
			st.must(g.check())
			if owed := st.outstanding(b, "rpm"); owed != 64_000 {
				t.Errorf("%d shards: %d outstanding of 64000", n, owed)
			}
			st.must(fresh.Close())
			st.must(s.Close())
		})
	}
}

// TestSeekUnsplit checks that if a bucket is not split, one write shows that, creates nothing, and is not repeated at
// once.
func TestSeekUnsplit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		b, l := bkt("a"), per("rpm", 60, time.Minute, 60)
		s, _ := st.join()
		st.want(s, true, of(b, l, 1))
		fresh, p := st.join()
		calls, throttle := 0, false
		p.before = func(_ string, in any) error {
			calls++
			if throttle && shardOf(in) == 0 {
				throttle = false
				return errHot
			}
			return nil
		}
		for i, want := range []int{4, 2, 2, 3} { // the first one also finds out how full the item is
			if i == 3 {
				st.clock.Advance(2 * time.Second)
			}
			calls, throttle = 0, true
			if st.want(fresh, true, of(b, l, 1)); calls != want {
				t.Errorf("decision %d: %d calls, want %d", i, calls, want)
			}
		}
		if st.shard(b, 1) != nil || st.outstanding(b, "rpm") > 5000 {
			t.Errorf("shard 1 %v, %d outstanding", st.shard(b, 1), st.outstanding(b, "rpm"))
		}
		st.must(fresh.Close())
		st.must(s.Close())
	})
}

// TestSeekUnfinished checks that a process that seeks never creates a shard whose parent it has not seen split, however
// long the shard is missing.
func TestSeekUnfinished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		b, l := bkt("a"), per("rpm", 60, time.Minute, 60)
		s, p := st.join()
		st.want(s, true, of(b, l, 0))
		st.split(s, b, 2)
		p.before = func(op string, _ any) error {
			if op == "PutItem" {
				return &types.InternalServerError{}
			}
			return nil
		}
		s.Split(b, 1) // shards 0 of 2 and 1 of 4, without 3
		fresh, seeker := st.join(func(c *dynamodb.Config) { c.WriteTimeout = time.Second })
		for range 10 {
			seeker.hot(0, 1)
			if _, err := fresh.Take(t.Context(), store.Take{Debits: []store.Debit{of(b, l, 1)}}); err == nil {
				t.Fatal("both shards that are there are throttled, and it was decided")
			}
			st.clock.Advance(5 * time.Second)
		}
		if st.shard(b, 2) != nil || st.shard(b, 3) != nil {
			t.Errorf("made: %v, %v", st.shard(b, 2), st.shard(b, 3))
		}
		seeker.before = nil
		st.want(fresh, true, of(b, l, 1))
		st.must(fresh.Close())
		st.must(s.Close())
	})
}

// TestSeekAhead checks that what was debited ahead on a shard that was found without shard 0 is returned before the store
// is closed.
func TestSeekAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		b, l := bkt("a"), per("rph", 640, time.Hour, 640)
		s, _ := st.join()
		late, p := st.join(func(c *dynamodb.Config) { c.MaxShards, c.Prefetch.Share = 2, 0.5 })
		st.want(late, true, of(b, l, 1)) // from shard 0, while it was the only one
		st.split(s, b, 2)
		p.hot(0)
		for range 5 {
			st.clock.Advance(10 * time.Millisecond)
			st.want(late, true, of(b, l, 1))
		}
		if owed := st.outstanding(b, "rph"); owed <= 6000 {
			t.Fatalf("%d outstanding: nothing was debited ahead", owed)
		}
		st.must(late.Close())
		if owed := st.outstanding(b, "rph"); owed > 6000 {
			t.Errorf("%d outstanding of 6000 that were taken", owed)
		}
		writes := st.writes()
		time.Sleep(time.Minute) // real time: none, it is in a bubble
		if n := st.writes() - writes; n > 0 {
			t.Errorf("%d writes after the end", n)
		}
		st.must(s.Close())
	})
}

// TestMoves checks that a take leaves a shard that is throttled for another, two at most. The third counts as throttled
// three times and is split. A take that has nowhere else to go waits.
func TestMoves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, s, b, l := halved(t)
		fresh, p := st.join()
		for range 20 {
			st.want(fresh, true, of(b, l, 1)) // until it has seen all
		}
		st.clock.Advance(time.Minute)
		n, asked := 0, make(map[int]bool)
		p.before = func(_ string, in any) error {
			if n++; n <= 3 {
				asked[shardOf(in)] = true
				return errHot
			}
			return nil
		}
		st.want(fresh, true, of(b, l, 1))
		fresh.Flush()
		if len(asked) < 2 || st.shards(b) != 8 && st.shard(b, 4) == nil && st.shard(b, 5) == nil && st.shard(b, 6) == nil && st.shard(b, 7) == nil {
			t.Errorf("shards %v were asked, %d there are", asked, st.shards(b))
		}
		st.must(fresh.Close())
		st.must(s.Close())
	})
}

// TestMovesKeepTime checks that a take that is sent from shard to shard waits no longer than one that stays.
func TestMovesKeepTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, s, b, l := halved(t)
		fresh, p := st.join()
		for range 20 {
			st.want(fresh, true, of(b, l, 1)) // until it has seen all
		}
		p.before = func(string, any) error {
			time.Sleep(500 * time.Millisecond) // real time: none, it is in a bubble
			return errHot
		}
		begun := time.Now()
		_, err := fresh.Take(t.Context(), store.Take{Debits: []store.Debit{of(b, l, 1)}})
		if took := time.Since(begun); err == nil || took > 2700*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
		p.before = nil
		st.must(fresh.Close())
		st.must(s.Close())
	})
}

// TestShort checks that if others take all that a split bucket has, a refusal costs one call. Once something is left
// again, it is found, on whatever shard it is.
func TestShort(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	b, l := bkt("a"), per("tps", 80, time.Second, 80)
	others, _ := st.join()
	st.want(others, true, of(b, l, 0))
	st.split(others, b, 8)
	s := st.open()
	for range 100 {
		st.take(s, of(b, l, 0))
	}
	calls := 0
	for i := range 20 {
		st.clock.Advance(time.Second)
		st.want(others, true, of(b, l, 80))
		n := st.spent(func() { st.want(s, false, of(b, l, 1)) })
		if i >= 5 {
			calls += n
		}
	}
	if calls > 15 {
		t.Errorf("%d calls of 15 refusals", calls)
	}
	st.clock.Advance(time.Second)
	for i := range 78 { // except for what the guard takes
		if !st.take(s, of(b, l, 1)).Allowed {
			t.Fatalf("refused after %d of 80: %v", i, st.rooms(b, l))
		}
	}
}

// TestShortAlone checks that a process that has a bucket to itself gets all that it has, however many callers ask at
// once: refusals because of its own debits do not make the bucket short.
func TestShortAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		b, l := bkt("a"), per("rph", 160, time.Hour, 160)
		s := st.open()
		st.want(s, true, of(b, l, 0))
		st.split(s, b, 8)
		for range 400 {
			st.take(s, of(b, l, 0)) // until it has seen all shards, and that it alone writes to them
		}
		st.slow(5 * time.Millisecond)
		var admitted atomic.Int64
		var all sync.WaitGroup
		for range 160 {
			all.Go(func() {
				if st.take(s, of(b, l, 1)).Allowed {
					admitted.Add(1)
				}
			})
		}
		all.Wait()
		if n := admitted.Load(); n != 160 {
			t.Errorf("%d of 160 were admitted, with %v left", n, st.rooms(b, l))
		}
		st.must(s.Close())
	})
}

// TestShortExact checks that a process that must be exact asks all shards.
func TestShortExact(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*dynamodb.Config){"guard": noGuard, "memory": noMemory} {
		st := newStage(t)
		b, l := bkt("a"), per("tps", 80, time.Second, 80)
		others, _ := st.join(noGuard)
		st.want(others, true, of(b, l, 0))
		st.split(others, b, 4) // as many shards as are asked
		s := st.open(change)
		for range 100 {
			st.take(s, of(b, l, 0))
		}
		for range 10 {
			st.clock.Advance(time.Second)
			st.want(others, true, of(b, l, 80))
			st.want(s, false, of(b, l, 1))
		}
		for range 8 { // on whatever shard it is
			st.clock.Advance(time.Second)
			st.want(others, true, of(b, l, 79))
			if !st.take(s, of(b, l, 1)).Allowed {
				t.Errorf("%s: the last one was not found: %v", name, st.rooms(b, l))
			}
		}
	}
}

// TestExploreSeek explores a process that cannot reach shard 0 beside one that splits it.
func TestExploreSeek(t *testing.T) {
	t.Parallel()
	unraced(t)
	seeks := func(y *play, i int) {
		next, n := y.p[i].before, 0
		y.p[i].before = func(op string, in any) error {
			if err := next(op, in); err != nil {
				return err
			}
			if shardOf(in) == 0 {
				if n++; n%2 == 1 {
					return errHot
				}
			}
			return nil
		}
		y.tell(i, of(y.b, y.l, 12))
		y.tell(i, of(y.b, y.l, 12))
	}
	setup := func(y *play) { y.take(y.s[0], of(y.b, y.l, 10)) }
	check := func(y *play) error {
		if n := y.shards(y.b); n != 2 {
			return fmt.Errorf("%d shards", n)
		}
		return errors.Join(y.owes(true), within(y))
	}
	explore(t, nil, setup, check, splits(0), seeks)
}
