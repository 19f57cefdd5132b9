package parts_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/redistest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/memory"
	"github.com/weirlimits/weir/store/redis"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// distant is a store whose reads take a while, and fail if err is set.
type distant struct {
	store.Store
	takes time.Duration
	err   error
}

func (d *distant) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	time.Sleep(d.takes) // virtual time: in a bubble
	if d.err != nil {
		return store.Got{}, d.err
	}
	return d.Store.Get(ctx, keys...)
}

func TestTrips(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &distant{Store: memory.New(nil)}
		var trips parts.Trips
		st, _ := parts.Bound(d, time.Second, nil, &parts.Parts{Trips: &trips, Ready: &parts.Ready{}})
		probe := func(n int, takes time.Duration, err error) {
			t.Helper()
			d.takes, d.err = takes, err
			if got := parts.Probe(t.Context(), st, n); !errors.Is(got, err) {
				t.Fatal(got)
			}
		}
		check := func(shortest, p50, p99 time.Duration) {
			t.Helper()
			for _, q := range []struct{ got, want time.Duration }{
				{trips.Shortest(), shortest}, {trips.Quantile(0.5), p50}, {trips.Quantile(0.99), p99},
			} {
				if q.got < q.want || q.got > q.want*5/4 {
					t.Errorf("measured %s, want %s and up to a quarter more", q.got, q.want)
				}
			}
		}
		check(0, 0, 0)
		probe(1000, 19*time.Microsecond, nil) // from memory
		probe(1, 300*time.Microsecond, errors.New("down"))
		check(0, 0, 0)
		probe(1, time.Millisecond, nil)
		probe(97, 30*time.Millisecond, nil)
		probe(2, 200*time.Millisecond, nil)
		check(time.Millisecond, 30*time.Millisecond, 200*time.Millisecond)
		probe(1, 900*time.Millisecond, nil)
		time.Sleep(30 * time.Second)
		check(time.Millisecond, 30*time.Millisecond, 200*time.Millisecond)
		time.Sleep(time.Minute)
		check(0, 0, 0)
		probe(9, 80*time.Microsecond, nil)
		probe(1, 100*time.Millisecond, nil) // one late answer shows nothing
		check(80*time.Microsecond, 80*time.Microsecond, 80*time.Microsecond)
		probe(1, 100*time.Millisecond, nil)
		check(80*time.Microsecond, 80*time.Microsecond, 100*time.Millisecond)
		for _, d := range []time.Duration{21 * time.Microsecond, 999 * time.Microsecond, 33 * time.Millisecond, 980 * time.Millisecond} {
			time.Sleep(time.Minute)
			probe(1, d, nil)
			check(d, d, d)
		}
	})
}

// unscanned is an account whose table is never scanned.
type unscanned struct{ *dynamotest.Fake }

func (unscanned) Scan(context.Context, *sdk.ScanInput, ...func(*sdk.Options)) (*sdk.ScanOutput, error) {
	return new(sdk.ScanOutput), nil
}

// cold decides for an entity with parents in a namespace of its own, by a limiter that has cached nothing.
func cold(t *testing.T, st store.Store, parents ...string) {
	t.Helper()
	set, err := weir.New(weir.Config{Store: st})
	must(t, err)
	_, err = admin.New(set).Namespaces.Create(t.Context(), "a")
	must(t, err)
	in := admin.New(set.In("a"))
	must(t, in.Limits.Set(t.Context(), admin.Scope{}, weir.PerSecond("rps", 100)))
	chain := append([]string{"child"}, parents...)
	for i := len(chain) - 1; i >= 0; i-- {
		e := admin.Entity{ID: chain[i]}
		if i+1 < len(chain) {
			e.Parent, e.Cascade = chain[i+1], true
		}
		must(t, in.Entities.Create(t.Context(), e))
	}
}

// TestColdCalls checks how many round trips a decision makes if nothing is cached: on DynamoDB by the time that it takes,
// on Redis by its calls, of which each is one run of a script.
func TestColdCalls(t *testing.T) {
	t.Parallel()
	acquire := func(t *testing.T, lim *weir.Limiter) {
		t.Helper()
		_, err := lim.In("a").Acquire(t.Context(), weir.Request{Entity: "child", Resource: "api", Requests: 1})
		must(t, err)
	}
	for _, tt := range []struct {
		parents []string
		more    int // than ColdTrips
	}{{[]string{"parent"}, 0}, {[]string{"parent", "grandparent"}, 1}} {
		t.Run("dynamodb", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const trip = 30 * time.Millisecond
				fake := &dynamotest.Fake{}
				_, err := dynamodb.Create(t.Context(), unscanned{fake}, "weir", dynamodb.CreateConfig{})
				must(t, err)
				fake.Before = func(string, any) error {
					time.Sleep(trip)
					return nil
				}
				open := func() store.Store {
					st, err := dynamodb.New(dynamodb.Config{Client: fake, Table: "weir"})
					must(t, err)
					return st
				}
				cold(t, open(), tt.parents...)
				lim, err := weir.New(weir.Config{Store: open()})
				must(t, err)
				began := time.Now()
				want := parts.Cold(trip) + time.Duration(tt.more)*trip
				if acquire(t, lim); time.Since(began) != want {
					t.Errorf("took %s, want %s", time.Since(began), want)
				}
				began = time.Now()
				_, err = lim.In("a").Acquire(t.Context(), weir.Request{Entity: "stranger", Resource: "api", Requests: 1})
				must(t, err)
				if took := time.Since(began); took != 2*trip {
					t.Errorf("another entity's took %s, want two round trips of %s", took, trip)
				}
				must(t, lim.Close())
			})
		})
		t.Run("redis", func(t *testing.T) {
			t.Parallel()
			open := func(address string) store.Store {
				st, err := redis.Open(t.Context(), redis.Config{Address: address, Volatile: true})
				must(t, err)
				return st
			}
			address := "redis://" + redistest.Start(t).Addr
			cold(t, open(address), tt.parents...)
			var calls atomic.Int64
			lim, err := weir.New(weir.Config{Store: open(address), Observer: &weir.Observer{
				Called: func(context.Context, weir.CalledEvent) { calls.Add(1) },
			}})
			must(t, err)
			// There is no epoch to read first. One call, made beside the others, looks whether the store is a cell's.
			if acquire(t, lim); calls.Load() != int64(parts.ColdTrips-2+tt.more+1) {
				t.Errorf("%d calls", calls.Load())
			}
			must(t, lim.Close())
		})
	}
}
