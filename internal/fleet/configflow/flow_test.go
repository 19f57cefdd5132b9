package configflow_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
)

var aliceLimits = store.Key{Namespace: "default", Kind: store.KindEntityLimits, ID: "alice", Sub: weir.DefaultResource}

// A change is in force everywhere within one poll, and unchanged records are not read repeatedly.
func TestPoll(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRemote(t)
		a, b := r.start(t, ""), r.start(t, "")
		a.set("", 10)
		a.set("alice", 20)
		b.want("alice", 20, "first")
		b.want("bob", 10, "first")
		time.Sleep(period) // for the first poll, and for a's changes
		b.want("alice", 20, "after the first poll")
		b.want("bob", 10, "after the first poll")
		before, polled := r.reads.Load(), b.flow.Status().Polled
		for range 100 {
			time.Sleep(period)
			b.want("alice", 20, "unchanged")
		}
		if n := r.reads.Load() - before; n > 0 {
			t.Errorf("%d reads while nothing changed", n)
		}
		a.set("alice", 30)
		b.want("alice", 20, "not told yet")
		time.Sleep(period)
		b.want("alice", 30, "after a poll")
		a.set("", 11)
		time.Sleep(1100 * time.Millisecond) // changes that affect every entity are not spread
		b.want("bob", 11, "after a poll")
		if s := b.flow.Status(); s.Polled != polled+2 || s.Announced != 0 || s.FromFile || s.Age > 1100*time.Millisecond {
			t.Errorf("%+v", s)
		}
	})
}

// A namespace used by name, and its deletion.
func TestPollRegistry(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRemote(t)
		a, b := r.start(t, ""), r.start(t, "")
		if _, err := admin.New(a.Limiter).Namespaces.Create(t.Context(), "tenant"); err != nil {
			t.Fatal(err)
		}
		if err := admin.New(a.In("tenant")).Limits.Set(t.Context(), admin.Scope{}, weir.PerMinute("rpm", 5)); err != nil {
			t.Fatal(err)
		}
		take := func() error {
			_, err := b.In("tenant").Acquire(t.Context(), weir.Request{Entity: "alice", Resource: "api"})
			return err
		}
		time.Sleep(period)
		if err := take(); err != nil {
			t.Fatal(err)
		}
		if err := admin.New(a.Limiter).Namespaces.Delete(t.Context(), "tenant"); err != nil {
			t.Fatal(err)
		}
		if err := take(); err != nil { // no notification has arrived
			t.Fatal(err)
		}
		time.Sleep(period)
		if err := take(); err == nil {
			t.Error("a namespace that was deleted still decides")
		}
	})
}

// A poll covers 99 namespaces; of more, each has its turn.
func TestPollTakesTurns(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRemote(t)
		a, b := r.start(t, ""), r.start(t, "")
		var here, there []*decider
		for i := range 500 {
			name := fmt.Sprint("tenant", i)
			if _, err := admin.New(a.Limiter).Namespaces.Create(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			here = append(here, &decider{Limiter: a.In(name), t: t})
			there = append(there, &decider{Limiter: b.In(name), t: t})
			here[i].set("", 10)
			there[i].want("alice", 10, "first")
		}
		time.Sleep(6*time.Second + period)
		for i := range here {
			there[i].want("alice", 10, "after the first polls")
			here[i].set("", 20)
		}
		time.Sleep(period)
		behind := 0
		for i := range there {
			if there[i].burst("alice") == 10 {
				behind++
			}
		}
		if behind == 0 {
			t.Error("no namespace had to wait")
		}
		time.Sleep(6 * time.Second) // the sixth poll is over, and what it found has been spread
		for i := range there {
			there[i].want("alice", 20, "after six polls")
		}
	})
}

// Exactly the records that the store announces are reread, at once; duplicate and late announcements change nothing.
func TestAnnounced(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRemote(t)
		a, b := r.start(t, ""), r.start(t, "")
		for _, e := range []string{"", "alice", "bob"} {
			a.set(e, 10)
		}
		b.want("alice", 10, "first")
		b.want("bob", 10, "first")
		time.Sleep(period)
		b.want("alice", 10, "settled")
		b.want("bob", 10, "settled")
		r.asked()
		before := b.flow.Status()

		a.set("alice", 20)
		news := store.Changes{Namespace: "default", Epoch: 4, Keys: []store.Key{aliceLimits}}
		b.flow.Announced(news)
		b.want("alice", 20, "told")
		b.want("bob", 10, "told")
		for _, k := range r.asked() {
			if k.ID == "bob" {
				t.Errorf("%s was read for a change of alice", k)
			}
		}
		for range 3 { // duplicated, and late
			b.flow.Announced(news)
			b.flow.Announced(store.Changes{Namespace: "default", Epoch: 2, Keys: []store.Key{aliceLimits}})
		}
		b.want("alice", 20, "told again")
		time.Sleep(period) // the poll finds the change that was announced
		b.want("alice", 20, "polled")
		if keys := r.asked(); len(keys) > 0 {
			t.Errorf("read again: %v", keys)
		}
		if s := b.flow.Status(); s.Announced != before.Announced+1 || s.Polled != before.Polled {
			t.Errorf("%+v, before: %+v", s, before)
		}
	})
}

