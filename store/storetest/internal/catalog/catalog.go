package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

func catalogScenarios() []Scenario {
	hand := Caps{HandClock: true}
	return []Scenario{
		{Name: "versions", Run: OnStore(catalogVersions)},
		{Name: "get in the order asked for", Run: OnStore(catalogOrder)},
		{Name: "every kind", Run: OnStore(catalogKinds)},
		{Name: "conflicts", Run: OnStore(catalogConflicts)},
		{Name: "all or none", Run: OnStore(catalogAllOrNone)},
		{Name: "all or none across namespaces", Run: OnStore(catalogNamespaces)},
		{Name: "deletes", Run: OnStore(catalogDeletes)},
		{Name: "checks", Run: OnStore(catalogChecks)},
		{Name: "expiry", Need: hand, Run: OnStore(catalogExpiry)},
		{Name: "mistakes", Run: OnStore(catalogMistakes)},
		{Name: "as large as allowed", Run: OnStore(catalogLarge)},
		{Name: "values are not shared", Run: OnStore(catalogShared)},
		{Name: "other clients", Peer: true, Run: OnStore(catalogPeer)},
		{Name: "compare and set at once", Run: OnStore(func(e *Env) { increments(e, e.Store) })},
		{Name: "compare and set from two clients", Peer: true, Run: OnStore(func(e *Env) {
			increments(e, e.Store, e.Peer().Store)
		})},
	}
}

// conflicts checks that a commit fails with the given conflict on one key.
func conflicts(e *Env, k store.Key, have, want uint64, writes ...store.Write) {
	e.Helper()
	err := e.Store.Commit(e.Context(), writes...)
	var c *store.ConflictError
	if !errors.As(err, &c) || !errors.Is(err, store.ErrConflict) {
		e.Fatalf("commit: error %v, want a conflict", err)
	}
	if c.Key != k || c.Have != have || c.Want != want {
		e.Fatalf("conflict on %v: have %d want %d; not on %v: %d %d", c.Key, c.Have, c.Want, k, have, want)
	}
}

func catalogVersions(e *Env) {
	k := Entity("alice")
	e.WantRecord(k, 0, "")
	for v := range uint64(5) {
		w := Put(k, v, fmt.Sprint("value ", v))
		w.Record.Parent = fmt.Sprint("parent ", v)
		e.Commit(w)
		e.WantRecord(k, v+1, fmt.Sprint("value ", v))
		if r := e.Record(k); r.Parent != w.Record.Parent || !r.Expires.IsZero() {
			e.Fatalf("record %+v, want that of %+v", r, w.Record)
		}
	}
	e.Commit(Put(k, 5, ""))
	e.WantRecord(k, 6, "")
}

func catalogOrder(e *Env) {
	e.Commit(Put(Entity("b"), 0, "B"), Put(Entity("a"), 0, "A"), Put(Entity("c"), 0, "C"))
	limits := store.Key{Namespace: "n", Kind: store.KindEntityLimits, ID: "a", Sub: "api"}
	e.Commit(Put(limits, 0, "L"))
	got := e.Get(Entity("c"), Entity("x"), limits, Entity("a"), Entity("y"), Entity("b"))
	for i, want := range []string{"C", "", "L", "A", "", "B"} {
		if r := got.Records[i]; string(r.Value) != want || (r.Version == 0) != (want == "") {
			e.Fatalf("record %d: version %d of %q, want %q", i, r.Version, r.Value, want)
		}
	}
}

// catalogKinds checks that the same id in another kind or namespace names another record.
func catalogKinds(e *Env) {
	var keys []store.Key
	for _, ns := range []string{"n", "m"} {
		for _, kind := range store.Kinds {
			keys = append(
				keys, store.Key{Namespace: ns, Kind: kind, ID: "x"},
				store.Key{Namespace: ns, Kind: kind, ID: "x", Sub: "y"},
				store.Key{Namespace: ns, Kind: kind})
		}
	}
	for _, kind := range []store.Kind{store.KindNamespace, store.KindNamespaceID, store.KindSecret, store.KindAudit} {
		keys = append(keys, store.Key{Namespace: store.Registry, Kind: kind, ID: "x"})
	}
	for _, k := range keys {
		e.Commit(Put(k, 0, k.String()))
	}
	for _, k := range keys {
		e.WantRecord(k, 1, k.String())
	}
	for _, k := range keys[1:] {
		e.Commit(Del(k, 1))
	}
	e.WantRecord(keys[0], 1, keys[0].String())
}

