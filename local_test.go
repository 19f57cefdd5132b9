package weir_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// dark makes a store fail every call.
func dark(f *fakeStore) {
	f.take = func(ctx context.Context, _ store.Take) (store.Outcome, error) { return store.Outcome{}, hang(ctx) }
	f.settle = func(ctx context.Context, _ store.Settle) (store.Outcome, error) { return store.Outcome{}, hang(ctx) }
	f.get = func(ctx context.Context, _ ...store.Key) (store.Got, error) { return store.Got{}, hang(ctx) }
	f.peek = func(ctx context.Context, _ ...store.Bucket) (store.Snapshot, error) {
		return store.Snapshot{}, hang(ctx)
	}
}

// backstopped configures a fleet of n, with 10 ms for the store.
func backstopped(n int) func(*weir.Config) {
	return func(c *weir.Config) {
		c.OnUnavailable, c.DecideWithin = weir.OnUnavailableLocal, 10*time.Millisecond
		c.Instances = func() int { return n }
	}
}

// A share of one in four: a quarter of what the limit has left, then a quarter of its rate, and no answer is late.
func TestLocalShare(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 40))
		b.take("alice", weir.Tokens{"rpm": 20})
		b.fake.does(dark)
		admitted := 0
		for range 20 {
			began := time.Now()
			lease, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: one})
			if took := time.Since(began); took > 10*time.Millisecond { // DecideWithin
				t.Errorf("took %v", took)
			}
			var over *weir.ExceededError
			switch {
			case err == nil:
				admitted++
				d := lease.Decision()
				st := d.Statuses[0]
				if !d.Degraded || d.Over != 40 || st.Over != 40 || st.Burst != 40 || st.Period != time.Minute || d.Reason == "" {
					t.Errorf("%+v", d)
				}
			case !errors.As(err, &over) || !over.Degraded || over.RetryAfter > 6*time.Second:
				t.Errorf("%v", err)
			}
		}
		if admitted != 0 { // this process admitted its own share of the 20, twice
			t.Errorf("admitted %d at once", admitted)
		}
		time.Sleep(6 * time.Second) // 40 a minute over four processes: one in six seconds
		b.take("alice", one)
		b.refused("alice", one)
		st := b.outageStats()
		if st.Breaker == "closed" || st.Openings != 1 || st.Admitted != 1 || st.NotCalled == 0 || st.Instances != 4 {
			t.Errorf("%+v", st)
		}
	}, backstopped(4), func(c *weir.Config) { c.Cooldown = time.Hour })
}

// What others have spent counts, as far as the store has reported it.
func TestLocalStartsAsTheStoreWas(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerHour("rpm", 40))
		other := b.peer(backstopped(4))
		other.take("alice", weir.Tokens{"rpm": 39})
		b.take("alice", weir.Tokens{"rpm": 1})
		other.take("carol", weir.Tokens{"rpm": 20})
		if ok, err := b.Allow(b.ctx, "carol", "api"); !ok || err != nil {
			t.Error(ok, err)
		}
		b.take("bob", nil)
		b.fake.does(dark)
		b.refused("alice", one) // empty in the store
		b.take("bob", weir.Tokens{"rpm": 10})
		b.refused("bob", one)
		b.take("carol", weir.Tokens{"rpm": 4}) // a quarter of the 19 that are left
		b.refused("carol", one)
	}, backstopped(4))
}

// Few tokens for many processes: one each, then their share of the rate.
func TestLocalHasAToken(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 10))
		b.take("alice", nil)
		b.take("bob", nil)
		b.fake.does(dark)
		lease := b.take("alice", one)
		if over := lease.Decision().Over; over != 50 {
			t.Errorf("over %d, want a token for each of 50", over)
		}
		d := b.refused("alice", one)
		if d.RetryAfter < 299*time.Second || d.RetryAfter > 300*time.Second {
			t.Errorf("retry after %v, want a fiftieth of 10 a minute", d.RetryAfter)
		}
		b.take("bob", weir.Tokens{"rpm": 8}) // more than a share: allowed while the bucket is full
		b.refused("bob", nil)
	}, backstopped(50))
}

func (b *bundle) eventually(what string, f func() bool) {
	b.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range 300 { // longer than a debtor's longest pause
		if f() {
			return
		}
		<-tick.C
	}
	b.t.Errorf("not within 30 s: %s: %+v", what, b.outageStats())
}

