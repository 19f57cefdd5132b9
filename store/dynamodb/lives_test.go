package dynamodb_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// expire deletes a shard if its ttl has passed, as DynamoDB does at any time from then on, and reports whether it did.
func (st *stage) expire(b store.Bucket, k int) bool {
	it := st.shard(b, k)
	if ttl := intOf(it, "ttl"); ttl == 0 || time.Unix(ttl, 0).After(st.clock.Now()) {
		return false
	}
	st.remove(it)
	return true
}

func (st *stage) remove(it map[string]types.AttributeValue) {
	_, err := st.fake.DeleteItem(st.Context(), &sdk.DeleteItemInput{
		TableName: new(stageTable), Key: map[string]types.AttributeValue{"PK": it["PK"], "SK": it["SK"]},
	})
	st.must(err)
}

// drain takes single tokens until 20 in a row are refused, and returns how many it got.
func (st *stage) drain(s *dynamodb.Store, b store.Bucket, l *store.Limit) (n int) {
	for refused := 0; refused < 20; refused++ {
		if st.take(s, of(b, l, 1)).Allowed {
			n, refused = n+1, 0
		}
	}
	return n
}

// TestSplitExpires checks that nothing is left of a split bucket that nobody writes to for a week, and that it then begins
// again, full and in one item, for processes that took it for split, too.
func TestSplitExpires(t *testing.T) {
	t.Parallel()
	for _, forgotten := range []bool{false, true} {
		st := newStage(t)
		b, l := bkt("a"), per("rpm", 60, time.Hour, 60)
		s, _ := st.join()
		other, _ := st.join()
		st.want(s, true, of(b, l, 1))
		st.split(s, b, 4)
		if n := st.drain(s, b, l) + st.drain(other, b, l); n < 56 || n > 59 { // each new half lacks a millitoken
			t.Errorf("%d admitted of 59", n)
		}
		for k := range 4 {
			if ttl := time.Unix(intOf(st.shard(b, k), "ttl"), 0).Sub(st.clock.Now()); ttl < 24*time.Hour || ttl > 7*24*time.Hour {
				t.Errorf("shard %d lives for %s", k, ttl)
			}
		}
		if forgotten {
			st.must(s.Forget(t.Context(), b))
		}
		st.clock.Advance(8 * 24 * time.Hour)
		if n := st.fake.Sweep(st.clock.Now()); n != 4 || len(st.fake.Items(stageTable)) > 1 {
			t.Errorf("%d items are deleted, %d are left", n, len(st.fake.Items(stageTable)))
		}
		if n := st.drain(s, b, l) + st.drain(other, b, l); n != 60 || st.shards(b) != 1 {
			t.Errorf("%d admitted of 60, in %d items", n, st.shards(b))
		}
		st.split(other, b, 2)
		st.must(s.Close())
		st.must(other.Close())
	}
}

// TestSplitLives checks that shard 0 is the last to expire, that a debt on another shard keeps it, and that none is
// written to once it has expired, although DynamoDB has not deleted it.
func TestSplitLives(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	b, l := bkt("a"), per("rpd", 24, 24*time.Hour, 24)
	s, _ := st.join()
	st.want(s, true, of(b, l, 1))
	st.split(s, b, 2)
	s.Pick(1)
	st.want(s, true, of(b, l, 4))
	st.settle(s, of(b, l, 24*30)) // a debt of a month
	for day := range 29 {
		owed := st.outstanding(b, "rpd")
		st.fake.Sweep(st.clock.Now())
		if left := st.outstanding(b, "rpd"); left != owed {
			t.Fatalf("after %d days %d outstanding, then %d", day, owed, left)
		}
		if root, other := intOf(st.shard(b, 0), "ttl"), intOf(st.shard(b, 1), "ttl"); root < other+24*60*60 {
			t.Fatalf("after %d days shard 0 expires at %d, shard 1 at %d", day, root, other)
		}
		st.take(s, of(b, l, 1))
		st.clock.Advance(24 * time.Hour)
	}
	st.clock.Advance(25 * 24 * time.Hour)
	left := st.shard(b, 1)
	st.fake.Sweep(st.clock.Now())
	if st.shard(b, 0) != nil || st.shard(b, 1) != nil {
		t.Error("shards are left")
	}
	_, err := st.fake.PutItem(t.Context(), &sdk.PutItemInput{TableName: new(stageTable), Item: left})
	st.must(err) // it is deleted late
	fresh, _ := st.join()
	if n := st.drain(fresh, b, l) + st.drain(s, b, l); n != 24 {
		t.Errorf("%d admitted of 24", n)
	}
	st.split(fresh, b, 2) // in place of what is left
	if n := st.drain(s, b, l) + st.drain(fresh, b, l); n != 0 {
		t.Errorf("%d admitted after the split", n)
	}
}

// TestShardExpired checks that a shard that has expired alone is full when it is needed again, and that the bucket then
// has what it would have had.
func TestShardExpired(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	b, l := bkt("a"), per("rpm", 60, time.Hour, 60)
	s, _ := st.join()
	st.want(s, true, of(b, l, 60))
	st.split(s, b, 4)
	s.Pick(0)
	for range 3 {
		st.clock.Advance(24 * time.Hour)
		st.want(s, true, of(b, l, 1))
	}
	for k := range 4 {
		if st.expire(b, k) != (k > 0) {
			t.Errorf("shard %d: wrong ttl %d", k, intOf(st.shard(b, k), "ttl"))
		}
	}
	fresh, _ := st.join()
	if n := st.drain(fresh, b, l) + st.drain(s, b, l); n != 59 {
		t.Errorf("%d admitted of 59", n)
	}
}

// TestExploreExpiry explores how the shards of a bucket vanish, one at a time, under processes that take it for split.
func TestExploreExpiry(t *testing.T) {
	t.Parallel()
	unraced(t)
	quiet := func(days int) func(y *play) {
		return func(y *play) {
			known(20)(y)
			y.split(y.s[0], y.b, 2)
			for i := range y.s {
				y.take(y.s[i], of(y.b, y.l, 1))
			}
			y.clock.Advance(time.Duration(days) * 24 * time.Hour)
			y.s[1].Pick(1)
		}
	}
	gone := func(shards ...int) func(*play, int) {
		return func(y *play, i int) {
			for _, k := range shards {
				_ = y.p[i].before("", nil)
				y.expire(y.b, k)
			}
		}
	}
	for _, scripts := range [][]func(*play, int){
		{gone(0), debits(30, 30)},
		{gone(1), debits(30, 30)},
		{gone(0, 1), debits(60)},
		{gone(0), splits(2)},
		{debits(30), debits(30)},
	} {
		for _, days := range []int{3, 8} {
			explore(t, nil, quiet(days), func(y *play) error {
				if y.s[0], _ = y.join(); y.err != nil {
					return y.err
				}
				if left := y.drain(y.s[0], y.b, y.l); y.sum()+int64(left)*1000 > 60_000 {
					return fmt.Errorf("%d admitted, then %d tokens, of 60", y.sum(), left)
				}
				return errors.Join(within(y), y.s[0].Close())
			}, scripts...)
		}
	}
}
