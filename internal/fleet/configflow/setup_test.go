package configflow_test

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
	"github.com/weirlimits/weir/internal/fleet/configflow"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy/lastgood"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("the store is down")

// remote is a store that other processes write to, and that can be cut off.
type remote struct {
	store.Store

	down  atomic.Bool
	reads atomic.Int64 // calls that read records

	mu   sync.Mutex
	keys []store.Key
}

func newRemote(t *testing.T) *remote {
	t.Helper()
	s := memory.New(nil)
	t.Cleanup(func() { _ = s.Close() })
	return &remote{Store: s}
}

// handle returns a process's connection to the store.
func (r *remote) handle() *handle { return &handle{remote: r, Store: r.Store} }

type handle struct {
	store.Store
	*remote
}

func (h *handle) Close() error { return nil }

func (h *handle) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	if h.down.Load() {
		return store.Outcome{}, errDown
	}
	return h.Store.Take(ctx, t)
}

func (h *handle) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	if h.down.Load() {
		return store.Got{}, errDown
	}
	h.reads.Add(1)
	h.mu.Lock()
	h.remote.keys = append(h.remote.keys, keys...)
	h.mu.Unlock()
	return h.Store.Get(ctx, keys...)
}

func (h *handle) List(ctx context.Context, q store.Query) (store.Page, error) {
	if h.down.Load() {
		return store.Page{}, errDown
	}
	return h.Store.List(ctx, q)
}

// Epochs implements store.Epochs.
func (h *handle) Epochs(ctx context.Context, ids ...string) ([]uint64, error) {
	ns := make([]uint64, len(ids))
	for i, id := range ids {
		if h.down.Load() {
			return nil, errDown
		}
		got, err := h.Store.Get(ctx, store.Key{Namespace: id, Kind: store.KindSystem})
		if err != nil {
			return nil, err
		}
		ns[i] = got.Epoch
	}
	return ns, nil
}

func (h *handle) Commit(ctx context.Context, writes ...store.Write) error {
	if h.down.Load() {
		return errDown
	}
	return h.Store.Commit(ctx, writes...)
}

// asked returns the records read since the previous call.
func (r *remote) asked() []store.Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := r.keys
	r.keys = nil
	return keys
}

// decider is a process with a flow.
type decider struct {
	*weir.Limiter

	t    *testing.T
	flow *configflow.Flow
	stop func()
}

// start starts a process, and returns after its first poll. Only the flow notifies it of changes.
func (r *remote) start(t *testing.T, file string) *decider {
	t.Helper()
	known, err := lastgood.Open(file, "memory:")
	if err != nil {
		t.Log(err)
	}
	h := r.handle()
	d := &decider{t: t}
	lim, err := weir.New(weir.Config{
		Store: h, CacheTTL: 24 * time.Hour,
		Observer: &weir.Observer{Unreadable: func(ctx context.Context, e weir.UnreadableEvent) { d.flow.Unreadable(ctx, e) }},
	})
	if err != nil {
		t.Fatal(err)
	}
	parts.Of(lim).Policies.Use(nil, known.LastGood)
	cfg := configflow.Config{Limiter: lim, Store: h, Poll: time.Second, Spread: time.Second}
	if file != "" {
		cfg.Known = known
	}
	d.Limiter, d.flow = lim, configflow.New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.flow.Run(ctx) }()
	d.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = lim.Close()
	})
	t.Cleanup(d.stop)
	synctest.Wait()
	return d
}

// period is the time within which every change reaches every process: one poll, and the spreading of reads.
const period = 2500 * time.Millisecond

// burst returns the burst of an entity's limit on the resource "api", as decisions use it.
func (d *decider) burst(entity string) int64 {
	d.t.Helper()
	lease, err := d.Acquire(d.t.Context(), weir.Request{Entity: entity, Resource: "api", Tokens: weir.Tokens{}})
	if err != nil {
		d.t.Fatalf("%s: %v", entity, err)
	}
	return lease.Decision().Statuses[0].Burst
}

func (d *decider) want(entity string, burst int64, when string) {
	d.t.Helper()
	if got := d.burst(entity); got != burst {
		d.t.Errorf("%s: %s has a burst of %d, want %d", when, entity, got, burst)
	}
}

func (d *decider) set(entity string, burst int64) {
	d.t.Helper()
	if err := admin.New(d.Limiter).Limits.Set(d.t.Context(), admin.Scope{Entity: entity}, weir.PerMinute("rpm", burst)); err != nil {
		d.t.Fatal(err)
	}
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// raw writes a record without any checks, as faulty or newer software might.
func (r *remote) raw(t *testing.T, key store.Key, value string) {
	t.Helper()
	got, err := r.Store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	w := store.Write{Record: store.Record{Key: key, Version: got.Records[0].Version, Value: []byte(value)}}
	if err := r.Store.Commit(t.Context(), w); err != nil {
		t.Fatal(err)
	}
}
