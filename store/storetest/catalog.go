package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
)

func catalogScenarios() []scenario {
	hand := Caps{HandClock: true}
	return []scenario{
		{name: "versions", run: each(catalogVersions)},
		{name: "get in the order asked for", run: each(catalogOrder)},
		{name: "every kind", run: each(catalogKinds)},
		{name: "conflicts", run: each(catalogConflicts)},
		{name: "all or none", run: each(catalogAllOrNone)},
		{name: "all or none across namespaces", run: each(catalogNamespaces)},
		{name: "deletes", run: each(catalogDeletes)},
		{name: "checks", run: each(catalogChecks)},
		{name: "expiry", need: hand, run: each(catalogExpiry)},
		{name: "mistakes", run: each(catalogMistakes)},
		{name: "as large as allowed", run: each(catalogLarge)},
		{name: "values are not shared", run: each(catalogShared)},
		{name: "other clients", peer: true, run: each(catalogPeer)},
		{name: "compare and set at once", run: each(func(e *env) { e.increments(e.store) })},
		{name: "compare and set from two clients", peer: true, run: each(func(e *env) {
			e.increments(e.store, e.peer().store)
		})},
	}
}

func entity(id string) store.Key {
	return store.Key{Namespace: "n", Kind: store.KindEntity, ID: id}
}

func put(k store.Key, version uint64, value string) store.Write {
	return store.Write{Record: store.Record{Key: k, Version: version, Value: []byte(value)}}
}

func del(k store.Key, version uint64) store.Write {
	return store.Write{Record: store.Record{Key: k, Version: version}, Delete: true}
}

func (e *env) commit(writes ...store.Write) {
	e.Helper()
	if err := e.store.Commit(e.Context(), writes...); err != nil {
		e.Fatalf("commit: %v", err)
	}
}

func (e *env) commitFails(want error, writes ...store.Write) {
	e.Helper()
	if err := e.store.Commit(e.Context(), writes...); !errors.Is(err, want) {
		e.Fatalf("commit: error %v, want %v", err, want)
	}
}

// conflicts checks that a commit fails with the given conflict on one key.
func (e *env) conflicts(k store.Key, have, want uint64, writes ...store.Write) {
	e.Helper()
	err := e.store.Commit(e.Context(), writes...)
	var c *store.ConflictError
	if !errors.As(err, &c) || !errors.Is(err, store.ErrConflict) {
		e.Fatalf("commit: error %v, want a conflict", err)
	}
	if c.Key != k || c.Have != have || c.Want != want {
		e.Fatalf("conflict on %v: have %d want %d; not on %v: %d %d", c.Key, c.Have, c.Want, k, have, want)
	}
}

func (e *env) get(keys ...store.Key) store.Got {
	e.Helper()
	got, err := e.store.Get(e.Context(), keys...)
	if err != nil {
		e.Fatalf("get: %v", err)
	}
	if len(got.Records) != len(keys) {
		e.Fatalf("get: %d records of %d keys", len(got.Records), len(keys))
	}
	return got
}

func (e *env) record(k store.Key) store.Record {
	e.Helper()
	return e.get(k).Records[0]
}

func (e *env) wantRecord(k store.Key, version uint64, value string) {
	e.Helper()
	r := e.record(k)
	if r.Version != version || string(r.Value) != value || version > 0 && r.Key != k {
		e.Fatalf("%v: version %d of %q (%v), want %d of %q", k, r.Version, r.Value, r.Key, version, value)
	}
}

func catalogVersions(e *env) {
	k := entity("alice")
	e.wantRecord(k, 0, "")
	for v := range uint64(5) {
		w := put(k, v, fmt.Sprint("value ", v))
		w.Record.Parent = fmt.Sprint("parent ", v)
		e.commit(w)
		e.wantRecord(k, v+1, fmt.Sprint("value ", v))
		if r := e.record(k); r.Parent != w.Record.Parent || !r.Expires.IsZero() {
			e.Fatalf("record %+v, want that of %+v", r, w.Record)
		}
	}
	e.commit(put(k, 5, ""))
	e.wantRecord(k, 6, "")
}

func catalogOrder(e *env) {
	e.commit(put(entity("b"), 0, "B"), put(entity("a"), 0, "A"), put(entity("c"), 0, "C"))
	limits := store.Key{Namespace: "n", Kind: store.KindEntityLimits, ID: "a", Sub: "api"}
	e.commit(put(limits, 0, "L"))
	got := e.get(entity("c"), entity("x"), limits, entity("a"), entity("y"), entity("b"))
	for i, want := range []string{"C", "", "L", "A", "", "B"} {
		if r := got.Records[i]; string(r.Value) != want || (r.Version == 0) != (want == "") {
			e.Fatalf("record %d: version %d of %q, want %q", i, r.Version, r.Value, want)
		}
	}
}

