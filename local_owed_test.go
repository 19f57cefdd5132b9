package weir_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// takesAreDark makes a store answer only reads of the limits.
func takesAreDark(f *fakeStore) {
	f.take = func(ctx context.Context, _ store.Take) (store.Outcome, error) { return store.Outcome{}, hang(ctx) }
	f.settle = func(ctx context.Context, _ store.Settle) (store.Outcome, error) { return store.Outcome{}, hang(ctx) }
}

// sluggish is a limit that refills next to nothing while a test runs.
func sluggish(burst int64) weir.Limit {
	return weir.Limit{Name: "rpd", Amount: 1, Period: 366 * 24 * time.Hour, Burst: burst}
}

// However many request limits come up in an outage, debt is remembered for only a few: the others are full again.
func TestLocalOwedIsBounded(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 10))
		b.take("alice", nil)
		b.fake.does(dark)
		for i := range 1000 {
			b.takeFor(with(weir.PerSecond("rps", int64(1+i)))(weir.Tokens{"rps": int64(1 + i)}))
			time.Sleep(2 * time.Second)
		}
		if st := b.outageStats(); st.Lost != 0 || st.Admitted != 1000*1001/2 {
			t.Errorf("%+v", st)
		}
		b.fake.does(recovers)
		b.eventually("all is charged", func() bool {
			_, _ = b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
			return b.outageStats().Owing == 0
		})
	}, backstopped(1))
}

// A limit that changes is owed as one limit, and charged in its latest form.
func TestLocalOwedOfChangedLimit(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerDay("rpd", 1000))
		b.take("alice", nil)
		for i := range 200 { // only takes fail; the limits can still be changed
			b.fake.does(takesAreDark)
			b.take("alice", weir.Tokens{"rpd": 1})
			b.fake.does(func(f *fakeStore) { f.take = nil })
			b.set("", "", weir.PerDay("rpd", int64(1001+i)))
		}
		b.fake.does(recovers)
		b.eventually("all is charged", func() bool {
			_, _ = b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
			return b.outageStats().Owing == 0
		})
		if left := b.left("alice", "rpd"); left < 1000-2 || left > 1000 { // 1200 less 200; time has covered some of the debt
			t.Errorf("%d are left", left)
		}
	}, backstopped(1), func(c *weir.Config) { c.Cooldown = -1 })
}

// Debt to a namespace that was purged meanwhile is not charged to the new namespace of the same name.
func TestLocalOwedToPurged(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		create := func() *weir.Limiter {
			_, err := b.admin.Namespaces.Create(b.ctx, "tenant")
			must(t, err)
			lim := b.In("tenant")
			must(t, admin.New(lim).Limits.Set(b.ctx, admin.Scope{}, sluggish(100)))
			return lim
		}
		take := func(lim *weir.Limiter, n int64) error {
			_, err := lim.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpd": n}})
			return err
		}
		lim := create()
		must(t, take(lim, 0))
		b.fake.does(takesAreDark)
		must(t, take(lim, 60))
		must(t, b.admin.Namespaces.Delete(b.ctx, "tenant"))
		must(t, b.admin.Namespaces.Purge(b.ctx, "tenant"))
		lim = create()
		b.fake.does(recovers)
		must(t, take(lim, 0))
		b.eventually("it is charged", func() bool { st := b.outageStats(); return st.Owing == 0 && st.Charged == 60 })
		must(t, take(lim, 100))
	}, backstopped(1))
}

// A store that does not answer is not asked to settle. Soon after it has answered a decision, it is, and a settle whose
// outcome is unknown is repeated with the same id after the next.
func TestLocalOwedIsSettledOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", sluggish(100))
		b.take("alice", nil)
		var mu sync.Mutex
		ids := make(map[string]int)
		b.fake.does(dark)
		b.fake.does(func(f *fakeStore) {
			f.settle = func(ctx context.Context, s store.Settle) (store.Outcome, error) {
				mu.Lock()
				defer mu.Unlock()
				ids[s.ID]++
				_, _ = f.Store.Settle(ctx, s)
				return store.Outcome{}, errDown
			}
		})
		b.take("alice", weir.Tokens{"rpd": 10})
		time.Sleep(2 * time.Minute)
		if len(ids) > 0 {
			t.Errorf("settled while the store did not answer: %v", ids)
		}
		b.fake.does(func(f *fakeStore) { f.take, f.get = nil, nil })
		for range 2 {
			b.take("alice", weir.Tokens{"rpd": 1})
			time.Sleep(time.Second)
		}
		b.fake.does(recovers)
		b.take("alice", weir.Tokens{"rpd": 1})
		time.Sleep(time.Second)
		if st := b.outageStats(); st.Owing != 0 || st.Charged != 10 || len(ids) != 1 {
			t.Errorf("%+v, with the ids %v", st, ids)
		}
		b.wantLeft("alice", weir.Tokens{"rpd": 100 - 10 - 3})
	}, backstopped(1), func(c *weir.Config) { c.Cooldown = -1 })
}

// A closed limiter admits nothing from its shares, and counts as lost what can no longer be charged.
func TestLocalAfterClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setupOn(t, &fakeStore{Store: memory.New(nil)}, nil, backstopped(1), func(c *weir.Config) { c.Cooldown = time.Hour })
		b.set("", "", sluggish(100))
		b.take("alice", nil)
		b.fake.does(takesAreDark)
		lease := b.take("alice", weir.Tokens{"rpd": 10})
		b.eventually("it is not asked", func() bool {
			_, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
			return err == nil && b.outageStats().Breaker == "open"
		})
		must(t, b.Close())
		if st := b.outageStats(); st.Lost != 10 || st.Owing != 0 {
			t.Errorf("%+v", st)
		}
		req := weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpd": 1}}
		for _, on := range []weir.OnUnavailable{weir.OnUnavailableLocal, weir.OnUnavailableAllow, weir.OnUnavailableDeny} {
			req.OnUnavailable = on
			_, err := b.Acquire(b.ctx, req)
			wantErr(t, err, weir.ErrClosed)
			_, err = b.AcquireAll(b.ctx, []weir.Request{req})
			wantErr(t, err, weir.ErrClosed)
		}
		_, err := b.Allow(b.ctx, "alice", "api")
		wantErr(t, err, weir.ErrClosed)
		must(t, lease.Adjust(b.ctx, weir.Tokens{"rpd": 5}))
		must(t, lease.Rollback(b.ctx))
		if st := b.outageStats(); st.Lost != 15 || st.Owing != 0 {
			t.Errorf("%+v", st)
		}
	})
}
