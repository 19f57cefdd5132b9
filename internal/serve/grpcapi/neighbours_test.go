package grpcapi_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/serve/gcpace"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// TestFloodLeavesRoom checks that while one tenant sends 5 batches of 1,000 requests a second, the decisions of another
// are made by the store, and hardly later.
func TestFloodLeavesRoom(t *testing.T) {
	t.Parallel()
	for _, on := range []struct {
		name   string
		within time.Duration
		open   func(testing.TB) store.Store
	}{
		{"redis", 12 * time.Millisecond, func(testing.TB) store.Store { return newStation() }},
		{"dynamodb", 60 * time.Millisecond, func(t testing.TB) store.Store {
			return onDynamoDB(t, func(string, any) error { return nil })
		}},
	} {
		for _, atomically := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/atomic=%t", on.name, atomically), func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) {
					two := newTenants(t, on.open(t), on.within)
					two.quiet(time.Second)
					alone := two.quiet(2 * time.Second)
					end := two.flood(atomically)
					beside := two.quiet(2 * time.Second)
					admitted, all := end()
					if alone.degraded > 0 || 100*beside.degraded > beside.all {
						t.Errorf("%d of %d decisions were degraded, alone %d: %v", beside.degraded, beside.all, alone.degraded, beside.last)
					}
					if now, before := beside.quantile(0.99), alone.quantile(0.99); now > 3*before {
						t.Errorf("p99 is %s, alone %s", now, before) // virtual time: exact
					}
					if !atomically && admitted != all {
						t.Errorf("%d of %d requests of the flood were admitted", admitted, all)
					}
					t.Logf("%d of %d undegraded; p99 %s, alone %s", beside.all-beside.degraded, beside.all,
						beside.quantile(0.99), alone.quantile(0.99))
				})
			})
		}
	}
}

// isOf reports whether a key has an entity's name in it.
func isOf(key map[string]types.AttributeValue, entity string) bool {
	for _, v := range key {
		if s, ok := v.(*types.AttributeValueMemberS); ok && strings.Contains(s.Value, entity) {
			return true
		}
	}
	return false
}

// TestThrottlingLeavesRoom checks that while DynamoDB throttles the key of one tenant, who keeps calling, the decisions of
// another are made by the store, and hardly later.
func TestThrottlingLeavesRoom(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		var hot atomic.Bool
		two := newTenants(t, onDynamoDB(t, func(op string, in any) error {
			if update, ok := in.(*sdk.UpdateItemInput); !ok || !hot.Load() || !isOf(update.Key, "hot") {
				return nil
			}
			return &types.ProvisionedThroughputExceededException{Message: new("the key is throttled")}
		}), 60*time.Millisecond)
		two.quiet(time.Second)
		alone := two.quiet(2 * time.Second)
		hot.Store(true)
		var throttled atomic.Int64
		ctx, end := context.WithCancel(two.as["noisy"])
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_, err := two.Acquire(ctx, &weirv1.AcquireRequest{Entity: "hot", Resource: "api", Tokens: map[string]int64{"rps": 1}})
					if err != nil {
						throttled.Add(1)
					}
					time.Sleep(time.Millisecond) // real time: none, the test is in a bubble
				}
			})
		}
		beside := two.quiet(2 * time.Second)
		end()
		wg.Wait()
		if throttled.Load() < 1000 {
			t.Fatalf("only %d requests were throttled", throttled.Load())
		}
		if alone.degraded > 0 || 100*beside.degraded > beside.all {
			t.Errorf("%d of %d decisions were degraded, alone %d: %v", beside.degraded, beside.all, alone.degraded, beside.last)
		}
		if now, before := beside.quantile(0.99), alone.quantile(0.99); now > 3*before {
			t.Errorf("p99 is %s, alone %s", now, before) // virtual time: exact
		}
		t.Logf("%d of %d undegraded; p99 %s, alone %s; %d throttled", beside.all-beside.degraded, beside.all,
			beside.quantile(0.99), alone.quantile(0.99), throttled.Load())
	})
}