// catalogKinds checks that the same id in another kind or namespace names another record.
func catalogKinds(e *env) {
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
		e.commit(put(k, 0, k.String()))
	}
	for _, k := range keys {
		e.wantRecord(k, 1, k.String())
	}
	for _, k := range keys[1:] {
		e.commit(del(k, 1))
	}
	e.wantRecord(keys[0], 1, keys[0].String())
}

func catalogConflicts(e *env) {
	k := entity("alice")
	e.conflicts(k, 0, 1, put(k, 1, "x"))
	e.conflicts(k, 0, 3, del(k, 3))
	e.commit(put(k, 0, "a"))
	e.conflicts(k, 1, 0, put(k, 0, "x"))
	e.conflicts(k, 1, 2, put(k, 2, "x"))
	e.conflicts(k, 1, 2, del(k, 2))
	e.commit(put(k, 1, "b"))
	e.conflicts(k, 2, 1, put(k, 1, "x"))
	e.conflicts(k, 2, 1, del(k, 1))
	e.wantRecord(k, 2, "b")
}

func catalogAllOrNone(e *env) {
	e.commit(put(entity("a"), 0, "A"), put(entity("b"), 0, "B"))
	before := e.get(entity("a"))
	bad := put(entity("b"), 7, "x")
	e.conflicts(entity("b"), 1, 7, put(entity("c"), 0, "C"), put(entity("a"), 1, "x"), bad)
	e.conflicts(entity("b"), 1, 7, bad, put(entity("a"), 1, "x"), put(entity("c"), 0, "C"))
	e.conflicts(entity("b"), 1, 7, del(entity("a"), 1), bad)
	e.wantRecord(entity("a"), 1, "A")
	e.wantRecord(entity("b"), 1, "B")
	e.wantRecord(entity("c"), 0, "")
	if after := e.get(entity("a")); after.Epoch != before.Epoch {
		e.Fatalf("a commit that failed raised the epoch from %d to %d", before.Epoch, after.Epoch)
	}
	e.commit(put(entity("c"), 0, "C"), del(entity("a"), 1), put(entity("b"), 1, "B2"))
	e.wantRecord(entity("a"), 0, "")
	e.wantRecord(entity("b"), 2, "B2")
	e.wantRecord(entity("c"), 1, "C")
}

func catalogNamespaces(e *env) {
	name := store.Key{Namespace: store.Registry, Kind: store.KindNamespace, ID: "blue"}
	id := store.Key{Namespace: store.Registry, Kind: store.KindNamespaceID, ID: "n"}
	audit := store.Key{Namespace: "n", Kind: store.KindAudit, ID: "0001", Sub: "blue"}
	other := store.Key{Namespace: "m", Kind: store.KindSystem}
	e.commit(put(name, 0, "1"), put(id, 0, "1"), put(audit, 0, "1"))
	e.conflicts(audit, 1, 0, put(name, 1, "2"), put(other, 0, "2"), put(audit, 0, "2"))
	e.conflicts(name, 1, 0, put(audit, 1, "2"), put(other, 0, "2"), put(name, 0, "2"))
	e.wantRecord(name, 1, "1")
	e.wantRecord(id, 1, "1")
	e.wantRecord(audit, 1, "1")
	e.wantRecord(other, 0, "")
}

// catalogChecks checks that a commit can assert a record's version, or its absence, without changing the record.
func catalogChecks(e *env) {
	check := func(k store.Key, version uint64) store.Write {
		w := put(k, version, "never written")
		w.Check = true
		return w
	}
	a, b, c := entity("a"), entity("b"), entity("c")
	e.commit(put(a, 0, "A"))
	e.conflicts(a, 1, 2, check(a, 2), put(b, 0, "B"))
	e.conflicts(a, 1, 0, put(b, 0, "B"), check(a, 0))
	e.conflicts(c, 0, 1, check(c, 1), put(b, 0, "B"))
	e.wantRecord(b, 0, "")
	e.commit(check(a, 1), check(c, 0), put(b, 0, "B"))
	e.wantRecord(a, 1, "A")
	e.wantRecord(b, 1, "B")
	e.wantRecord(c, 0, "")
	other := store.Key{Namespace: "m", Kind: store.KindSystem}
	e.commit(put(other, 0, "M"))
	before := e.get(other).Epoch
	e.commit(check(other, 1), put(b, 1, "B2"))
	if after := e.get(other).Epoch; after != before {
		e.Fatalf("a check raised the epoch of its namespace from %d to %d", before, after)
	}
	bad := check(b, 2)
	bad.Delete = true
	e.commitFails(store.ErrInvalid, bad)
}