func catalogConflicts(e *Env) {
	k := Entity("alice")
	conflicts(e, k, 0, 1, Put(k, 1, "x"))
	conflicts(e, k, 0, 3, Del(k, 3))
	e.Commit(Put(k, 0, "a"))
	conflicts(e, k, 1, 0, Put(k, 0, "x"))
	conflicts(e, k, 1, 2, Put(k, 2, "x"))
	conflicts(e, k, 1, 2, Del(k, 2))
	e.Commit(Put(k, 1, "b"))
	conflicts(e, k, 2, 1, Put(k, 1, "x"))
	conflicts(e, k, 2, 1, Del(k, 1))
	e.WantRecord(k, 2, "b")
}

func catalogAllOrNone(e *Env) {
	e.Commit(Put(Entity("a"), 0, "A"), Put(Entity("b"), 0, "B"))
	before := e.Get(Entity("a"))
	bad := Put(Entity("b"), 7, "x")
	conflicts(e, Entity("b"), 1, 7, Put(Entity("c"), 0, "C"), Put(Entity("a"), 1, "x"), bad)
	conflicts(e, Entity("b"), 1, 7, bad, Put(Entity("a"), 1, "x"), Put(Entity("c"), 0, "C"))
	conflicts(e, Entity("b"), 1, 7, Del(Entity("a"), 1), bad)
	e.WantRecord(Entity("a"), 1, "A")
	e.WantRecord(Entity("b"), 1, "B")
	e.WantRecord(Entity("c"), 0, "")
	if after := e.Get(Entity("a")); after.Epoch != before.Epoch {
		e.Fatalf("a commit that failed raised the epoch from %d to %d", before.Epoch, after.Epoch)
	}
	e.Commit(Put(Entity("c"), 0, "C"), Del(Entity("a"), 1), Put(Entity("b"), 1, "B2"))
	e.WantRecord(Entity("a"), 0, "")
	e.WantRecord(Entity("b"), 2, "B2")
	e.WantRecord(Entity("c"), 1, "C")
}

func catalogNamespaces(e *Env) {
	name := store.Key{Namespace: store.Registry, Kind: store.KindNamespace, ID: "blue"}
	id := store.Key{Namespace: store.Registry, Kind: store.KindNamespaceID, ID: "n"}
	audit := store.Key{Namespace: "n", Kind: store.KindAudit, ID: "0001", Sub: "blue"}
	other := store.Key{Namespace: "m", Kind: store.KindSystem}
	e.Commit(Put(name, 0, "1"), Put(id, 0, "1"), Put(audit, 0, "1"))
	conflicts(e, audit, 1, 0, Put(name, 1, "2"), Put(other, 0, "2"), Put(audit, 0, "2"))
	conflicts(e, name, 1, 0, Put(audit, 1, "2"), Put(other, 0, "2"), Put(name, 0, "2"))
	e.WantRecord(name, 1, "1")
	e.WantRecord(id, 1, "1")
	e.WantRecord(audit, 1, "1")
	e.WantRecord(other, 0, "")
}