// TestQueueIsBounded checks that requests wait for their turn, for a while, without becoming degraded: DecideWithin
// begins when the store is called.
func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		const within = 100 * time.Millisecond
		st := newStation()
		two := newTenants(t, st, within)
		first, err := two.Acquire(two.as["noisy"], &weirv1.AcquireRequest{Entity: "first", Resource: "api"})
		if err != nil || !first.GetAllowed() {
			t.Fatalf("got %v, %v", first, err)
		}
		if _, err := two.Acquire(two.as["quiet"], &weirv1.AcquireRequest{Entity: "first", Resource: "api"}); err != nil {
			t.Error(err) // whoever is alone has more room
		}
		st.does(func(ctx context.Context, take store.Take) (store.Outcome, error) {
			time.Sleep(within - time.Millisecond) // real time: none, tests are in a bubble
			return st.Store.Take(ctx, take)
		})
		const most = 24 // three quarters of 32
		var admitted, overloaded atomic.Int64
		var wg sync.WaitGroup
		for range 20 * most {
			wg.Go(func() {
				began := time.Now()
				out, err := two.Acquire(two.as["noisy"], &weirv1.AcquireRequest{
					Entity: "first", Resource: "api", OnUnavailable: weirv1.OnUnavailable_ON_UNAVAILABLE_ALLOW,
				})
				switch took := time.Since(began); {
				case err == nil && out.GetAllowed() && !out.GetDegraded():
					admitted.Add(1)
				case status.Code(err) == codes.Unavailable && took == 5*within:
					overloaded.Add(1)
				default:
					t.Errorf("got %v, %v after %s", out, err, took)
				}
			})
		}
		wg.Wait()
		if admitted.Load() != 6*most || overloaded.Load() != 14*most {
			t.Errorf("%d were admitted and %d refused", admitted.Load(), overloaded.Load())
		}
	})
}

// TestBatchIsGentle checks that a batch reads the limits of 25 entities with each call, and that it leaves five of eight
// calls at once to others: with 32 on a store nearby, it makes 12.
func TestBatchIsGentle(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		st := &counted{Store: memory.New(nil)}
		two := newTenants(t, st, 12*time.Millisecond)
		two.quiet(time.Second)
		for range 2 { // the second finds the namespace cached
			st.gets.Store(0)
			st.atOnce.Store(0)
			end := two.flood(false)
			if admitted, all := end(); admitted != all {
				t.Errorf("%d of %d were admitted", admitted, all)
			}
		}
		if gets, atOnce := st.gets.Load(), st.atOnce.Load(); gets != 1000/25 || atOnce != 12 {
			t.Errorf("1,000 requests needed %d reads, and %d takes at once", gets, atOnce)
		}
	})
}

// BenchmarkBesideFlood measures a tenant's requests, 100 a second, alone and while another sends 5 batches of 1,000 a
// second, by turns, so that whatever else the machine does concerns both. Run it with -benchtime=1x: it takes 17 s.
// Percentiles and ratios are the medians of the rounds.
func BenchmarkBesideFlood(b *testing.B) {
	for _, on := range []struct {
		name   string
		within time.Duration
		open   func(testing.TB) store.Store
	}{
		{"redis", 12 * time.Millisecond, onRedis},
		{"dynamodb", 60 * time.Millisecond, func(t testing.TB) store.Store {
			return onDynamoDB(t, func(string, any) error { return nil })
		}},
	} {
		b.Run(on.name, func(b *testing.B) {
			gcpace.Least(64 << 20) // this and Within as in weir serve
			two := newTenants(b, on.open(b), on.within)
			two.quiet(time.Second)
			p := parts.Of(two.lim)
			p.Within.Set(max(on.within, parts.Cold(p.Trips.Quantile(0.99))))
			var admitted, all int64
			var alone, beside answers
			in := make(map[string][]float64)
			for range 4 * b.N {
				var a, f answers
				for range 4 { // within a round
					a.add(two.quiet(500 * time.Millisecond))
					end := two.flood(false)
					f.add(two.quiet(500 * time.Millisecond))
					n, of := end()
					admitted, all = admitted+n, all+of
				}
				for name, q := range map[string]float64{"p50": 0.5, "p99": 0.99} {
					alone, beside := a.quantile(q).Seconds(), f.quantile(q).Seconds()
					in[name+"-alone-ms"] = append(in[name+"-alone-ms"], 1000*alone)
					in[name+"-beside-ms"] = append(in[name+"-beside-ms"], 1000*beside)
					in[name+"-ratio"] = append(in[name+"-ratio"], beside/alone)
				}
				alone.add(&a)
				beside.add(&f)
			}
			for unit, values := range in {
				slices.Sort(values)
				b.ReportMetric((values[(len(values)-1)/2]+values[len(values)/2])/2, unit)
			}
			b.ReportMetric(alone.undegraded(), "%undegraded-alone")
			b.ReportMetric(beside.undegraded(), "%undegraded-beside")
			b.ReportMetric(100*float64(admitted)/float64(all), "%flood-admitted")
		})
	}
}
