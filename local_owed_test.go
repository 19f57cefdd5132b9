package weir_test

import (
	"context"
	"fmt"
	"slices"
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
		b.fake.does(recovers)
		must(t, b.admin.Namespaces.Delete(b.ctx, "tenant"))
		must(t, b.admin.Namespaces.Purge(b.ctx, "tenant"))
		lim = create()
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

// A bucket that cannot be charged, such as one with a damaged item, is tried less and less often, and delays no other.
func TestLocalOwedOfBadKey(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", sluggish(100))
		var bad, good []string
		for i := range 5 {
			bad = append(bad, fmt.Sprint("bad-", i))
		}
		for i := range 100 {
			good = append(good, fmt.Sprint("good-", i))
		}
		for _, e := range slices.Concat(bad, good, []string{"other"}) {
			b.take(e, nil)
		}
		b.fake.does(takesAreDark)
		for _, e := range slices.Concat(bad, good) {
			b.take(e, weir.Tokens{"rpd": 10})
		}
		var mu sync.Mutex
		tries := make(map[string]int)
		b.fake.does(func(f *fakeStore) {
			f.take = nil
			f.settle = func(ctx context.Context, s store.Settle) (store.Outcome, error) {
				mu.Lock()
				defer mu.Unlock()
				if e := s.Debits[0].Bucket.Entity; slices.Contains(bad, e) {
					tries[e]++
					return store.Outcome{}, &store.Error{Op: "write", Err: errDown, Extent: store.ExtentKey}
				}
				return f.Store.Settle(ctx, s)
			}
		})
		b.take("other", nil)
		time.Sleep(time.Second)
		if st := b.outageStats(); st.Owing != len(bad) || st.Charged != 1000 {
			t.Errorf("after one round: %+v", st)
		}
		for range 10 * 60 * 20 { // ten minutes
			b.take("other", nil)
			time.Sleep(50 * time.Millisecond)
		}
		for _, e := range bad {
			if n := tries[e]; n < 10 || n > 16 { // after 1, 2, 4 … s, then once a minute
				t.Errorf("%d settles of %s in ten minutes", n, e)
			}
		}
		b.fake.does(recovers)
		b.take("other", nil)
		time.Sleep(time.Minute)
		b.take("other", nil)
		time.Sleep(time.Second)
		if st := b.outageStats(); st.Owing != 0 || st.Lost != 0 || st.Charged != 1050 {
			t.Errorf("at the end: %+v", st)
		}
	}, backstopped(1), func(c *weir.Config) { c.Cooldown = -1 })
}

// While only one bucket's decisions fail, time covers what was admitted to it, and nothing that others owe.
func TestLocalOwedBesideBadKey(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerHour("rph", 100))
		b.take("alice", nil)
		b.take("bob", nil)
		b.fake.does(takesAreDark)
		b.take("bob", weir.Tokens{"rph": 100})
		b.fake.does(func(f *fakeStore) {
			f.take = func(context.Context, store.Take) (store.Outcome, error) {
				return store.Outcome{}, &store.Error{Op: "write", Err: errDown, Extent: store.ExtentKey}
			}
		})
		for range 120 {
			b.take("alice", weir.Tokens{"rph": 1})
			time.Sleep(time.Minute)
		}
		b.fake.does(recovers)
		b.take("carol", nil)
		time.Sleep(time.Second)
		b.wantLeft("bob", weir.Tokens{"rph": 0})
		// Within two hours, alice's share issues 200 after its burst of 100: 20 of 120 + 100 remain.
		if st := b.outageStats(); st.Owing != 0 || st.Lost != 0 || st.Charged < 100+20 || st.Charged > 100+22 {
			t.Errorf("%+v", st)
		}
	}, backstopped(1), func(c *weir.Config) { c.Cooldown = -1 })
}

// A bucket without room for the overriding limits of an outage is charged for its own at once, and for the others as
// soon as there is room.
func TestLocalOwedOfManyOverrides(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", sluggish(100))
		b.take("alice", nil)
		b.fake.does(takesAreDark)
		b.take("alice", weir.Tokens{"rpd": 40})
		mine := []func(weir.Tokens) weir.Request{with(sluggish(20)), with(sluggish(30))}
		for _, req := range mine {
			b.takeFor(req(weir.Tokens{"rpd": 15}))
		}
		b.fake.does(recovers)
		b.fake.does(func(f *fakeStore) { // as DynamoDB answers if the bucket holds 16 others
			f.settle = func(ctx context.Context, s store.Settle) (store.Outcome, error) {
				if slices.ContainsFunc(s.Debits[0].Charges, func(c store.Charge) bool { return c.Limit.Override }) {
					return store.Outcome{}, store.ErrTooManyOverrides
				}
				return f.Store.Settle(ctx, s)
			}
		})
		b.take("alice", nil)
		time.Sleep(time.Second)
		b.wantLeft("alice", weir.Tokens{"rpd": 60})
		if st := b.outageStats(); st.Owing != 1 || st.Lost != 0 || st.Charged != 40 {
			t.Errorf("while there is no room: %+v", st)
		}
		time.Sleep(25 * time.Hour) // longer than a settle may be repeated
		b.take("alice", nil)
		b.fake.does(recovers)
		time.Sleep(time.Minute)
		b.take("alice", nil)
		time.Sleep(time.Second)
		if st := b.outageStats(); st.Owing != 0 || st.Lost != 0 || st.Charged != 70 {
			t.Errorf("once there is room: %+v", st)
		}
		b.takeFor(mine[0](weir.Tokens{"rpd": 5}))
		b.refusedFor(mine[0](weir.Tokens{"rpd": 1}))
		b.takeFor(mine[1](weir.Tokens{"rpd": 15}))
		b.refusedFor(mine[1](weir.Tokens{"rpd": 1}))
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
		must(t, errOf(lease.Adjust(b.ctx, weir.Tokens{"rpd": 5})))
		must(t, lease.Rollback(b.ctx))
		if st := b.outageStats(); st.Lost != 15 || st.Owing != 0 {
			t.Errorf("%+v", st)
		}
	})
}