// catalogChecks checks that a commit can assert a record's version, or its absence, without changing the record.
func catalogChecks(e *Env) {
	check := func(k store.Key, version uint64) store.Write {
		w := Put(k, version, "never written")
		w.Check = true
		return w
	}
	a, b, c := Entity("a"), Entity("b"), Entity("c")
	e.Commit(Put(a, 0, "A"))
	conflicts(e, a, 1, 2, check(a, 2), Put(b, 0, "B"))
	conflicts(e, a, 1, 0, Put(b, 0, "B"), check(a, 0))
	conflicts(e, c, 0, 1, check(c, 1), Put(b, 0, "B"))
	e.WantRecord(b, 0, "")
	e.Commit(check(a, 1), check(c, 0), Put(b, 0, "B"))
	e.WantRecord(a, 1, "A")
	e.WantRecord(b, 1, "B")
	e.WantRecord(c, 0, "")
	other := store.Key{Namespace: "m", Kind: store.KindSystem}
	e.Commit(Put(other, 0, "M"))
	before := e.Get(other).Epoch
	e.Commit(check(other, 1), Put(b, 1, "B2"))
	if after := e.Get(other).Epoch; after != before {
		e.Fatalf("a check raised the epoch of its namespace from %d to %d", before, after)
	}
	bad := check(b, 2)
	bad.Delete = true
	e.CommitFails(store.ErrInvalid, bad)
}

func catalogDeletes(e *Env) {
	k := Entity("alice")
	for range 3 {
		e.Commit(Put(k, 0, "a"))
		e.WantRecord(k, 1, "a")
		e.Commit(Put(k, 1, "b"))
		e.Commit(Del(k, 2))
		e.WantRecord(k, 0, "")
		conflicts(e, k, 0, 2, Put(k, 2, "x"))
		conflicts(e, k, 0, 2, Del(k, 2))
		if left := e.Pages(store.Query{Namespace: "n", Kind: store.KindEntity}); len(left) > 0 {
			e.Fatalf("a deleted record is listed: %v", left)
		}
	}
}

func catalogExpiry(e *Env) {
	k, lasting := Entity("alice"), Entity("bob")
	w := Put(k, 0, "a")
	w.Record.Expires = e.Clock.Now().Add(time.Minute)
	e.Commit(w, Put(lasting, 0, "b"))
	e.Clock.Advance(time.Minute - time.Nanosecond)
	e.WantRecord(k, 1, "a")
	if r := e.Record(k); !r.Expires.Equal(w.Record.Expires) {
		e.Fatalf("expires %v, want %v", r.Expires, w.Record.Expires)
	}
	e.Clock.Advance(2 * time.Nanosecond)
	e.WantRecord(k, 0, "")
	if left := e.Pages(store.Query{Namespace: "n", Kind: store.KindEntity}); len(left) != 1 || left[0].Key != lasting {
		e.Fatalf("listed after one expired: %v", left)
	}
	conflicts(e, k, 0, 1, Put(k, 1, "x"))
	conflicts(e, k, 0, 1, Put(lasting, 1, "x"), Del(k, 1))
	e.WantRecord(lasting, 1, "b")
	w.Record.Expires = e.Clock.Now().Add(time.Minute)
	e.Commit(w)
	e.WantRecord(k, 1, "a")
	e.Commit(Put(k, 1, "for good"))
	e.Clock.Advance(time.Hour)
	e.WantRecord(k, 2, "for good")
}

func catalogMistakes(e *Env) {
	k := Entity("alice")
	e.CommitFails(store.ErrInvalid, Put(k, 0, "a"), Put(k, 0, "b"))
	e.CommitFails(store.ErrInvalid, Put(k, 0, "a"), Put(Entity("bob"), 0, "b"), Del(k, 1))
	e.CommitFails(store.ErrInvalid, Put(Entity("bob"), 0, "b"), Put(k, 0, string(make([]byte, store.MaxValue+1))))
	many := make([]store.Write, store.MaxWrites+1)
	for i := range many {
		many[i] = Put(Entity(fmt.Sprint("entity-", i)), 0, "x")
	}
	e.CommitFails(store.ErrInvalid, many...)
	if all := e.Pages(store.Query{Namespace: "n", Kind: store.KindEntity}); len(all) > 0 {
		e.Fatalf("an invalid commit wrote %v", all)
	}
	e.Commit(many[1:]...)
	if all := e.Pages(store.Query{Namespace: "n", Kind: store.KindEntity}); len(all) != store.MaxWrites {
		e.Fatalf("%d records, want %d", len(all), store.MaxWrites)
	}
	var bound *store.BoundError
	err := e.Store.Commit(e.Context(), many...)
	if !errors.As(err, &bound) || bound.Max != store.MaxWrites || bound.Have != store.MaxWrites+1 {
		e.Fatalf("error %v, want a bound of %d", err, store.MaxWrites)
	}
}

