package watch_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/watch"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counted counts its peeks, and fails when set to.
type counted struct {
	store.Store
	peeks atomic.Int64
	fails atomic.Bool
}

var errDown = errors.New("the store is down")

func (c *counted) Peek(ctx context.Context, buckets ...store.Bucket) (store.Snapshot, error) {
	c.peeks.Add(1)
	if c.fails.Load() {
		return store.Snapshot{}, errDown
	}
	return c.Store.Peek(ctx, buckets...)
}

type bundle struct {
	*watch.Poller

	t     *testing.T
	lim   *weir.Limiter
	store *counted
}

// bubble runs f in a bubble, with a poller of one second over limits of 60 rpm.
func bubble(t *testing.T, f func(b *bundle)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := &counted{Store: memory.New(nil)}
		lim, err := weir.New(weir.Config{Store: st})
		if err != nil {
			t.Fatal(err)
		}
		defer lim.Close()
		if err := admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerMinute("rpm", 60)); err != nil {
			t.Fatal(err)
		}
		b := &bundle{watch.New(lim), t, lim, st}
		defer b.Close()
		f(b)
	})
}

func (b *bundle) spend(entity string, rpm int64) {
	b.t.Helper()
	if _, err := b.lim.Acquire(b.t.Context(), weir.Request{Entity: entity, Resource: "api", Tokens: weir.Tokens{"rpm": rpm}}); err != nil {
		b.t.Fatal(err)
	}
}

// watcher is a caller that watches, with what it has heard.
type watcher struct {
	mu    sync.Mutex
	heard []int64 // available
	end   context.CancelFunc
	ended chan error
}

func (b *bundle) watch(entity string) *watcher { return b.watchAs("", entity) }

func (b *bundle) watchAs(who, entity string) *watcher {
	ctx, cancel := context.WithCancel(b.t.Context())
	w := &watcher{end: cancel, ended: make(chan error, 1)}
	go func() {
		w.ended <- b.Watch(ctx, who, watch.Key{Entity: entity, Resource: "api"}, func(av weir.Availability) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.heard = append(w.heard, av.Statuses[0].Available)
			return nil
		})
	}()
	synctest.Wait()
	return w
}

func (w *watcher) wants(t *testing.T, when string, want ...int64) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.heard) != len(want) {
		t.Fatalf("%s: heard %v, want %v", when, w.heard, want)
	}
	for i := range want {
		if w.heard[i] != want[i] {
			t.Fatalf("%s: heard %v, want %v", when, w.heard, want)
		}
	}
	w.heard = nil
}

func (b *bundle) wantPeeks(when string, want int64) {
	b.t.Helper()
	if got := b.store.peeks.Swap(0); got != want {
		b.t.Errorf("%s: %d peeks, want %d", when, got, want)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		w := b.watch("alice")
		w.wants(t, "at once", 60)
		time.Sleep(5 * time.Second)
		w.wants(t, "nothing happens")
		b.spend("alice", 2)
		w.wants(t, "between ticks")
		time.Sleep(time.Second)
		w.wants(t, "a tick later", 59) // one was issued in the meantime
		time.Sleep(10 * time.Second)
		w.wants(t, "filling up", 60)
		w.end()
		if err := <-w.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
		synctest.Wait()
		b.store.peeks.Store(0)
		time.Sleep(5 * time.Second)
		b.wantPeeks("nobody watches", 0)
	})
}

// A change of less than a whole token is not reported.
func TestFractions(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		if err := admin.New(b.lim).Limits.Set(b.t.Context(), admin.Scope{}, weir.PerHour("rpm", 10)); err != nil {
			t.Fatal(err)
		}
		b.spend("alice", 1)
		w := b.watch("alice")
		w.wants(t, "at once", 9)
		time.Sleep(20 * time.Second)
		w.wants(t, "no whole token was gained")
	})
}

// Many watchers of one bucket cost as much as one; other buckets cost extra.
func TestShared(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		var ws []*watcher
		for range 50 {
			ws = append(ws, b.watch("alice"))
		}
		b.wantPeeks("50 begin", 1)
		time.Sleep(3500 * time.Millisecond)
		b.wantPeeks("3 ticks", 3)
		b.spend("alice", 10)
		time.Sleep(time.Second)
		for _, w := range ws {
			w.wants(t, "all hear it", 60, 50)
		}
		b.watch("bob").wants(t, "another bucket", 60)
		b.wantPeeks("of two buckets", 2)
	})
}

