package grpcapi_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/redistest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/memory"
	"github.com/weirlimits/weir/store/redis"
)

// tenants are two namespaces on one server, each with a token of its own.
type tenants struct {
	*fixture
	cfg    grpcapi.Config
	tokens map[string]string
	as     map[string]context.Context

	batches atomic.Int64 // sent by floods
}

// newTenants serves the tenants quiet and noisy. A request without an answer of the store is denied.
func newTenants(t testing.TB, st store.Store, within time.Duration) *tenants {
	t.Helper()
	two := &tenants{tokens: make(map[string]string), as: make(map[string]context.Context)}
	var entries []auth.Entry
	for _, name := range []string{"quiet", "noisy", "noisy-2"} {
		token, e, err := auth.NewEntry(auth.Entry{
			Name: name, Roles: []auth.Role{auth.Acquire}, Namespaces: []string{name}, Permissions: []auth.Permission{auth.Envoy},
		})
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
		two.tokens[name] = token
		two.as[name] = bearing(t, token) //nolint:fatcontext // each is made of the test's own
	}
	two.cfg.Book = openBook(t, entries...)
	two.fixture = overLimiter(t, weir.Config{Store: st, DecideWithin: within}, two.cfg)
	for name := range two.as {
		if _, err := admin.New(two.lim).Namespaces.Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		err := admin.New(two.lim.In(name)).Limits.Set(t.Context(), admin.Scope{}, weir.PerSecond("rps", 1_000_000))
		if err != nil {
			t.Fatal(err)
		}
	}
	return two
}

// bearing returns the context of who has a token.
func bearing(t testing.TB, token string) context.Context {
	t.Helper()
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
}

// answers are those of one tenant.
type answers struct {
	all, degraded int // degraded: not decided by the store, or not at all
	took          []time.Duration
	last          error
}

func (a *answers) quantile(q float64) time.Duration {
	slices.Sort(a.took)
	return a.took[int(q*float64(len(a.took)-1))]
}

func (a *answers) add(more *answers) {
	a.all, a.degraded, a.took = a.all+more.all, a.degraded+more.degraded, append(a.took, more.took...)
}

// undegraded returns the share of the answers that the store decided, in percent.
func (a *answers) undegraded() float64 { return 100 - 100*float64(a.degraded)/float64(a.all) }

// quiet sends 100 requests a second for some time, for a few entities, and returns the answers.
func (two *tenants) quiet(during time.Duration) *answers {
	var a answers
	var mu sync.Mutex
	var wg sync.WaitGroup
	const gap = 10 * time.Millisecond
	next := time.Now()
	for i := range int(during / gap) {
		time.Sleep(time.Until(next)) // real time: none, tests are in a bubble
		next = next.Add(gap)
		wg.Go(func() {
			began := time.Now()
			out, err := two.Acquire(two.as["quiet"], &weirv1.AcquireRequest{
				Entity: fmt.Sprint("quiet-", i%20), Resource: "api", Tokens: map[string]int64{"rps": 1},
			})
			took := time.Since(began)
			mu.Lock()
			defer mu.Unlock()
			a.all++
			a.took = append(a.took, took)
			if err != nil || out.GetDegraded() {
				a.degraded, a.last = a.degraded+1, err
			}
		})
	}
	wg.Wait()
	return &a
}

// flood sends 5 batches of 1,000 requests a second, each for entities of its own, until end is called, which returns how
// many of these requests were admitted, and all.
func (two *tenants) flood(atomically bool) (end func() (admitted, all int64)) {
	var admitted, all atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			n := two.batches.Add(1)
			wg.Go(func() {
				in := &weirv1.AcquireBatchRequest{Brief: true, Atomic: atomically}
				for i := range 1000 {
					in.Requests = append(in.Requests, &weirv1.AcquireRequest{
						Entity: fmt.Sprintf("noisy-%d-%d", n, i), Resource: "api", Tokens: map[string]int64{"rps": 1},
					})
				}
				out, _ := two.AcquireBatch(two.as["noisy"], in)
				for _, r := range out.GetResults() {
					if r.GetDecision().GetAllowed() {
						admitted.Add(1)
					}
				}
				all.Add(1000)
			})
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	})
	return func() (int64, int64) {
		close(stop)
		wg.Wait()
		return admitted.Load(), all.Load()
	}
}

