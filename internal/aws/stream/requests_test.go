package stream_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/aws/stream"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// TestRequests compares booked requests with admitted takes: callers share writes, buckets are split, parents refuse most
// requests, calls are never made, callers give up, and answers are lost. A request whose answer was lost may be counted
// twice, like its tokens: a request is counted exactly when its tokens are.
func TestRequests(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("answers lost ", lost), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { requests(t, lost) })
		})
	}
}

func requests(t *testing.T, lost bool) {
	st := newStage(t)
	handle := stream.Handler(stream.Config{Store: st.store, NoSplit: true})
	st.deliver(t, handle, nil)
	begun := time.Now()
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(1, 2))
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return dice.IntN(n)
	}
	fails := func(op string, err error) error {
		time.Sleep(time.Duration(1+roll(3)) * time.Millisecond) // real time: none; this is a bubble
		if op == "UpdateItem" && roll(10) == 0 {
			return err
		}
		return nil
	}
	st.fake.Before = func(op string, _ any) error { return fails(op, &types.ProvisionedThroughputExceededException{}) }
	if lost {
		st.fake.After = func(op string, _, _ any) error { return fails(op, &types.InternalServerError{}) }
	}
	var stores []*dynamodb.Store
	for range 3 {
		s, err := dynamodb.New(dynamodb.Config{Client: st.fake, Table: table, CallTimeout: time.Minute, WriteTimeout: time.Minute, Now: func() time.Time { return evening.Add(time.Since(begun)) }})
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
	}
	admitted := make(map[string]int64)
	var wg sync.WaitGroup
	for caller := range 20 {
		wg.Go(func() {
			for i := range 30 {
				s := stores[(caller+i)%len(stores)]
				debits := []store.Debit{one(fmt.Sprint("child-", i%3), slow, 1000)}
				if caller%2 == 0 {
					debits = append(debits, one(fmt.Sprint("parent-", i/2), tight, 1000))
				}
				if caller == 1 && i%7 == 6 {
					if _, err := s.Split(t.Context(), debits[0].Bucket, 2); err != nil {
						t.Error(err)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				if caller == 3 { // this caller gives up early
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(roll(6))*time.Millisecond)
				}
				out, err := s.Take(ctx, store.Take{Debits: debits})
				cancel()
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if err == nil && out.Allowed {
					mu.Lock()
					for j := range debits {
						admitted[debits[j].Bucket.Entity]++
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for _, s := range stores {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	st.fake.Before, st.fake.After = nil, nil
	for all := st.taken(); len(all) > 0; all = all[min(100, len(all)):] {
		for range 2 {
			if resp, err := handle(t.Context(), events.DynamoDBEvent{Records: slices.Clone(all[:min(150, len(all))])}); err != nil || len(resp.BatchItemFailures) > 0 {
				t.Fatal(resp, err)
			}
		}
	}
	monthly := func(limit string, figure func(*store.LimitFigures) int64) map[string]int64 {
		sum := make(map[string]int64)
		for w, n := range figures(t, st.store, limit, figure) {
			if w.of == store.OfBucket && w.w == store.Monthly {
				sum[w.id] += n
			}
		}
		return sum
	}
	counted := monthly("", func(f *store.LimitFigures) int64 { return f.Requests })
	consumed := monthly("tpm", func(f *store.LimitFigures) int64 { return f.Consumed() / 1000 })
	returned := monthly("tpm", func(f *store.LimitFigures) int64 { return f.Returned })
	for entity, n := range counted { // what a refused request took stays debited where others keep writing
		if n > consumed[entity] {
			t.Errorf("%s: %d requests consumed %d tokens, of which each takes one", entity, n, consumed[entity])
		}
	}
	for entity, n := range admitted {
		if counted[entity] < n || !lost && counted[entity] != n {
			t.Errorf("%s: %d requests were counted of %d", entity, counted[entity], n)
		}
	}
	if returned["child-0"] == 0 || !lost && admitted["parent-0"] != 3 || admitted["child-0"] < 50 {
		t.Errorf("returned %v, admitted %v: nothing was put to the test", returned, admitted)
	}
	shards := 0
	for _, it := range st.fake.Items(table) {
		if _, split := it["sc"]; split {
			shards++
		}
	}
	if shards < 2 {
		t.Errorf("%d shards of split buckets", shards)
	}
}