func catalogDeletes(e *env) {
	k := entity("alice")
	for range 3 {
		e.commit(put(k, 0, "a"))
		e.wantRecord(k, 1, "a")
		e.commit(put(k, 1, "b"))
		e.commit(del(k, 2))
		e.wantRecord(k, 0, "")
		e.conflicts(k, 0, 2, put(k, 2, "x"))
		e.conflicts(k, 0, 2, del(k, 2))
		if left := e.pages(store.Query{Namespace: "n", Kind: store.KindEntity}); len(left) > 0 {
			e.Fatalf("a deleted record is listed: %v", left)
		}
	}
}

func catalogExpiry(e *env) {
	k, lasting := entity("alice"), entity("bob")
	w := put(k, 0, "a")
	w.Record.Expires = e.clock.Now().Add(time.Minute)
	e.commit(w, put(lasting, 0, "b"))
	e.clock.Advance(time.Minute - time.Nanosecond)
	e.wantRecord(k, 1, "a")
	if r := e.record(k); !r.Expires.Equal(w.Record.Expires) {
		e.Fatalf("expires %v, want %v", r.Expires, w.Record.Expires)
	}
	e.clock.Advance(2 * time.Nanosecond)
	e.wantRecord(k, 0, "")
	if left := e.pages(store.Query{Namespace: "n", Kind: store.KindEntity}); len(left) != 1 || left[0].Key != lasting {
		e.Fatalf("listed after one expired: %v", left)
	}
	e.conflicts(k, 0, 1, put(k, 1, "x"))
	e.conflicts(k, 0, 1, put(lasting, 1, "x"), del(k, 1))
	e.wantRecord(lasting, 1, "b")
	w.Record.Expires = e.clock.Now().Add(time.Minute)
	e.commit(w)
	e.wantRecord(k, 1, "a")
	e.commit(put(k, 1, "for good"))
	e.clock.Advance(time.Hour)
	e.wantRecord(k, 2, "for good")
}

func catalogMistakes(e *env) {
	k := entity("alice")
	e.commitFails(store.ErrInvalid, put(k, 0, "a"), put(k, 0, "b"))
	e.commitFails(store.ErrInvalid, put(k, 0, "a"), put(entity("bob"), 0, "b"), del(k, 1))
	e.commitFails(store.ErrInvalid, put(entity("bob"), 0, "b"), put(k, 0, string(make([]byte, store.MaxValue+1))))
	many := make([]store.Write, store.MaxWrites+1)
	for i := range many {
		many[i] = put(entity(fmt.Sprint("entity-", i)), 0, "x")
	}
	e.commitFails(store.ErrInvalid, many...)
	if all := e.pages(store.Query{Namespace: "n", Kind: store.KindEntity}); len(all) > 0 {
		e.Fatalf("an invalid commit wrote %v", all)
	}
	e.commit(many[1:]...)
	if all := e.pages(store.Query{Namespace: "n", Kind: store.KindEntity}); len(all) != store.MaxWrites {
		e.Fatalf("%d records, want %d", len(all), store.MaxWrites)
	}
}

func catalogLarge(e *env) {
	value := bytes.Repeat([]byte{0, 0xff, '\n', '"'}, store.MaxValue/4)
	e.commit(store.Write{Record: store.Record{Key: entity("alice"), Value: value}})
	if r := e.record(entity("alice")); !bytes.Equal(r.Value, value) {
		e.Fatalf("%d bytes of value came back as %d others", len(value), len(r.Value))
	}
	all := e.pages(store.Query{Namespace: "n", Kind: store.KindEntity})
	if len(all) != 1 || !bytes.Equal(all[0].Value, value) {
		e.Fatalf("the list does not have the value")
	}
}

func catalogShared(e *env) {
	value := []byte("before")
	e.commit(store.Write{Record: store.Record{Key: entity("alice"), Value: value}})
	copy(value, "during")
	e.wantRecord(entity("alice"), 1, "before")
	e.commit(store.Write{Record: store.Record{Key: entity("alice"), Version: 1, Value: value}})
	copy(value, "after!")
	e.wantRecord(entity("alice"), 2, "during")
}

func catalogPeer(e *env) {
	k, p := entity("alice"), e.peer()
	e.commit(put(k, 0, "a"))
	p.wantRecord(k, 1, "a")
	p.commit(put(k, 1, "b"))
	e.conflicts(k, 2, 1, put(k, 1, "x"))
	e.wantRecord(k, 2, "b")
	if a, b := e.get(k).Epoch, p.get(k).Epoch; a != b {
		e.Fatalf("epochs %d and %d of the same records", a, b)
	}
}

// increments counts in two records from many goroutines, both or none each time.
func (e *env) increments(clients ...store.Store) {
	e.Helper()
	a, b := entity("a"), entity("b")
	n := e.some(50)
	var done atomic.Int64
	e.each(6, func(i int) {
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
	e.wantRecord(a, v, fmt.Sprint(v))
	e.wantRecord(b, v, fmt.Sprint(v))
}