// onRedis opens a store on a server of its own.
func onRedis(t testing.TB) store.Store {
	t.Helper()
	st, err := redis.Open(t.Context(), redis.Config{Address: "redis://" + redistest.Start(t).Addr, Volatile: true})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// unscanned is an account whose table is never scanned.
type unscanned struct{ *dynamotest.Fake }

func (unscanned) Scan(
	context.Context, *sdk.ScanInput, ...func(*sdk.Options),
) (*sdk.ScanOutput, error) {
	return new(sdk.ScanOutput), nil
}

// onDynamoDB opens a store on a table whose calls take 5 ms, and fail if before does.
func onDynamoDB(t testing.TB, before func(op string, in any) error) store.Store {
	t.Helper()
	fake := &dynamotest.Fake{}
	if _, err := dynamodb.Create(t.Context(), unscanned{fake}, "weir", dynamodb.CreateConfig{}); err != nil {
		t.Fatal(err)
	}
	fake.Before = func(op string, in any) error {
		time.Sleep(5 * time.Millisecond) // real time: none, tests are in a bubble
		return before(op, in)
	}
	st, err := dynamodb.Open(t.Context(), dynamodb.Config{Client: fake, Table: "weir"})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// station is a store on another machine that makes one call at a time, like Redis.
type station struct {
	store.Store
	busy chan struct{}
	take atomic.Pointer[takes] // what it does instead
}

func newStation() *station { return &station{Store: memory.New(nil), busy: make(chan struct{}, 1)} }

type takes func(context.Context, store.Take) (store.Outcome, error)

func (s *station) does(take takes) { s.take.Store(&take) }

// The round trip to a station, and how long it works on a call.
const (
	onTheWay = 200 * time.Microsecond
	atWork   = 15 * time.Microsecond
)

// call makes a call: it ends late rather than never.
func (s *station) call() {
	time.Sleep(onTheWay / 2) // real time: none, tests are in a bubble
	s.busy <- struct{}{}     // in the order of arrival
	time.Sleep(atWork)       // real time: none, tests are in a bubble
	<-s.busy
	time.Sleep(onTheWay / 2) // real time: none, tests are in a bubble
}

func (s *station) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	if take := s.take.Load(); take != nil {
		return (*take)(ctx, t)
	}
	if s.call(); ctx.Err() != nil {
		return store.Outcome{}, ctx.Err()
	}
	return s.Store.Take(ctx, t)
}

func (s *station) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	s.call()
	return s.Store.Get(ctx, keys...)
}

// counted is a store that counts its reads, and the takes that are under way at once.
type counted struct {
	store.Store
	gets          atomic.Int64
	takes, atOnce atomic.Int64
}

func (c *counted) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	c.gets.Add(1)
	return c.Store.Get(ctx, keys...)
}

func (c *counted) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	now := c.takes.Add(1)
	defer c.takes.Add(-1)
	for most := c.atOnce.Load(); now > most && !c.atOnce.CompareAndSwap(most, now); most = c.atOnce.Load() {
	}
	time.Sleep(onTheWay) // real time: none, the test is in a bubble
	return c.Store.Take(ctx, t)
}

// distant is a store that answers each call in 6 ms.
type distant struct{ store.Store }

func (s *distant) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	time.Sleep(6 * time.Millisecond) // real time: none, the test is in a bubble
	if ctx.Err() != nil {
		return store.Outcome{}, ctx.Err()
	}
	return s.Store.Take(ctx, t)
}

func (s *distant) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	time.Sleep(6 * time.Millisecond) // real time: none, the test is in a bubble
	return s.Store.Get(ctx, keys...)
}
