package cache_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimits/weir/internal/policy/cache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	texts  = cache.Cache[string, string]
	config = cache.Config[string, string]
)

// source is a catalog that returns "key@n" for each key, where n is the number of loads of that key.
type source struct {
	mu    sync.Mutex
	loads [][]string
	err   error
	gate  chan struct{} // if not nil, loads wait for it
}

func (s *source) load(ctx context.Context, keys []string) ([]string, error) {
	s.mu.Lock()
	s.loads = append(s.loads, keys)
	n, err, gate := len(s.loads), s.err, s.gate
	s.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	values := make([]string, len(keys))
	for i, k := range keys {
		values[i] = fmt.Sprint(k, "@", n)
	}
	return values, nil
}

func (s *source) set(err error, gate chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.gate = err, gate
}

func (s *source) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.loads)
}

func open(t *testing.T, cfg config) (*texts, *source) {
	t.Helper()
	if cfg.Max == 0 {
		cfg.Max = 100
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Second
	}
	c := cache.New(cfg)
	t.Cleanup(c.Close)
	return c, &source{}
}

func get(t *testing.T, c *texts, s *source, keys ...string) []string {
	t.Helper()
	values, _, err := c.Get(t.Context(), keys, s.load)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := open(t, config{TTL: time.Minute})
		want(t, get(t, c, s, "a"), "a@1")
		_, until, err := c.Get(t.Context(), []string{"a"}, s.load)
		if life := time.Until(until); err != nil || life < 54*time.Second || life > 66*time.Second {
			t.Errorf("good for %v, %v", life, err)
		}
		time.Sleep(time.Until(until) - 1)
		want(t, get(t, c, s, "a"), "a@1")
		time.Sleep(time.Nanosecond)
		want(t, get(t, c, s, "a", "b"), "a@2", "b@2") // in one call
		want(t, get(t, c, s, "b", "c", "a"), "b@2", "c@3", "a@2")
		if s.count() != 3 {
			t.Errorf("loads %q", s.loads)
		}
		want(t, s.loads[2], "c") // only what is missing
		if hits, misses, entries := c.Stats(); hits != 4 || misses != 4 || entries != 3 {
			t.Errorf("%d hits, %d misses, %d entries", hits, misses, entries)
		}
	})
}

// The earliest expiry counts for all keys of a call.
func TestUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := open(t, config{TTL: time.Minute})
		_, first, _ := c.Get(t.Context(), []string{"a"}, s.load)
		time.Sleep(30 * time.Second)
		_, both, _ := c.Get(t.Context(), []string{"b", "a"}, s.load)
		if !both.Equal(first) {
			t.Errorf("good until %v, want %v", both, first)
		}
	})
}

// Processes that start together do not keep reloading together.
func TestJitter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := open(t, config{TTL: time.Minute, Max: 1000})
		ends := map[time.Time]bool{}
		for i := range 100 {
			_, until, _ := c.Get(t.Context(), []string{fmt.Sprint(i)}, s.load)
			ends[until] = true
		}
		if len(ends) < 90 {
			t.Errorf("only %d different ends", len(ends))
		}
	})
}

func TestOff(t *testing.T) {
	t.Parallel()
	c, s := open(t, config{TTL: -1})
	want(t, get(t, c, s, "a"), "a@1")
	want(t, get(t, c, s, "a"), "a@2")
	if _, _, entries := c.Stats(); entries != 0 {
		t.Errorf("%d entries", entries)
	}
}

func TestForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := open(t, config{TTL: math.MaxInt64})
		for range 2 {
			want(t, get(t, c, s, "a"), "a@1")
			time.Sleep(365 * 24 * time.Hour)
		}
	})
}

func TestOneLoader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := open(t, config{TTL: time.Minute})
		gate := make(chan struct{})
		s.set(nil, gate)
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				if i%2 == 0 {
					want(t, get(t, c, s, "a"), "a@1")
				} else {
					want(t, get(t, c, s, "a", "a"), "a@1", "a@1")
				}
			})
		}
		synctest.Wait()
		want(t, get(t, c, &source{}, "other"), "other@1") // another key is not held up
		close(gate)
		wg.Wait()
		if s.count() != 1 {
			t.Errorf("loads %q", s.loads)
		}
	})
}

