package weir_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/store"
)

// An entity that the process has never seen uses the limits of the resource or the system. Over is -1 (no bound is known),
// because the entity may have limits of its own.
func TestLocalStranger(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerHour("rpm", 40))
		other := b.peer()
		other.chain("alice", "team")
		other.set("alice", "", weir.PerHour("rpm", 8), weir.PerHour("tpm", 500))
		other.take("alice", nil) // the other process knows alice
		b.take("bob", nil)
		b.fake.does(dark)
		d := b.take("alice", weir.Tokens{"rpm": 3}).Decision()
		if st := d.Statuses; !d.Degraded || d.Over != -1 || len(st) != 1 || st[0].Burst != 40 || st[0].Source != weir.SourceSystem ||
			!strings.Contains(d.Reason, `limits of "alice" itself are not known`) {
			t.Errorf("%+v", d)
		}
		if ok, err := b.Allow(b.ctx, "alice", "api"); !ok || err != nil {
			t.Error(ok, err)
		}
		for range 10 {
			b.take("bob", nil) // until the store counts as silent for AcquireAll, too
		}
		leases, err := b.AcquireAll(b.ctx, []weir.Request{{Entity: "alice", Resource: "api", Tokens: one}, {Entity: "bob", Resource: "api", Tokens: one}})
		if err != nil || leases[0].Decision().Over != -1 {
			t.Error(err)
		}
		over := b.refused("alice", weir.Tokens{"rpm": 6})
		if !over.Degraded || over.Over != -1 {
			t.Errorf("%+v", over.Decision)
		}
		// A request that is invalid under these limits may be valid under the entity's own.
		for name, tokens := range map[string]weir.Tokens{"more than the burst": {"rpm": 41}, "another limit": {"tpm": 1}} {
			req := weir.Request{Entity: "alice", Resource: "api", Tokens: tokens}
			_, err := b.Acquire(b.ctx, req)
			_, all := b.AcquireAll(b.ctx, []weir.Request{req})
			_, waited := b.Wait(b.ctx, req)
			for _, err := range []error{err, all, waited} {
				if !errors.Is(err, weir.ErrUnavailable) || errors.Is(err, weir.ErrExceedsBurst) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if _, err := b.Acquire(b.ctx, weir.Request{Entity: "bob", Resource: "api", Tokens: weir.Tokens{"rpm": 41}}); !errors.Is(err, weir.ErrExceedsBurst) {
			t.Errorf("bob, who is known: %v", err)
		}
		_, err = b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "unheard of"})
		wantErr(t, err, weir.ErrUnavailable) // it may have limits of its own

		b.fake.does(recovers)
		b.eventually("all is charged", func() bool {
			_, _ = b.Acquire(b.ctx, weir.Request{Entity: "other", Resource: "api"})
			return b.outageStats().Owing == 0
		})
		time.Sleep(b.cfg.StoreTimeout + time.Second)           // the reads that hung have ended
		b.wantLeft("alice", weir.Tokens{"rpm": 3, "tpm": 500}) // 5 were admitted
		if st := b.outageStats(); st.Lost != 0 {
			t.Errorf("%+v", st)
		}
		if d := b.take("alice", weir.Tokens{"rpm": 3}).Decision(); d.Degraded || d.Over != 0 {
			t.Errorf("%+v", d)
		}
		b.refused("alice", one)
	}, backstopped(4))
}

// An entity that was last seen before a change, which the process has read since for another one, follows the change.
func TestLocalFollowsWhatWasRead(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "api", weir.PerHour("rpm", 1000))
		b.take("alice", one)
		b.take("bob", one)
		other := b.peer()
		other.set("", "api", weir.PerHour("rpm", 10))
		time.Sleep(2 * time.Minute)
		b.take("alice", one)
		b.fake.does(dark)
		for range 2 {
			if d := b.take("bob", one).Decision(); d.Over != 10 || d.Statuses[0].Burst != 10 {
				t.Errorf("%+v", d)
			}
			time.Sleep(2 * time.Second)
		}
	}, backstopped(1))
}

// If the resource does not count requests, the entity's own limits may or may not.
func TestLocalStrangerAllow(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerHour("tpm", 40))
		b.take("bob", nil)
		b.fake.does(dark)
		_, err := b.Allow(b.ctx, "alice", "api")
		wantErr(t, err, weir.ErrUnavailable)
	}, backstopped(1))
}

// Invented IDs in an outage get no more shares than there is room for, and nothing else is remembered for them.
func TestLocalStrangersAreBounded(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerHour("rpm", 1))
		b.take("bob", nil)
		b.fake.does(dark)
		for range 20 { // each waits as long as possible
			_, _ = b.Acquire(b.ctx, weir.Request{Entity: "bob", Resource: "api"})
		}
		before := b.cacheStats()
		admitted, none := 0, 0
		for i := range 3000 {
			_, err := b.Acquire(b.ctx, weir.Request{Entity: fmt.Sprint(i), Resource: "api", Tokens: one})
			switch {
			case err == nil:
				admitted++
			case errors.Is(err, weir.ErrUnavailable):
				none++
			default:
				t.Fatal(err)
			}
		}
		after := b.cacheStats()
		if admitted > 128 || none == 0 || after.Policies != before.Policies || after.Entries != before.Entries {
			t.Errorf("%d admitted, %d had no share; %+v, before %+v", admitted, none, after, before)
		}
	}, backstopped(1), func(c *weir.Config) { c.CacheEntries, c.Cooldown = 128, time.Hour })
}

