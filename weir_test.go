package weir_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon is the start time of tests, at which clocks of whole tokens a minute read a whole token.
var noon = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// clock is a store's clock, advanced by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// bundle is a limiter over a store in memory with a manual clock, which can be made to fail.
type bundle struct {
	*weir.Limiter

	admin *admin.Admin // of the limiter
	t     *testing.T
	ctx   context.Context //nolint:containedctx // the test's
	clock *clock
	fake  *fakeStore
	cfg   weir.Config
}

// setup returns a limiter, closed when the test ends. Like the memory store, its store never blocks.
func setup(t *testing.T, change ...func(*weir.Config)) *bundle {
	t.Helper()
	c := &clock{now: noon}
	return setupOn(t, &fakeStore{Store: memory.New(&memory.Config{Now: c.Now})}, c, change...)
}

func setupOn(t *testing.T, fake *fakeStore, c *clock, change ...func(*weir.Config)) *bundle {
	t.Helper()
	cfg := weir.Config{Store: fake}
	for _, f := range change {
		f(&cfg)
	}
	lim, err := weir.New(cfg)
	must(t, err)
	t.Cleanup(func() {
		if err := lim.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return &bundle{Limiter: lim, admin: admin.New(lim), t: t, ctx: t.Context(), clock: c, fake: fake, cfg: cfg}
}

// peer returns another limiter on the same store, with its own caches, like another process.
func (b *bundle) peer(change ...func(*weir.Config)) *bundle {
	b.t.Helper()
	return setupOn(b.t, &fakeStore{Store: b.fake.Store}, b.clock, change...)
}

func (b *bundle) set(entity, resource string, limits ...weir.Limit) {
	b.t.Helper()
	must(b.t, b.admin.Limits.Set(b.ctx, admin.Scope{Entity: entity, Resource: resource}, limits...))
}

// child creates an entity that charges its parent.
func (b *bundle) child(id, parent string) {
	b.t.Helper()
	must(b.t, b.admin.Entities.Create(b.ctx, admin.Entity{ID: id, Parent: parent, Cascade: parent != ""}))
}

// chain creates entities, each of which charges the next.
func (b *bundle) chain(ids ...string) {
	b.t.Helper()
	for i := len(ids) - 1; i >= 0; i-- {
		parent := ""
		if i+1 < len(ids) {
			parent = ids[i+1]
		}
		b.child(ids[i], parent)
	}
}

// take acquires on the resource "api" and fails the test unless the request is admitted.
func (b *bundle) take(entity string, tokens weir.Tokens) *weir.Lease {
	b.t.Helper()
	return b.takeFor(weir.Request{Entity: entity, Resource: "api", Tokens: tokens})
}

func (b *bundle) takeFor(req weir.Request) *weir.Lease {
	b.t.Helper()
	lease, err := b.Acquire(b.ctx, req)
	must(b.t, err)
	return lease
}

// refused acquires on the resource "api" and fails the test unless a limit refuses.
func (b *bundle) refused(entity string, tokens weir.Tokens) *weir.ExceededError {
	b.t.Helper()
	return b.refusedFor(weir.Request{Entity: entity, Resource: "api", Tokens: tokens})
}

func (b *bundle) refusedFor(req weir.Request) *weir.ExceededError {
	b.t.Helper()
	lease, err := b.Acquire(b.ctx, req)
	var over *weir.ExceededError
	if !errors.As(err, &over) || !errors.Is(err, weir.ErrExceeded) || lease != nil {
		b.t.Fatalf("%v %v: got %v, %v, want a refusal", req.Entity, req.Tokens, lease, err)
	}
	return over
}

// wantLeft checks the tokens available for each limit of an entity on "api".
func (b *bundle) wantLeft(entity string, want weir.Tokens) {
	b.t.Helper()
	b.wantLeftOn(entity, "api", want)
}

func (b *bundle) wantLeftOn(entity, resource string, want weir.Tokens) {
	b.t.Helper()
	av, err := b.Available(b.ctx, entity, resource)
	must(b.t, err)
	got := weir.Tokens{}
	for _, s := range av.Statuses {
		if s.Entity == entity {
			got[s.Limit] = s.Available
		}
	}
	if !maps.Equal(got, want) {
		b.t.Errorf("%s on %s has %v left, want %v", entity, resource, got, want)
	}
}

// limiterOn returns a limiter over a store.
func limiterOn(tb testing.TB, st store.Store) *weir.Limiter {
	tb.Helper()
	lim, err := weir.New(weir.Config{Store: st})
	must(tb, err)
	return lim
}

// memoryLimiter returns a limiter over an empty store in memory.
func memoryLimiter(tb testing.TB) *weir.Limiter {
	tb.Helper()
	return limiterOn(tb, memory.New(nil))
}

// errOf returns the error of a call that returns something else, too.
func errOf[T any](_ T, err error) error { return err }

// must fails the test at once if a setup step fails.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// wantConfigError checks that err is a caller's mistake about field.
func wantConfigError(tb testing.TB, err error, field string) {
	tb.Helper()
	var ce *weir.ConfigError
	if !errors.As(err, &ce) {
		tb.Errorf("got error %v, want a ConfigError about %s", err, field)
		return
	}
	if ce.Field != field {
		tb.Errorf("got an error about field %q (%v), want %q", ce.Field, err, field)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

// fakeStore is a store that can be made to misbehave. If a function is nil, the call goes to the wrapped store.
type fakeStore struct {
	store.Store

	mu     sync.Mutex
	take   func(context.Context, store.Take) (store.Outcome, error)
	settle func(context.Context, store.Settle) (store.Outcome, error)
	get    func(context.Context, ...store.Key) (store.Got, error)
	peek   func(context.Context, ...store.Bucket) (store.Snapshot, error)
	gets   []store.Key // the keys that were requested
	reads  int         // calls of Get
	takes  int
}

var _ store.Store = (*fakeStore)(nil)

func (f *fakeStore) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	f.mu.Lock()
	f.takes++
	call := f.take
	f.mu.Unlock()
	if call != nil {
		return call(ctx, t)
	}
	return f.Store.Take(ctx, t)
}

func (f *fakeStore) Settle(ctx context.Context, s store.Settle) (store.Outcome, error) {
	f.mu.Lock()
	call := f.settle
	f.mu.Unlock()
	if call != nil {
		return call(ctx, s)
	}
	return f.Store.Settle(ctx, s)
}

func (f *fakeStore) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	f.mu.Lock()
	f.gets = append(f.gets, keys...)
	f.reads++
	call := f.get
	f.mu.Unlock()
	if call != nil {
		return call(ctx, keys...)
	}
	return f.Store.Get(ctx, keys...)
}

func (f *fakeStore) Peek(ctx context.Context, buckets ...store.Bucket) (store.Snapshot, error) {
	f.mu.Lock()
	call := f.peek
	f.mu.Unlock()
	if call != nil {
		return call(ctx, buckets...)
	}
	return f.Store.Peek(ctx, buckets...)
}

// does changes the store's behavior from now on.
func (f *fakeStore) does(change func(*fakeStore)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// counts returns the number of Get and Take calls, and the requested keys, since the previous call.
func (f *fakeStore) counts() (reads, takes int, keys []store.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	reads, takes, keys = f.reads, f.takes, f.gets
	f.reads, f.takes, f.gets = 0, 0, nil
	return reads, takes, keys
}

// hang blocks until the context ends, like a store that has gone.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// bubble runs f in a synctest bubble, over a store in memory that uses the bubble's time.
func bubble(t *testing.T, f func(b *bundle), change ...func(*weir.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		f(setupOn(t, &fakeStore{Store: memory.New(nil)}, nil, change...))
	})
}
