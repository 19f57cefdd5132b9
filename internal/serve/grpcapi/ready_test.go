package grpcapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirlimits/weir"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/internal/testkit/redistest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
	"github.com/weirlimits/weir/store/redis"
)

// refusing is a store whose writes may fail while it answers reads.
type refusing struct {
	store.Store
	err    atomic.Pointer[error]
	writes atomic.Int64
}

func (r *refusing) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	r.writes.Add(1)
	if err := r.err.Load(); err != nil {
		return store.Outcome{}, *err
	}
	return r.Store.Take(ctx, t)
}

// refuse makes writes fail with an error; nil is none.
func (r *refusing) refuse(err error) {
	r.err.Store(nil)
	if err != nil {
		r.err.Store(&err)
	}
}

// ready reports whether both /readyz and the health service of gRPC answer as wanted. The latter follows within a second.
func (f *fixture) ready(t *testing.T, want bool) bool {
	t.Helper()
	time.Sleep(1010 * time.Millisecond) // real time: with a real Redis
	w := httptest.NewRecorder()
	f.http.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil))
	ok := (w.Code == 200) == want
	for _, name := range []string{"", "weir.v1.Limiter"} {
		h, err := healthpb.NewHealthClient(f.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil {
			t.Fatal(err)
		}
		ok = ok && (h.GetStatus() == healthpb.HealthCheckResponse_SERVING) == want
	}
	return ok
}

// spend sends so many requests, of as many entities in turn, with a pause after each.
func (f *fixture) spend(t *testing.T, n, entities int, pause time.Duration) {
	t.Helper()
	for i := range n {
		_, _ = f.Acquire(t.Context(), &weirv1.AcquireRequest{
			Entity: fmt.Sprint("e", i%entities), Resource: "gpt-4", Tokens: map[string]int64{"tpm": 1},
		})
		time.Sleep(pause) // real time: none with a real Redis
	}
}

// A server is not ready while its store refuses all writes, whoever sends requests. It becomes ready by itself, since it
// may get none, and no probe writes.
func TestReadyRefused(t *testing.T) {
	t.Parallel()
	oom := errors.New("OOM command not allowed when used memory > 'maxmemory'")
	of := func(e store.Extent, err error) error { return &store.Error{Op: "take", Err: err, Extent: e} }
	for name, tt := range map[string]struct {
		err         error
		n, entities int
		over        time.Duration
		mode        weir.OnUnavailable
		ready       bool
	}{
		"memory full":       {of(store.ExtentUnknown, oom), 10, 3, 2 * time.Second, "", false},
		"disk full":         {of(store.ExtentUnknown, syscall.ENOSPC), 10, 10, 2 * time.Second, "", false},
		"no connection":     {of(store.ExtentStore, syscall.ECONNREFUSED), 10, 3, 2 * time.Second, "", false},
		"not often":         {of(store.ExtentUnknown, oom), 10, 3, 5 * time.Minute, "", false},
		"too seldom":        {of(store.ExtentUnknown, oom), 10, 3, 10 * time.Minute, "", true},
		"too few":           {of(store.ExtentUnknown, oom), 9, 3, 2 * time.Second, "", true},
		"two entities":      {of(store.ExtentUnknown, oom), 100, 2, 2 * time.Second, "", true},
		"a moment":          {of(store.ExtentUnknown, oom), 100, 100, 1900 * time.Millisecond, "", true},
		"their own keys":    {of(store.ExtentKey, oom), 100, 100, 5 * time.Second, "", true},
		"busy":              {of(store.ExtentCall, oom), 100, 100, 5 * time.Second, "", true},
		"too many buckets":  {of(store.ExtentUnknown, store.ErrTooManyBuckets), 100, 100, 5 * time.Second, "", true},
		"little time":       {of(store.ExtentUnknown, context.DeadlineExceeded), 100, 100, 5 * time.Second, "", true},
		"answers by itself": {of(store.ExtentUnknown, oom), 100, 100, 5 * time.Second, weir.OnUnavailableLocal, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				st := &refusing{Store: memory.New(nil)}
				f := overLimiter(t, weir.Config{Store: struct{ store.Store }{st}, Cooldown: -1, OnUnavailable: tt.mode}, grpcapi.Config{})
				f.spend(t, 3, 3, 0) // caches the limits
				st.refuse(tt.err)
				f.spend(t, tt.n-1, tt.entities, tt.over/time.Duration(tt.n-1)+1)
				f.spend(t, 1, 1, 0)
				writes := st.writes.Load()
				if !f.ready(t, tt.ready) {
					t.Fatalf("not answered: ready %v", tt.ready)
				}
				if st.writes.Load() != writes {
					t.Error("a probe wrote")
				}
				if tt.ready {
					return
				}
				time.Sleep(7900 * time.Millisecond)
				if !f.ready(t, false) {
					t.Fatal("ready within ten seconds")
				}
				time.Sleep(100 * time.Millisecond)
				if !f.ready(t, true) {
					t.Fatal("not ready, so that nobody tries again")
				}
				f.spend(t, 1, 1, 0)
				if !f.ready(t, false) {
					t.Fatal("ready although the store still refuses")
				}
				st.refuse(nil)
				f.spend(t, 1, 1, 0)
				if !f.ready(t, true) {
					t.Error("not ready although the store has accepted a write")
				}
			})
		})
	}
}

// A server is not ready while its own reason lasts, whatever its store answers.
func TestReadyOwnReason(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		var joining atomic.Bool
		f := setup(t, grpcapi.Config{Config: decide.Config{Ready: func() error {
			if joining.Load() {
				return decide.ErrNoShare
			}
			return nil
		}}})
		for _, want := range []bool{true, false, true} {
			if joining.Store(!want); !f.ready(t, want) {
				t.Fatalf("not answered: ready %t", want)
			}
		}
	})
}

// A Redis that refuses writes: its memory is full, or it lacks replicas.
func TestReadyRedis(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ refuse, accept []string }{
		"memory":   {[]string{"maxmemory", "1mb"}, []string{"maxmemory", "0"}},
		"replicas": {[]string{"min-replicas-to-write", "1"}, []string{"min-replicas-to-write", "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t, "--maxmemory-policy", "noeviction")
			st, err := redis.Open(t.Context(), redis.Config{Address: "redis://" + srv.Addr, Volatile: true})
			if err != nil {
				t.Fatal(err)
			}
			f := over(t, st, grpcapi.Config{})
			set := func(words []string) {
				t.Helper()
				if out, err := srv.Do(t.Context(), append([]string{"CONFIG", "SET"}, words...)...); err != nil || out != "OK" {
					t.Fatal(out, err)
				}
			}
			until := func(want bool) {
				t.Helper()
				began := time.Now()
				for f.spend(t, 30, 30, 0); !f.ready(t, want); f.spend(t, 30, 30, 0) {
					if time.Since(began) > time.Minute {
						t.Fatalf("not within a minute: ready %t", want)
					}
				}
			}
			until(true)
			set(tt.refuse)
			until(false)
			set(tt.accept)
			until(true)
		})
	}
}
