package dynamodb_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store/dynamodb"
)

// reader is a process whose reads can be watched.
type reader struct {
	*process

	read func(n int) // called before the n-th read
	n    int
}

func (r *reader) BatchGetItem(ctx context.Context, in *sdk.BatchGetItemInput, o ...func(*sdk.Options)) (*sdk.BatchGetItemOutput, error) {
	if r.n++; r.read != nil {
		r.read(r.n)
	}
	return r.process.BatchGetItem(ctx, in, o...)
}

// TestShardAhead checks that a shard that has been doubled since a process read shard 0 is left alone. It is not mistaken
// for one that was left behind, which would be replaced by one that has nothing left.
func TestShardAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		b, l := bkt("a"), per("rpm", 60, time.Hour, 60)
		s, p := st.join()
		r := &reader{process: &process{Fake: st.fake}}
		other := st.open(noGuard, noMemory, func(c *dynamodb.Config) { c.Client = r })
		st.want(s, true, of(b, l, 20))
		st.split(s, b, 2)
		s.Pick(1)
		st.want(s, true, of(b, l, 5))
		st.split(other, b, 2)
		other.Pick(1)

		double := func(n int) { // on a goroutine: it is stopped
			if have, err := s.Split(st.Context(), b, n); err != nil || have != n {
				t.Errorf("%d shards, want %d: %v", have, n, err)
			}
		}
		finish := p.stop(1, 2) // when shard 1 is frozen as one of two
		go double(4)
		synctest.Wait()
		r.n, r.read = 0, func(n int) {
			switch n {
			case 1: // shard 0, after shard 1 was found frozen
				finish()
				synctest.Wait()
				if n := st.shards(b); n != 4 {
					t.Errorf("%d shards", n)
				}
			case 2: // shard 1, after shard 0 showed four
				finish = p.stop(0, 2) // when all others are of eight
				go double(8)
				synctest.Wait()
				if root, n := intOf(st.shard(b, 0), "sc"), intOf(st.shard(b, 1), "sc"); root != -4 || n != 8 {
					t.Errorf("shard 1 is one of %d, shard 0 shows %d", n, root)
				}
			default:
				finish()
			}
		}
		st.want(other, true, of(b, l, 1))
		if r.n < 3 {
			t.Errorf("%d reads", r.n)
		}
		if d := intOf(st.shard(b, 1), "D_rpm") + intOf(st.shard(b, 0), "D_rpm"); d < 25_000 || st.shards(b) != 8 {
			t.Errorf("shards 0 and 1 of %d show %d debited, want 25000", st.shards(b), d)
		}
	})
}

// TestShardMissing checks that a shard that is missing, or was split less often than shard 0, starts with nothing left.
// Earlier versions split shards one by one, and could leave both behind.
func TestShardMissing(t *testing.T) {
	t.Parallel()
	for _, left := range []int{0, 2} { // the number of shards that shard 3 shows; 0: it is missing
		synctest.Test(t, func(t *testing.T) {
			st := newStage(t)
			s, _ := st.join()
			l, b := per("rpm", 60, time.Minute, 60), bkt("a")
			st.want(s, true, of(b, l, 0))
			st.split(s, b, 4)
			for k := range 4 { // items of a bucket that an earlier version split have no ttl
				it := st.shard(b, k)
				delete(it, "ttl")
				_, err := st.fake.PutItem(t.Context(), &sdk.PutItemInput{TableName: new(stageTable), Item: it})
				st.must(err)
			}
			it := st.shard(b, 3)
			key := map[string]types.AttributeValue{"PK": it["PK"], "SK": it["SK"]}
			if left == 0 {
				_, err := st.fake.DeleteItem(t.Context(), &sdk.DeleteItemInput{TableName: new(stageTable), Key: key})
				st.must(err)
			} else {
				_, err := st.fake.UpdateItem(t.Context(), &sdk.UpdateItemInput{
					TableName: new(stageTable), Key: key, UpdateExpression: new("SET sc = :n"),
					ExpressionAttributeValues: map[string]types.AttributeValue{":n": &types.AttributeValueMemberN{Value: strconv.Itoa(left)}},
				})
				st.must(err)
			}
			for _, s := range []*dynamodb.Store{s, st.open(noGuard, noMemory)} {
				n := 0
				for range 100 {
					if st.take(s, of(b, l, 1)).Allowed {
						n++
					}
				}
				if n > 45 {
					t.Errorf("%d admitted of the 45 of three shards", n)
				}
			}
			if n := intOf(st.shard(b, 3), "sc"); n != 4 {
				t.Errorf("shard 3 is one of %d", n)
			}
			st.clock.Advance(8 * time.Second)
			n := 0
			for range 20 {
				if st.take(s, of(b, l, 1)).Allowed {
					n++
				}
			}
			if n != 8 {
				t.Errorf("%d admitted after 8 s", n)
			}
			st.split(s, b, 8)
		})
	}
}
