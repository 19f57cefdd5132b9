package stream_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimits/weir/internal/aws/stream"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/raced"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const table = "t"

var evening = time.Date(2026, time.March, 31, 22, 47, 0, 0, time.UTC)

// open returns a store on a fake table, with the given clock.
func open(tb testing.TB, fake *dynamotest.Fake, now func() time.Time) *dynamodb.Store {
	tb.Helper()
	if fake.Items(table) == nil {
		if _, err := dynamodb.Create(tb.Context(), admin{fake}, table, dynamodb.CreateConfig{}); err != nil {
			tb.Fatal(err)
		}
	}
	s, err := dynamodb.New(dynamodb.Config{Client: fake, Table: table, Now: now})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// family makes e#0 and e#1 children of team, and team a child of org.
func family(tb testing.TB, s *dynamodb.Store) {
	tb.Helper()
	for child, parent := range map[string]string{"e#0": "team", "e#1": "team", "team": "org"} {
		k := store.Key{Namespace: "n", Kind: store.KindEntity, ID: child}
		if err := s.Commit(tb.Context(), store.Write{Record: store.Record{Key: k, Parent: parent, Value: []byte{}}}); err != nil {
			tb.Fatal(err)
		}
	}
}

// booked returns the total consumption of tpm.
func booked(tb testing.TB, s *dynamodb.Store) map[synWindow]int64 {
	tb.Helper()
	return figures(tb, s, "tpm", func(f *store.LimitFigures) int64 { return f.Consumed() })
}

// figures returns one figure of a limit, for all windows.
func figures(tb testing.TB, s *dynamodb.Store, limit string, figure func(*store.LimitFigures) int64) map[synWindow]int64 {
	tb.Helper()
	got := make(map[synWindow]int64)
	for _, w := range store.Windows {
		for _, of := range []store.UsageOf{store.OfBucket, store.OfResource, store.OfNamespace, store.OfStore, store.OfChildren} {
			q := store.UsageQuery{Namespace: "n", Of: of, Window: w, From: evening.AddDate(-1, 0, 0), To: evening.AddDate(1, 0, 0), Max: 1000}
			for {
				page, err := s.Usage(tb.Context(), q)
				if err != nil {
					tb.Fatal(err)
				}
				for _, r := range page.Records {
					for i := range r.Counts {
						if c := &r.Counts[i]; c.Limit == limit && figure(c) != 0 {
							got[synWindow{of, r.ID, w, r.Start.Unix()}] += figure(c)
						}
					}
				}
				if q.After = page.Next; q.After == "" {
					break
				}
			}
		}
	}
	return got
}

// crash simulates the end of a process: nothing is retried, and the outcome of a call in flight is unknown.
var errCrash = errors.New("the process ended")

// TestExact compares what was booked with what was debited, window by window, although readers crash before and after
// their writes, batches arrive twice, split and late, two functions read each shard, and buckets are split and recreated.
func TestExact(t *testing.T) {
	t.Parallel()
	debits, buckets := 50_000, 1000
	if os.Getenv("WEIR_MILLION") != "" {
		debits = 1_000_000
	} else if testing.Short() || raced.On {
		debits = 10_000
	}
	s := newSynthetic(1, buckets, evening)
	s.debits(debits, 2*time.Hour+20*time.Minute) // across the end of a day and of a month
	var crashes atomic.Int64
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(3, 4))
	fails := func(op string, p float64) error {
		mu.Lock()
		defer mu.Unlock()
		if op == "TransactWriteItems" && dice.Float64() < p {
			crashes.Add(1)
			return errCrash
		}
		return nil
	}
	fake := &dynamotest.Fake{}
	st := open(t, fake, func() time.Time { return evening })
	family(t, st)
	fake.Before = func(op string, _ any) error { return fails(op, 0.01) }
	fake.After = func(op string, _, _ any) error { return fails(op, 0.01) }
	var wg sync.WaitGroup
	began := time.Now()
	for i, shard := range s.shards {
		m := &mapping{
			handle: stream.Handler(stream.Config{Store: st, NoSplit: true}), batch: 5000, retries: 1000,
			again: 0.1, throttled: 0.1, dice: rand.New(rand.NewPCG(uint64(i), 5)),
		}
		wg.Go(func() {
			m.deliver(t, shard)
			if len(m.lost) > 0 {
				t.Errorf("lost %q", m.lost)
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	fake.Before, fake.After = nil, nil
	if got := booked(t, st); !maps.Equal(got, s.want) {
		report(t, got, s.want)
	}
	maps.DeleteFunc(s.asked, func(_ synWindow, n int64) bool { return n == 0 })
	if got := figures(t, st, "", func(f *store.LimitFigures) int64 { return f.Requests }); !maps.Equal(got, s.asked) {
		t.Error("of requests:")
		report(t, got, s.asked)
	}
	if s.births == 0 || s.splits == 0 || crashes.Load() == 0 {
		t.Errorf("%d births, %d splits, %d crashes: nothing was put to the test", s.births, s.splits, crashes.Load())
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	t.Logf("%d records in %v: %d born again, %d split, %d crashes, calls %v, %.0f units written, %d MiB from the system",
		s.number, took, s.births, s.splits, crashes.Load(), fake.Calls(), fake.Capacity().Write, mem.Sys>>20)
}

func report(t *testing.T, got, want map[synWindow]int64) {
	t.Helper()
	n := 0
	for k, v := range want {
		if got[k] != v {
			if n++; n < 10 {
				t.Errorf("%c %q %s %v: booked %d of %d", k.of, k.id, k.w, time.Unix(k.start, 0).UTC(), got[k], v)
			}
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok && n < 20 {
			n++
			t.Errorf("%c %q %s %v: booked %d of nothing", k.of, k.id, k.w, time.Unix(k.start, 0).UTC(), v)
		}
	}
	t.Errorf("%d windows of %d are wrong", n, len(want))
}