func catalogLarge(e *Env) {
	value := bytes.Repeat([]byte{0, 0xff, '\n', '"'}, store.MaxValue/4)
	e.Commit(store.Write{Record: store.Record{Key: Entity("alice"), Value: value}})
	if r := e.Record(Entity("alice")); !bytes.Equal(r.Value, value) {
		e.Fatalf("%d bytes of value came back as %d others", len(value), len(r.Value))
	}
	all := e.Pages(store.Query{Namespace: "n", Kind: store.KindEntity})
	if len(all) != 1 || !bytes.Equal(all[0].Value, value) {
		e.Fatalf("the list does not have the value")
	}
	writes := make([]store.Write, store.MaxCommit/store.MaxValue)
	for i := range writes {
		k := store.Key{
			Namespace: "n", Kind: store.KindEntityLimits, Sub: strings.Repeat("#", store.MaxID),
			ID: strings.Repeat("/", store.MaxID-2) + fmt.Sprintf("%02d", i),
		}
		writes[i] = store.Write{Record: store.Record{Key: k, Value: value}}
	}
	e.CommitFails(store.ErrInvalid, slices.Concat(writes, []store.Write{Put(Entity("bob"), 0, "x")})...)
	e.Commit(writes...)
	if all := e.Pages(store.Query{Namespace: "n", Kind: store.KindEntityLimits}); len(all) != len(writes) {
		e.Fatalf("%d records, want %d", len(all), len(writes))
	}
}

func catalogShared(e *Env) {
	value := []byte("before")
	e.Commit(store.Write{Record: store.Record{Key: Entity("alice"), Value: value}})
	copy(value, "during")
	e.WantRecord(Entity("alice"), 1, "before")
	e.Commit(store.Write{Record: store.Record{Key: Entity("alice"), Version: 1, Value: value}})
	copy(value, "after!")
	e.WantRecord(Entity("alice"), 2, "during")
}

func catalogPeer(e *Env) {
	k, p := Entity("alice"), e.Peer()
	e.Commit(Put(k, 0, "a"))
	p.WantRecord(k, 1, "a")
	p.Commit(Put(k, 1, "b"))
	conflicts(e, k, 2, 1, Put(k, 1, "x"))
	e.WantRecord(k, 2, "b")
	if a, b := e.Get(k).Epoch, p.Get(k).Epoch; a != b {
		e.Fatalf("epochs %d and %d of the same records", a, b)
	}
}

// increments counts in two records from many goroutines, both or none each time.
func increments(e *Env, clients ...store.Store) {
	e.Helper()
	a, b := Entity("a"), Entity("b")
	n := e.Some(50)
	var done atomic.Int64
	e.Each(6, func(i int) {
		s := clients[i%len(clients)]
		for range n {
			got, err := s.Get(e.Context(), a, b)
			if err != nil {
				e.Errorf("get: %v", err)
				return
			}
			x, y := got.Records[0], got.Records[1]
			runtime.Gosched() // let others in between
			err = s.Commit(e.Context(),
				store.Write{Record: store.Record{Key: a, Version: x.Version, Value: fmt.Append(nil, x.Version+1)}},
				store.Write{Record: store.Record{Key: b, Version: y.Version, Value: fmt.Append(nil, y.Version+1)}})
			switch {
			case err == nil:
				done.Add(1)
			case !errors.Is(err, store.ErrConflict):
				e.Errorf("commit: %v", err)
			}
		}
	})
	v := uint64(done.Load())
	if v == 0 {
		e.Fatalf("nobody succeeded")
	}
	e.WantRecord(a, v, fmt.Sprint(v))
	e.WantRecord(b, v, fmt.Sprint(v))
}
