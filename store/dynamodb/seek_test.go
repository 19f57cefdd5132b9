package dynamodb_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

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

// TestNewcomerThrottled checks that a process that does not know that a bucket is split, and cannot write to shard 0, finds
// the other shards by one read.
func TestNewcomerThrottled(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 8} {
		synctest.Test(t, func(t *testing.T) {
			st := newStage(t)
			b, l := bkt("a"), per("rpm", 64, time.Minute, 64)
			s, _ := st.join()
			st.want(s, true, of(b, l, 0))
			st.split(s, b, n)
			st.clock.Advance(time.Second) // until the millitoken of each new half has come
			fresh, p := st.join(noGuard, func(c *dynamodb.Config) { c.MaxShards = 8 })
			writes := p.hot(0)
			if calls := st.spent(func() { st.want(fresh, true, of(b, l, 1)) }); calls != 2 || writes[0] != 1 || fresh.Shards(b) != n {
				t.Errorf("%d shards: %d calls besides the throttled one, %v, %d shards known", n, calls, writes, fresh.Shards(b))
			}
			st.must(fresh.Close())
			st.must(s.Close())
		})
	}
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
		st.clock.Advance(time.Minute) // until the millitoken of each new half has come
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