// Lost announcements are made up for when the next one arrives, and out-of-order announcements restore no old value.
func TestLostAndReordered(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRemote(t)
		a, b := r.start(t, ""), r.start(t, "")
		a.set("", 10)
		a.set("alice", 10)
		b.want("alice", 10, "first")
		b.want("bob", 10, "first")
		time.Sleep(period)
		b.want("alice", 10, "settled")
		b.want("bob", 10, "settled")
		system := store.Key{Namespace: "default", Kind: store.KindSystem}

		a.set("alice", 20) // epoch 3
		a.set("", 30)      // epoch 4
		b.flow.Announced(store.Changes{Namespace: "default", Epoch: 4, Keys: []store.Key{system}})
		b.want("bob", 30, "told")
		synctest.Wait()                     // the poll that this triggers
		time.Sleep(1100 * time.Millisecond) // and its spread, but not the next poll's
		b.want("alice", 20, "lost, and found")
		b.flow.Announced(store.Changes{Namespace: "default", Epoch: 3, Keys: []store.Key{aliceLimits}})
		b.want("alice", 20, "late news")
		b.want("bob", 30, "late news")
	})
}

// An unusable record changes nothing, is reported, and does not block other records.
func TestPoison(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRemote(t)
		a, b := r.start(t, ""), r.start(t, "")
		a.set("", 10)
		a.set("alice", 20)
		b.want("alice", 20, "first")
		b.want("bob", 10, "first")
		time.Sleep(period)
		for _, bad := range []string{
			`{"limits":[{"name":"rpm","amount":0,"period":"min"}]}`,
			`{"limits":[{"name":"rpm","amount":99,"period":"min","mystery":1}]}`, `{"limits":`, `7`,
		} {
			r.raw(t, aliceLimits, bad)
			r.raw(t, store.Key{Namespace: "default", Kind: store.KindSystem}, `{"limits":[{"name":"rpm","amount":11,"period":"min"}]}`)
			time.Sleep(period)
			b.want("alice", 20, bad)
			b.want("bob", 11, "beside it")
		}
		if s := b.flow.Status(); s.Unreadable == 0 {
			t.Errorf("nobody was told: %+v", s)
		}
		r.raw(t, aliceLimits, `{"limits":[{"name":"rpm","amount":40,"period":"min"}]}`)
		time.Sleep(period)
		b.want("alice", 40, "mended")

		// A process without any known value admits nothing.
		r.raw(t, aliceLimits, `{"limits":[{"name":"rpm","amount":0,"period":"min"}]}`)
		r.raw(t, store.Key{Namespace: "default", Kind: store.KindSystem}, `{"on_unavailable":"allow"}`)
		c := r.start(t, "")
		if _, err := c.Acquire(t.Context(), weir.Request{Entity: "alice", Resource: "api"}); err == nil {
			t.Error("admitted by a record that cannot be used")
		}
	})
}

// While the store is away the known limits stay in use, and their age is reported.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRemote(t)
		a, b := r.start(t, ""), r.start(t, "")
		a.set("", 10)
		if err := admin.New(a.Limiter).Limits.SetOnUnavailable(t.Context(), admin.Scope{}, weir.OnUnavailableAllow); err != nil {
			t.Fatal(err)
		}
		b.want("alice", 10, "first")
		time.Sleep(period)
		r.down.Store(true)
		b.flow.Announced(store.Changes{Namespace: "default", Epoch: 99, Keys: []store.Key{{Namespace: "default", Kind: store.KindSystem}}})
		time.Sleep(time.Hour)
		if s := b.flow.Status(); s.Age < time.Hour || s.Age > time.Hour+2*period {
			t.Errorf("%+v", s)
		}
		// The known setting is allow; without it, the request would be denied.
		lease, err := b.Acquire(t.Context(), weir.Request{Entity: "alice", Resource: "api"})
		if err != nil || !lease.Decision().Degraded {
			t.Errorf("%v, %v", lease, err)
		}
		r.down.Store(false)
		a.set("", 20)
		time.Sleep(period)
		b.want("alice", 20, "back")
		if s := b.flow.Status(); s.Age > period {
			t.Errorf("%+v", s)
		}
	})
}

// Going back to an earlier value is a change like any other.
func TestRollback(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRemote(t)
		a, b := r.start(t, ""), r.start(t, "")
		for _, burst := range []int64{10, 1000, 10} {
			a.set("", burst)
			time.Sleep(period)
			b.want("alice", burst, "in turn")
		}
	})
}