// A caller that gives up does not spoil the load for the others, even if it started the load.
func TestLoaderGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := open(t, config{TTL: time.Minute})
		gate := make(chan struct{})
		s.set(nil, gate)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, _, err := c.Get(ctx, []string{"a"}, s.load); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() { want(t, get(t, c, s, "a"), "a@1") })
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(gate)
		wg.Wait()
	})
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := open(t, config{TTL: time.Minute, Timeout: 3 * time.Second})
		s.set(nil, make(chan struct{}))
		began := time.Now()
		_, _, err := c.Get(t.Context(), []string{"a"}, s.load)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		s.set(nil, nil)
		want(t, get(t, c, s, "a"), "a@2") // a failure is not cached
	})
}

func TestLastKnownGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := open(t, config{TTL: time.Minute})
		down := errors.New("down")
		want(t, get(t, c, s, "a"), "a@1")
		s.set(down, nil)
		time.Sleep(2 * time.Minute)
		if _, _, err := c.Get(t.Context(), []string{"b"}, s.load); !errors.Is(err, down) {
			t.Errorf("got %v", err)
		}
		want(t, get(t, c, s, "a"), "a@1")
		_, until, err := c.Get(t.Context(), []string{"a"}, s.load)
		if life := time.Until(until); err != nil || life <= 0 || life > 5*time.Second {
			t.Errorf("good for %v, %v", life, err) // and is retried soon
		}
		n := s.count()
		want(t, get(t, c, s, "a"), "a@1")
		if s.count() != n {
			t.Error("asked again at once")
		}
		time.Sleep(5 * time.Second)
		want(t, get(t, c, s, "a"), "a@1")
		s.set(nil, nil)
		time.Sleep(5 * time.Second)
		if got := get(t, c, s, "a")[0]; got == "a@1" {
			t.Error("still the old value")
		}
	})
}

func TestBounded(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 16, 100} {
		c, s := open(t, config{TTL: time.Minute, Max: limit})
		for i := range 500 {
			key := fmt.Sprint(i)
			first := get(t, c, s, key)
			if _, _, n := c.Stats(); n > limit {
				t.Fatalf("%d entries, at most %d", n, limit)
			}
			want(t, get(t, c, s, key), first...)
		}
		if _, _, n := c.Stats(); n < limit*7/8-1 {
			t.Errorf("%d entries of %d: too many were dropped", n, limit)
		}
	}
}

// The map does not grow as entries come and go.
func TestChurn(t *testing.T) { //nolint:paralleltest // it reads the size of the heap
	const entries = 20_000
	c, _ := open(t, config{TTL: time.Minute, Max: entries})
	size := func(from, to int) uint64 {
		for i := from; i < to; i++ {
			note(c, fmt.Sprintf("%08d", i))
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := size(0, 0)
	full := size(0, 2*entries) - before
	later := size(2*entries, 30*entries) - before
	if later > full+full/4 {
		t.Errorf("%d bytes once full, %d after 28 times as many", full, later)
	}
	runtime.KeepAlive(c)
}

// A group that floods the cache displaces its own entries.
func TestGroups(t *testing.T) {
	t.Parallel()
	c, s := open(t, config{TTL: time.Minute, Max: 100, Group: func(k string) string { return k[:1] }})
	quiet := func() {
		for i := range 20 {
			want(t, get(t, c, s, fmt.Sprint("quiet", i)), fmt.Sprint("quiet", i, "@", i+1))
		}
	}
	quiet()
	for i := range 1000 {
		get(t, c, s, fmt.Sprint("flood", i))
		if i%7 == 0 {
			forget(c, fmt.Sprint("flood", i))
		}
	}
	quiet()
	if _, _, n := c.Stats(); n > 100 || n < 90 {
		t.Errorf("%d entries, at most 100", n)
	}
}

func TestCloseWhileLoading(t *testing.T) {
	t.Parallel()
	c, s := open(t, config{TTL: -1})
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !stop.Load() {
				if _, _, err := c.Get(t.Context(), []string{"a"}, s.load); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		c.Close()
	}
	stop.Store(true)
	wg.Wait()
}

// An expired value is loaded again, and stays in use if that fails. Later callers do not join a load that was already
// under way.
func TestExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := open(t, config{TTL: time.Minute})
		down := errors.New("down")
		want(t, get(t, c, s, "a", "b"), "a@1", "b@1")
		c.Expire("a")
		want(t, get(t, c, s, "a", "b"), "a@2", "b@1")
		s.set(down, nil)
		c.ExpireFunc(func(string) bool { return true })
		want(t, get(t, c, s, "a", "b"), "a@2", "b@1")

		gate := make(chan struct{})
		s.set(nil, gate)
		first := make(chan []string, 1)
		go func() { first <- get(t, c, s, "c") }()
		synctest.Wait()
		c.Expire("c")
		second := make(chan []string, 1)
		s.set(down, nil) // for later callers
		go func() {
			got, _, err := c.Get(t.Context(), []string{"c"}, s.load)
			if !errors.Is(err, down) {
				t.Errorf("joined %v, error %v", got, err)
			}
			second <- got
		}()
		<-second
		close(gate)
		<-first
		synctest.Wait()
		if _, _, err := c.Get(t.Context(), []string{"c"}, s.load); !errors.Is(err, down) {
			t.Errorf("error %v: what landed after a later load is kept", err)
		}
	})
}