// When the store answers again it is charged what time has not covered, once.
func TestLocalIsCharged(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerDay("rpd", 2400), weir.PerSecond("rps", 100))
		b.chain("child", "parent")
		tokens := weir.Tokens{"rpd": 100, "rps": 10}
		b.take("child", tokens)
		var lost atomic.Bool
		b.fake.does(dark)
		b.take("child", tokens)
		kept := b.take("child", tokens)
		back := b.take("child", tokens)
		must(t, back.Rollback(b.ctx))
		wantErr(t, back.Rollback(b.ctx), weir.ErrRolledBack)
		must(t, errOf(kept.Adjust(b.ctx, weir.Tokens{"rpd": 50})))
		time.Sleep(2 * time.Second) // time covers rps, because the store is away all the time
		b.take("child", weir.Tokens{"rps": 0})
		b.fake.does(recovers)
		b.fake.does(func(f *fakeStore) {
			f.settle = func(ctx context.Context, s store.Settle) (store.Outcome, error) {
				for _, c := range s.Debits[0].Charges {
					if c.Limit.Name == "rps" {
						t.Errorf("%d of rps are charged, which time has covered", c.Amount)
					}
				}
				out, err := f.Store.Settle(ctx, s)
				if lost.CompareAndSwap(false, true) { // only the first answer
					return store.Outcome{}, hang(ctx)
				}
				return out, err
			}
		})
		b.eventually("all is charged", func() bool {
			b.take("child", nil)
			return b.outageStats().Owing == 0
		})
		b.wantLeft("child", weir.Tokens{"rpd": 2400 - 100 - 250, "rps": 100}) // rps refilled long ago, within a second
		b.wantLeft("parent", weir.Tokens{"rpd": 2400 - 100 - 250, "rps": 100})
		if st := b.outageStats(); st.Lost != 0 || st.Charged < 500 {
			t.Errorf("%+v", st)
		}
		must(t, kept.Rollback(b.ctx)) // tokens that were charged stay so
		time.Sleep(5 * time.Second)
		b.wantLeft("parent", weir.Tokens{"rpd": 2400 - 100 - 250, "rps": 100})
		if d := b.take("child", tokens).Decision(); d.Degraded {
			t.Errorf("%+v", d)
		}
	}, backstopped(1))
}

// If the limits are unknown, there is no share.
func TestLocalUnknown(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 10))
		b.fake.does(dark)
		_, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: one})
		wantErr(t, err, weir.ErrUnavailable)
		if err == nil || !strings.Contains(err.Error(), "not known") {
			t.Errorf("%v", err)
		}
		_, err = b.Allow(b.ctx, "alice", "api")
		wantErr(t, err, weir.ErrUnavailable)
		_, err = b.AcquireAll(b.ctx, []weir.Request{{Entity: "alice", Resource: "api"}})
		wantErr(t, err, weir.ErrUnavailable)
	}, backstopped(1))
}

// The last known limits stay in use, however old, at once, in every kind of call.
func TestLocalFromWhatIsKnown(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerHour("rpm", 12))
		for _, id := range []string{"a", "b", "c", "d"} {
			b.take(id, nil)
		}
		time.Sleep(time.Hour) // all cached entries have expired
		b.fake.does(dark)
		i := 0
		b.eventually("it opens", func() bool { // each waits as long as possible
			i++
			_, _ = b.Acquire(b.ctx, weir.Request{Entity: []string{"d", "e", "f"}[i%3], Resource: "api", Tokens: one})
			return b.outageStats().Breaker == "open"
		})
		began := time.Now()
		b.take("a", one)
		if ok, err := b.Allow(b.ctx, "b", "api"); !ok || err != nil {
			t.Error(ok, err)
		}
		lease, err := b.Wait(b.ctx, weir.Request{Entity: "c", Resource: "api", Tokens: one})
		if err != nil || !lease.Decision().Degraded {
			t.Error(lease, err)
		}
		req := func(id string, n int64) weir.Request {
			return weir.Request{Entity: id, Resource: "api", Tokens: weir.Tokens{"rpm": n}}
		}
		_, err = b.AcquireAll(b.ctx, []weir.Request{req("a", 2), req("b", 2), req("a", 2)})
		var over *weir.ExceededError
		if !errors.As(err, &over) || !over.Degraded || over.Over != 12 || len(over.Each) != 3 {
			t.Errorf("%v", err)
		}
		leases, err := b.AcquireAll(b.ctx, []weir.Request{req("a", 2), req("b", 2)})
		if err != nil || len(leases) != 2 || !leases[1].Decision().Degraded {
			t.Error(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it was waited for %v", took)
		}
		for mode, want := range map[weir.OnUnavailable]error{
			weir.OnUnavailableDeny: weir.ErrUnavailable, weir.OnUnavailableAllow: weir.ErrExceedsBurst,
		} {
			r := req("a", 100)
			r.OnUnavailable = mode
			_, err := b.Acquire(b.ctx, r)
			wantErr(t, err, want)
		}
	}, backstopped(3), func(c *weir.Config) { c.Cooldown = time.Hour })
}

