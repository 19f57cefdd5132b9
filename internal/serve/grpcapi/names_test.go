package grpcapi_test

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/internal/serve/metrics"
	"github.com/weirlimits/weir/internal/testkit/raced"
	"github.com/weirlimits/weir/internal/testkit/redistest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
	"github.com/weirlimits/weir/store/redis"
)

// invent sends one request for each of so many entities, and as many resources, that nobody has named before.
func (f *fixture) invent(t *testing.T, from, n int, full bool) {
	t.Helper()
	const size = 500
	for ; n > 0; n -= size {
		in := &weirv1.AcquireBatchRequest{Brief: true}
		for range size {
			in.Requests = append(in.Requests, &weirv1.AcquireRequest{
				Entity: fmt.Sprintf("invented-%09d", from), Resource: fmt.Sprintf("invented-%09d", from),
				Tokens: map[string]int64{"rph": 1},
			})
			from++
		}
		out, err := f.AcquireBatch(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range out.GetResults() {
			if e := r.GetError(); e != nil && !full {
				t.Fatal(e)
			}
		}
	}
}

// live returns how many bytes of the process's heap are in use.
func live() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools held through the first
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// forgetful is a store outside of the process that admits everything and keeps no bucket.
type forgetful struct{ store.Store }

func (forgetful) Take(_ context.Context, t store.Take) (store.Outcome, error) {
	out := store.Outcome{Allowed: true, At: time.Now()}
	for _, d := range t.Debits {
		for _, c := range d.Charges {
			out.Levels = append(out.Levels, store.Level{Limit: c.Limit, Left: c.Limit.Burst})
		}
	}
	return out, nil
}

// TestInventedNames checks what 100,000 invented names leave in a server beside the store's buckets: at most 12 MiB once
// its caches are full, which takes at most 2,500 bytes for each of CacheEntries. On Redis, a bucket of one limit takes at
// most 550 bytes.
//
//nolint:paralleltest // what the whole process uses is measured
func TestInventedNames(t *testing.T) {
	raced.Skip(t)
	const entries, fills = 10_000, 20_000
	var srv *redistest.Server
	for name, tt := range map[string]struct {
		open  func() (store.Store, error)
		names int
	}{
		"memory": {func() (store.Store, error) { // refuses most of the names
			return memory.New(&memory.Config{MaxBuckets: entries, MaxUsage: -1}), nil
		}, 100_000},
		"remote": {func() (store.Store, error) { return forgetful{memory.New(nil)}, nil }, 30_000},
		"redis": {func() (store.Store, error) {
			srv = redistest.Start(t)
			return redis.Open(t.Context(), redis.Config{Address: "redis://" + srv.Addr, Volatile: true})
		}, 5_000},
	} {
		t.Run(name, func(t *testing.T) {
			st, err := tt.open()
			if err != nil {
				t.Fatal(err)
			}
			m, err := metrics.New(metrics.Config{Namespaces: 10})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			f := overLimiter(t, weir.Config{
				Store: st, CacheEntries: entries, Observer: m.Observer(), OnUnavailable: weir.OnUnavailableLocal,
			}, grpcapi.Config{Unary: m.Unary})
			m.Watch(f.lim, st)
			if err := admin.New(f.lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerHour("rph", 1000)); err != nil {
				t.Fatal(err)
			}
			f.invent(t, 0, 500, false)
			empty := live()
			f.invent(t, 500, fills, name == "memory")
			full := live()
			f.invent(t, 500+fills, tt.names, name == "memory")
			entry, further := (full-empty)/entries, live()-full
			t.Logf("%d bytes for each of the cache's entries, %d for %d further names", entry, further, tt.names)
			if entry > 2500 || further > 12<<20 {
				t.Error("that is too much")
			}
			if name == "redis" {
				n := int64(500 + fills + tt.names)
				if each := used(t, srv) / n; each > 550 {
					t.Errorf("%d bytes for each bucket in Redis", each)
				} else {
					t.Logf("%d bytes for each bucket in Redis", each)
				}
			}
			runtime.KeepAlive(f)
		})
	}
}

// used returns how many bytes of memory a Redis uses.
func used(t *testing.T, srv *redistest.Server) int64 {
	t.Helper()
	out, err := srv.Do(t.Context(), "INFO", "memory")
	m := regexp.MustCompile(`used_memory:(\d+)`).FindStringSubmatch(out)
	if err != nil || m == nil {
		t.Fatal(out, err)
	}
	n, _ := strconv.ParseInt(m[1], 10, 64)
	return n
}