// If a value expires during its first load, it becomes the last known good value.
func TestExpireFirstLoad(t *testing.T) {
	t.Parallel()
	for _, evict := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, s := open(t, config{TTL: time.Minute})
			gate := make(chan struct{})
			s.set(nil, gate)
			first := make(chan []string, 1)
			go func() { first <- get(t, c, s, "a") }()
			synctest.Wait()
			c.Expire("a")
			if evict {
				forget(c, "a")
			}
			close(gate)
			want(t, <-first, "a@1")
			s.set(errors.New("down"), nil)
			if got, _, err := c.Get(t.Context(), []string{"a"}, s.load); (err != nil) != evict {
				t.Errorf("evicted %v: %v, error %v", evict, got, err)
			}
		})
	}
}

// ExpireWithin spreads expiry over the duration: not at once, not all together, and never later than without it.
func TestExpireWithin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := open(t, config{TTL: time.Minute, Max: 1000})
		for i := range 400 {
			get(t, c, s, fmt.Sprint(i))
		}
		c.ExpireWithin(func(string) (time.Duration, bool) { return 10 * time.Second, true })
		before := s.count()
		for i := range 400 {
			get(t, c, s, fmt.Sprint(i))
		}
		atOnce := s.count() - before
		time.Sleep(5 * time.Second)
		for i := range 400 {
			get(t, c, s, fmt.Sprint(i))
		}
		half := s.count() - before
		time.Sleep(5 * time.Second)
		for i := range 400 {
			get(t, c, s, fmt.Sprint(i))
		}
		if all := s.count() - before; atOnce > 20 || half < 120 || half > 280 || all != 400 {
			t.Errorf("%d at once, %d at half, %d in the end", atOnce, half, all)
		}
	})
}

// If several keys are loaded together, some can fail; for a key without a good value the fallback is used.
func TestErrorsAndFallback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("bad")
		c, _ := open(t, config{TTL: time.Minute, Fallback: func(k string) (string, bool) { return "known " + k, k == "b" }})
		load := func(_ context.Context, keys []string) ([]string, error) {
			errs := make(cache.Errors, len(keys))
			for i, k := range keys {
				if k != "a" {
					errs[i] = bad
				}
			}
			return slices.Clone(keys), errs
		}
		got, until, err := c.Get(t.Context(), []string{"a", "b"}, load)
		if err != nil || !slices.Equal(got, []string{"a", "known b"}) || time.Until(until) > 3*time.Second {
			t.Errorf("%v for %s, error %v", got, time.Until(until), err)
		}
		if _, _, err := c.Get(t.Context(), []string{"a", "c"}, load); !errors.Is(err, bad) {
			t.Errorf("error %v", err)
		}
	})
}