// A lease that left the process returns nothing if it comes back: it may have been returned already.
func TestLocalHeld(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerHour("rpm", 12))
		b.take("alice", nil)
		b.fake.does(dark)
		h := b.take("alice", weir.Tokens{"rpm": 6}).Token("x", time.Now().Add(time.Hour))
		must(t, b.resume(h).Rollback(b.ctx))
		must(t, errOf(b.resume(h).Adjust(b.ctx, weir.Tokens{"rpm": -1})))
		must(t, errOf(b.resume(h).Adjust(b.ctx, weir.Tokens{"rpm": 2})))
		b.take("alice", weir.Tokens{"rpm": 4})
		b.refused("alice", one)
	}, backstopped(1))
}

// A lease from another process gives back nothing, while what it adds is bounded by MaxDebt, limit by limit.
func TestLocalHeldIntoDebt(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]string{"rpm": "tpm", "tpm": "rpm"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(b *bundle) {
				b.set("", "", weir.PerHour("rpm", 40), weir.PerHour("tpm", 40))
				b.take("alice", nil)
				b.fake.does(dark)
				lease := b.take("alice", weir.Tokens{"rpm": 4, "tpm": 4})
				peer := b.peer(backstopped(4))
				resumed, err := peer.LeaseFromToken(b.ctx, lease.Token("x", time.Now().Add(time.Hour)))
				must(t, err)
				_, err = resumed.Adjust(b.ctx, weir.Tokens{name: 5000, other: -3})
				if debt, ok := errors.AsType[*weir.DebtError](err); !ok || debt.Limit != name || debt.Left != 5000-110 { // a share's burst and MaxDebt: 10 + 100
					t.Fatalf("%v", err)
				}
				for _, c := range resumed.Token("", time.Now()).Charges {
					if want := map[string]int64{name: 4 + 110, other: 4 - 3}[c.Limit.Name]; c.Tokens != want {
						t.Errorf("holds %d of %s, want %d", c.Tokens, c.Limit.Name, want)
					}
				}
				if st := peer.outageStats(); st.Admitted != 110 {
					t.Errorf("%+v", st)
				}
			}, backstopped(4))
		})
	}
}

// Debt that remains is charged when the limiter is closed.
func TestLocalCharge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setupOn(t, &fakeStore{Store: memory.New(nil)}, nil, backstopped(1))
		b.set("", "", weir.PerDay("rpd", 100))
		b.take("alice", nil)
		b.fake.does(takeFails(errDown))
		b.take("alice", weir.Tokens{"rpd": 40})
		b.fake.does(recovers)
		must(t, b.Close())
		if st := b.outageStats(); st.Charged != 40 || st.Lost != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// A failed probe does not count as another opening, and Over saturates if it does not fit its type.
func TestLocalOpenings(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		const most = 1_000_000_000_000_000
		b.set("", "", weir.Limit{Name: "rpd", Amount: 1, Period: 24 * time.Hour, Burst: most})
		b.take("alice", nil)
		b.fake.does(dark)
		over := b.take("alice", weir.Tokens{"rpd": most}).Decision().Over
		if over < most*9 {
			t.Errorf("over %d", over)
		}
		for range 100 {
			b.refused("alice", weir.Tokens{"rpd": 1})
			time.Sleep(100 * time.Millisecond)
		}
		if st := b.outageStats(); st.Openings != 1 || st.TimedOut < 12 {
			t.Errorf("%+v", st)
		}
	}, backstopped(20))
}