// A process that starts without the store has one token, and then its share of the rate: its share of the burst counts as
// spent, by itself before a restart or by others.
func TestLocalBegins(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 60))
		b.fake.does(takesAreDark)
		b.take("alice", one)
		if d := b.refused("alice", one); d.RetryAfter > 2*time.Second { // 30 a minute
			t.Errorf("retry after %v", d.RetryAfter)
		}
		time.Sleep(10 * time.Second)
		b.take("alice", weir.Tokens{"rpm": 5})
		b.refused("alice", one)
		b.take("bob", weir.Tokens{"rpm": 6}) // counted from the start of the process, not from the first request
		b.refused("bob", one)
		b.fake.does(recovers)
		b.eventually("it is asked", func() bool { return !b.take("carol", nil).Decision().Degraded })
		b.fake.does(takesAreDark)
		b.take("dave", weir.Tokens{"rpm": 30}) // in a process that the store has answered before
		b.refused("dave", one)
	}, backstopped(2))
}

// A guess does not outlive the outage: a caller of Wait finds out that the store answers, and gets the same answer as
// from Acquire.
func TestLocalStrangerWaits(t *testing.T) {
	t.Parallel()
	for _, u := range []weir.OnUnavailable{weir.OnUnavailableLocal, weir.OnUnavailableAllow} {
		bubble(t, func(b *bundle) {
			b.set("", "", weir.PerHour("rpm", 40))
			b.says("", "api", u)
			b.peer().set("alice", "", weir.PerHour("tpm", 500))
			b.take("bob", nil)
			b.fake.does(dark)
			b.eventually("it opens", func() bool {
				_, _ = b.Acquire(b.ctx, weir.Request{Entity: "bob", Resource: "api"})
				return b.outageStats().Breaker == "open"
			})
			req := weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"tpm": 300}}
			_, err := b.Acquire(b.ctx, req)
			if _, waited := b.Wait(b.ctx, req); (waited == nil) != (err == nil) || (err == nil) != (u == weir.OnUnavailableAllow) {
				t.Errorf("%s: %v, but Acquire says %v", u, waited, err)
			}
			b.fake.does(recovers)
			time.Sleep(time.Minute)
			for i := range 2 { // the second waits for tokens, under limits that are known by then
				began := time.Now()
				lease, err := b.Wait(b.ctx, req)
				if err != nil || lease.Decision().Degraded || (time.Since(began) > time.Minute) != (i > 0) {
					t.Errorf("%s: %v after %v", u, err, time.Since(began))
				}
			}
		}, backstopped(1))
	}
}

// An entity whose limits cannot be read is refused, with the store and without it. It is not an unknown entity, which
// would use other limits.
func TestLocalUnreadableIsNoStranger(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerHour("rpm", 40))
		bad := store.Record{Key: store.Key{Namespace: "default", Kind: store.KindEntityLimits, ID: "alice", Sub: "api"}, Value: []byte(`{"limits":5}`)}
		must(t, b.fake.Commit(b.ctx, store.Write{Record: bad}))
		b.take("bob", nil)
		ask := func() error {
			_, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
			return err
		}
		var unreadable *weir.StoreError
		if err := ask(); !errors.As(err, &unreadable) || errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		b.fake.does(dark)
		wantErr(t, ask(), weir.ErrUnavailable)
		b.fake.does(recovers)
		time.Sleep(time.Minute)
		bad.Version, bad.Value = 1, []byte(`{}`)
		must(t, b.fake.Commit(b.ctx, store.Write{Record: bad}))
		must(t, ask())
		bad.Version, bad.Value = 2, []byte(`{"limits":5}`)
		must(t, b.fake.Commit(b.ctx, store.Write{Record: bad}))
		time.Sleep(time.Hour)
		must(t, ask()) // by the last good values, as without the store
		b.fake.does(dark)
		b.eventually("it opens", func() bool {
			_ = ask()
			return b.outageStats().Breaker == "open"
		})
		policies(b.Limiter).SharesChanged() // forces another lookup
		must(t, ask())
	}, backstopped(1))
}

// The sum of several requests can be more than a burst, although each of them is not. If it is not known whether the
// entity has limits of its own, the burst may be another one.
func TestLocalSumOverBurst(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 10))
		b.take("known", nil)
		b.fake.does(dark)
		for entity, want := range map[string]error{"known": weir.ErrExceedsBurst, "unknown": weir.ErrUnavailable} {
			req := weir.Request{Entity: entity, Resource: "api", Tokens: weir.Tokens{"rpm": 6}}
			leases, err := b.AcquireAll(b.ctx, []weir.Request{req, req})
			if leases != nil || !errors.Is(err, want) || errors.Is(err, weir.ErrExceedsBurst) != (entity == "known") {
				t.Errorf("%s: %v, %v", entity, leases, err)
			}
		}
	}, backstopped(1))
}

// A cell without a share of the limits admits nothing from local shares either.
func TestLocalWithoutCellShare(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		f := &fixed{share: policy.Share{Num: 1, Den: 1}}
		policies(b.Limiter).Use(f, nil)
		b.set("", "", weir.PerMinute("rpm", 10))
		b.take("alice", nil)
		b.fake.does(dark)
		for b.outageStats().Breaker == "closed" {
			_, _ = b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: one})
		}
		f.share = policy.Share{}
		policies(b.Limiter).SharesChanged()
		_, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: one})
		if !errors.Is(err, weir.ErrUnavailable) || !errors.Is(err, policy.ErrNoShare) {
			t.Error(err)
		}
	}, backstopped(1), func(c *weir.Config) { c.Cooldown = time.Hour })
}
