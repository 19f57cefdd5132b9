package disk_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
)

// callers is the number of goroutines that call at once.
const callers = 64

// drive makes the callers call f b.N times in total, each with its own random source, and reports how many calls were
// admitted per second.
func drive(b *testing.B, f func(caller int, rng *rand.Rand) bool) {
	b.Helper()
	var left, admitted atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for c := range callers {
		wg.Go(func() {
			rng, n := rand.New(rand.NewPCG(uint64(c), 1)), int64(0)
			for left.Add(-1) >= 0 {
				if f(c, rng) {
					n++
				}
			}
			admitted.Add(n)
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(admitted.Load())/b.Elapsed().Seconds(), "admitted/s")
	b.ReportMetric(0, "ns/op")
}

// takes prepares a debit of one token for each key.
func takes(keys int, perSecond int64) []store.Take {
	l := &store.Limit{Name: "rps", Amount: perSecond * 1000, Period: time.Second, Burst: perSecond * 1000}
	ts := make([]store.Take, keys)
	for i := range ts {
		ts[i] = store.Take{Debits: []store.Debit{{
			Bucket:  store.Bucket{Namespace: "default", Entity: fmt.Sprintf("tenant-%06d", i), Resource: "api"},
			Charges: []store.Charge{{Limit: l, Amount: 1000}},
		}}}
	}
	return ts
}

func benchmark(b *testing.B, mode disk.Mode, keys int, perSecond int64, pick func(keys int, rng *rand.Rand) func() int) {
	b.Helper()
	s, err := disk.Open(filepath.Join(b.TempDir(), "weir-data"), &disk.Config{Mode: mode})
	if err != nil {
		b.Fatal(err)
	}
	ts := takes(keys, perSecond)
	var picks [callers]func() int
	drive(b, func(c int, rng *rand.Rand) bool {
		if picks[c] == nil {
			picks[c] = pick(keys, rng)
		}
		out, err := s.Take(context.Background(), ts[picks[c]()])
		if err != nil {
			b.Error(err)
		}
		return out.Allowed
	})
	st := s.Stats()
	b.ReportMetric(float64(st.Commits)/b.Elapsed().Seconds(), "commits/s")
	b.ReportMetric(float64(st.Records)/b.Elapsed().Seconds(), "records/s")
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

func uniform(keys int, rng *rand.Rand) func() int { return func() int { return rng.IntN(keys) } }

func zipf(keys int, rng *rand.Rand) func() int {
	z := rand.NewZipf(rng, 1.1, 1, uint64(keys-1))
	return func() int { return int(z.Uint64()) }
}

func BenchmarkAhead(b *testing.B) {
	b.Run("keys=1000/uniform/rate=10000", func(b *testing.B) { benchmark(b, disk.Ahead, 1000, 10_000, uniform) })
	b.Run("keys=100000/zipf/rate=1000", func(b *testing.B) { benchmark(b, disk.Ahead, 100_000, 1_000, zipf) })
}

func BenchmarkInterval(b *testing.B) {
	b.Run("keys=100000/uniform", func(b *testing.B) { benchmark(b, disk.Interval, 100_000, 1_000, uniform) })
	b.Run("keys=100000/zipf", func(b *testing.B) { benchmark(b, disk.Interval, 100_000, 1_000, zipf) })
}

func BenchmarkOff(b *testing.B) {
	b.Run("keys=100000/uniform", func(b *testing.B) { benchmark(b, disk.Off, 100_000, 1_000, uniform) })
}

// BenchmarkAlways compares mode always with a peer: a loop that does nothing but write what arrives.
func BenchmarkAlways(b *testing.B) {
	b.Run("weir", func(b *testing.B) { benchmark(b, disk.Always, 100_000, 1_000, uniform) })
	b.Run("bare", bare)
}

// bare is a group commit around bbolt: the first request starts a transaction, and those that arrive meanwhile share
// the next. Each puts a value as large as a record.
func bare(b *testing.B) {
	db, err := bolt.Open(filepath.Join(b.TempDir(), "bare.db"), 0o600, &bolt.Options{
		NoFreelistSync: true, FreelistType: bolt.FreelistMapType, NoStatistics: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	name := []byte("buckets")
	if err := db.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucket(name); return err }); err != nil {
		b.Fatal(err)
	}
	type request struct {
		key, value []byte
		done       chan error
	}
	requests := make(chan request, callers)
	var wg sync.WaitGroup
	wg.Go(func() {
		for r := range requests {
			batch := []request{r}
			for more := true; more; {
				select {
				case r, more = <-requests:
					if more {
						batch = append(batch, r)
					}
				default:
					more = false
				}
			}
			err := db.Update(func(tx *bolt.Tx) error {
				bucket := tx.Bucket(name)
				for _, r := range batch {
					if err := bucket.Put(r.key, r.value); err != nil {
						return err
					}
				}
				return nil
			})
			for _, r := range batch {
				r.done <- err
			}
		}
	})
	var done [callers]chan error
	drive(b, func(c int, rng *rand.Rand) bool {
		if done[c] == nil {
			done[c] = make(chan error, 1)
		}
		n := rng.IntN(100_000)
		value := make([]byte, 62)
		binary.BigEndian.PutUint64(value, uint64(n))
		requests <- request{fmt.Appendf(nil, "default\x00tenant-%06d\x00api", n), value, done[c]}
		return <-done[c] == nil
	})
	close(requests)
	wg.Wait()
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkOpen opens a file of a million buckets that was closed.
func BenchmarkOpen(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "weir-data")
	open := func() *disk.Store {
		s, err := disk.Open(dir, &disk.Config{Mode: disk.Off})
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	s := open()
	l := &store.Limit{Name: "rpd", Amount: 1e9, Period: 24 * time.Hour, Burst: 1e9}
	for i := range 1_000_000 {
		if _, err := s.Take(context.Background(), store.Take{Debits: []store.Debit{{
			Bucket:  store.Bucket{Namespace: "default", Entity: fmt.Sprintf("tenant-%06d", i), Resource: "api"},
			Charges: []store.Charge{{Limit: l, Amount: 1e9}},
		}}}); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s := open()
		b.StopTimer()
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
