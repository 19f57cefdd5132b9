package weir_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store"
)

// An entity's default limits, read for one resource, are known for the others.
func TestKnownByDefault(t *testing.T) {
	t.Parallel()
	for _, u := range []weir.OnUnavailable{weir.OnUnavailableDeny, weir.OnUnavailableLocal, weir.OnUnavailableAllow} {
		changing(t, func(b *bundle, _ *writes) {
			otherwise(b, func(other *bundle) {
				other.set("", "", weir.PerHour("rpm", 100))
				other.set("alice", "", weir.PerHour("rpm", 7))
				other.says("alice", "", u)
			})
			b.takeFor(weir.Request{Entity: "alice", Resource: "seen"})
			b.take("bob", nil)
			b.fake.does(dark)
			if got := b.answer("alice"); got != u {
				t.Errorf("%s, want %s", got, u)
			}
			if u != weir.OnUnavailableLocal {
				return
			}
			if d := b.take("alice", nil).Decision(); d.Over != -1 || d.Statuses[0].Burst != 7 || d.Statuses[0].Source != weir.SourceEntityDefault {
				t.Errorf("%+v", d) // it may have other limits on the resource
			}
			b.fake.does(recovers)
			b.eventually("it is asked", func() bool { return !b.take("alice", nil).Decision().Degraded })
			b.fake.counts()
			b.takeFor(weir.Request{Entity: "alice", Resource: "third"})
			if _, _, keys := b.fake.counts(); len(keys) != 2 { // and it is not read again
				t.Errorf("read %v", keys)
			}
		})
	}
}

// Unreadable default limits do not matter if the entity has limits for the resource. But in an outage they deny, because
// they may say what on_unavailable is.
func TestUnreadableByDefault(t *testing.T) {
	t.Parallel()
	changing(t, func(b *bundle, _ *writes) {
		b.set("", "", weir.PerHour("rpm", 100))
		b.set("alice", "api", weir.PerHour("rpm", 7))
		bad := store.Record{Key: store.Key{Namespace: "default", Kind: store.KindEntityLimits, ID: "alice", Sub: weir.DefaultResource}, Value: []byte(`{"limits":5}`)}
		must(t, b.fake.Commit(b.ctx, store.Write{Record: bad}))
		if d := b.take("alice", nil).Decision(); d.Statuses[0].Burst != 7 {
			t.Errorf("%+v", d)
		}
		_, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "other"})
		if err == nil || errors.Is(err, weir.ErrUnavailable) {
			t.Error(err)
		}
		b.fake.does(dark)
		if got := b.answer("alice"); got != weir.OnUnavailableDeny {
			t.Error(got)
		}
		b.fake.does(recovers)
		b.eventually("it is asked", func() bool {
			lease, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
			return err == nil && !lease.Decision().Degraded
		})
		b.says("alice", "api", weir.OnUnavailableAllow)
		b.fake.does(dark)
		if got := b.answer("alice"); got != weir.OnUnavailableAllow {
			t.Error(got)
		}
	})
}

// An unreadable record is remembered as such: requests that need it are refused in an outage, wherever the record was
// learned from.
func TestUnreadableDenies(t *testing.T) {
	t.Parallel()
	for _, k := range []store.Key{
		{Kind: store.KindSystem},
		{Kind: store.KindResourceLimits, ID: "api"},
		{Kind: store.KindEntity, ID: "alice"},
		{Kind: store.KindEntityLimits, ID: "alice", Sub: weir.DefaultResource},
		{Kind: store.KindEntityLimits, ID: "alice", Sub: "api"},
	} {
		k.Namespace = "default"
		bad := store.Record{Key: k, Value: []byte(`{"limits":5,"cascade":5}`)}
		for _, name := range []string{"the store", "outside"} {
			changing(t, func(b *bundle, _ *writes) {
				if name == "the store" {
					must(t, b.fake.Commit(b.ctx, store.Write{Record: bad}))
					_, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
					if err == nil {
						t.Errorf("%s: no error", k)
					}
				} else {
					b.knows(func(keys []store.Key) (got store.Got, ok bool) {
						for _, key := range keys {
							r := store.Record{Key: key}
							if key == k {
								r.Version, r.Value = 1, bad.Value
							}
							got.Records = append(got.Records, r)
						}
						return got, true
					})
				}
				b.fake.does(dark)
				if got := b.answer("alice"); got != weir.OnUnavailableDeny {
					t.Errorf("%s, from %s: %s", k, name, got)
				}
				req := weir.Request{Entity: "alice", Resource: "api", OnUnavailable: weir.OnUnavailableLocal}
				_, err := b.Acquire(b.ctx, req)
				wantErr(t, err, weir.ErrUnavailable)
				req.OnUnavailable = weir.OnUnavailableAllow
				_, err = b.Acquire(b.ctx, req)
				wantErr(t, err, weir.ErrUnavailable)
			}, func(c *weir.Config) { c.OnUnavailable = weir.OnUnavailableAllow })
		}
	}
}

// A process whose first call times out does not know what was spent, like one that starts in an outage.
func TestFirstCallTimesOut(t *testing.T) {
	t.Parallel()
	changing(t, func(b *bundle, _ *writes) {
		b.set("", "", weir.PerMinute("rpm", 60))
		time.Sleep(time.Minute) // real time: none; this is a bubble
		fresh := b.peer(backstopped(2))
		fresh.fake.does(takesAreDark)
		if !fresh.take("alice", one).Decision().Degraded {
			t.Error("the store has answered")
		}
		fresh.refused("alice", one)
		fresh.fake.does(recovers)
		if d := fresh.take("alice", weir.Tokens{"rpm": 30}).Decision(); d.Degraded {
			t.Errorf("%+v", d)
		}
	})
}
