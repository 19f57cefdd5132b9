package redis_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
)

const (
	benchCallers = 64
	benchKeys    = 100_000
)

// Takes by 64 callers over 100,000 keys, in turns with a script that increments one counter with the same client and
// over as many connections. ratio is the rate of takes by that of the other.
func BenchmarkTake(b *testing.B) {
	b.Run("limits=1", func(b *testing.B) { benchTake(b, benchKeys, 1, false) })
	b.Run("limits=3/parent", func(b *testing.B) { benchTake(b, benchKeys, 3, true) })
	b.Run("limits=1/keys=1", func(b *testing.B) { benchTake(b, 1, 1, false) })
}

func benchTake(b *testing.B, keys, limits int, parent bool) {
	s := start(b)
	const connections = 2
	st := open(b, redis.Config{Address: "redis://" + s.Addr, Connections: connections, CallTimeout: 10 * time.Second})
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr}, ForceSingleClient: true, DisableCache: true, DisableRetry: true, PipelineMultiplex: 1,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	incr := rueidis.NewLuaScript(`local n = redis.call('INCR', KEYS[1]) if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end return n`)

	charges := make([]store.Charge, limits)
	for i := range charges {
		charges[i] = store.Charge{Limit: &store.Limit{Name: fmt.Sprint("limit-", i), Amount: 1e9 + int64(i), Period: time.Minute, Burst: 1e12}, Amount: 1000}
	}
	takes := make([]store.Take, keys)
	for i := range takes {
		takes[i].Debits = []store.Debit{{Bucket: store.Bucket{Namespace: "n", Entity: fmt.Sprint("user-", i), Resource: "api"}, Charges: charges, Ref: new(store.Ref)}}
		if parent {
			takes[i].Debits = append(takes[i].Debits, store.Debit{
				Bucket: store.Bucket{Namespace: "n", Entity: fmt.Sprint("team-", i%100), Resource: "api"}, Charges: charges, Ref: new(store.Ref),
			})
		}
	}
	ctx := b.Context()
	ours := func(i int) {
		if out, err := st.Take(ctx, takes[i]); err != nil || !out.Allowed {
			b.Errorf("allowed %t, error %v", out.Allowed, err)
		}
	}
	plain := func(i int) {
		if err := incr.Exec(ctx, c, []string{fmt.Sprint("incr:", i)}, []string{"60000"}).Error(); err != nil {
			b.Error(err)
		}
	}
	// All keys are there before anything is measured.
	each(keys, ours)
	each(keys, plain)
	var took [2]time.Duration
	const rounds = 4
	b.ResetTimer()
	for range rounds {
		for k, f := range []func(int){ours, plain} {
			if k == 1 {
				b.StopTimer()
			}
			began := time.Now()
			each((b.N+rounds-1)/rounds, func(int) { f(rand.IntN(keys)) })
			took[k] += time.Since(began)
			b.StartTimer()
		}
	}
	b.ReportMetric(float64(b.N)/took[0].Seconds(), "takes/s")
	b.ReportMetric(float64(b.N)/took[1].Seconds(), "incrs/s")
	b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "ratio")
}

// each calls f n times by all callers together.
func each(n int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range benchCallers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}