func TestSlow(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		if err := admin.New(b.lim).Limits.Set(b.t.Context(), admin.Scope{}, weir.PerHour("rpm", 60)); err != nil {
			b.t.Fatal(err)
		}
		var slow []int64
		ended := make(chan error, 1)
		go func() {
			ended <- b.Watch(b.t.Context(), "", watch.Key{Entity: "alice", Resource: "api"}, func(av weir.Availability) error {
				slow = append(slow, av.Statuses[0].Available)
				time.Sleep(2700 * time.Millisecond)
				return nil
			})
		}()
		w := b.watch("alice")
		time.Sleep(500 * time.Millisecond) // between two ticks
		for range 4 {
			b.spend("alice", 5)
			time.Sleep(time.Second)
		}
		w.wants(b.t, "not held up", 60, 55, 50, 45, 40)
		b.Close()
		if err := <-ended; !errors.Is(err, watch.ErrClosed) || len(slow) != 2 || slow[1] != 50 {
			b.t.Errorf("the slow one heard %v, want 60, 50; ended with %v", slow, err)
		}
	})
}

func TestErrors(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		stop := errors.New("enough")
		err := b.Watch(b.t.Context(), "", watch.Key{Entity: "alice", Resource: "api"}, func(weir.Availability) error { return stop })
		if !errors.Is(err, stop) {
			t.Errorf("f's error: %v", err)
		}
		never := func(weir.Availability) error { t.Error("called"); return nil }
		if err := b.Watch(b.t.Context(), "", watch.Key{Resource: "api"}, never); !errors.As(err, new(*weir.ConfigError)) {
			t.Errorf("no entity: %v", err)
		}
		if err := b.Watch(b.t.Context(), "", watch.Key{Namespace: "ghost", Entity: "a", Resource: "api"}, never); !errors.Is(err, weir.ErrNotFound) {
			t.Errorf("no namespace: %v", err)
		}

		one, two := b.watch("alice"), b.watch("alice")
		b.store.fails.Store(true)
		time.Sleep(time.Second)
		for _, w := range []*watcher{one, two} {
			if err := <-w.ended; !errors.Is(err, errDown) {
				t.Errorf("the store is down: %v", err)
			}
		}
		b.store.fails.Store(false)
		b.watch("alice").wants(t, "watched anew", 60)

		last := b.watch("alice")
		b.Close()
		if err := <-last.ended; !errors.Is(err, watch.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		if err := b.Watch(b.t.Context(), "", watch.Key{Entity: "alice", Resource: "api"}, never); !errors.Is(err, watch.ErrClosed) {
			t.Errorf("closed before: %v", err)
		}
	})
}

func TestBounded(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		var first *watcher
		for i := range watch.MaxKeys {
			w := b.watch(string(rune('一' + i)))
			if first == nil {
				first = w
			}
		}
		if err := <-b.watch("one more").ended; !errors.Is(err, watch.ErrTooMany) {
			t.Fatalf("got %v", err)
		}
		first.end()
		<-first.ended
		b.watch("one more").wants(t, "there is room again", 60)
	})
}

// TestOneTokenWatchesNotAll checks that one token gets at most three quarters, and that buckets that others already watch
// do not count.
func TestOneTokenWatchesNotAll(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		var first *watcher
		for i := range watch.MaxKeys * 3 / 4 {
			w := b.watchAs("hog", string(rune('一'+i)))
			if first == nil {
				first = w
			}
		}
		if err := <-b.watchAs("hog", "one more").ended; !errors.Is(err, watch.ErrTooMany) {
			t.Errorf("one more than three quarters: got %v", err)
		}
		b.watchAs("other", "mine").wants(t, "another token", 60)
		b.watchAs("hog", "mine").wants(t, "what is watched already", 60)
		first.end()
		<-first.ended
		b.watchAs("hog", "one more").wants(t, "there is room again", 60)
	})
}

// TestWhoBeganIsReplaced checks that a bucket does not count for its first watcher once only others watch it.
func TestWhoBeganIsReplaced(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		most := watch.MaxKeys * 3 / 4
		for i := range most {
			first := b.watchAs("first", string(rune('一'+i)))
			first.wants(t, "alone", 60)
			b.watchAs("hog", string(rune('一'+i))).wants(t, "with another", 60)
			first.end()
			<-first.ended
		}
		b.watchAs("first", "one more").wants(t, "who watches nothing", 60)
		if err := <-b.watchAs("hog", "another").ended; !errors.Is(err, watch.ErrTooMany) {
			t.Errorf("who watches three quarters: got %v", err)
		}
	})
}
