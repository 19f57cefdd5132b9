package env

import (
	"errors"

	"github.com/weirlimits/weir/store"
)

// Entity returns the key of an entity of namespace "n".
func Entity(id string) store.Key {
	return store.Key{Namespace: "n", Kind: store.KindEntity, ID: id}
}

// Put returns the write of a record that has a version so far; 0 if there is none.
func Put(k store.Key, version uint64, value string) store.Write {
	return store.Write{Record: store.Record{Key: k, Version: version, Value: []byte(value)}}
}

// Del returns the delete of a record that has a version.
func Del(k store.Key, version uint64) store.Write {
	return store.Write{Record: store.Record{Key: k, Version: version}, Delete: true}
}

// Commit writes records, and fails the test on an error.
func (e *Env) Commit(writes ...store.Write) {
	e.Helper()
	if err := e.Store.Commit(e.Context(), writes...); err != nil {
		e.Fatalf("commit: %v", err)
	}
}

// CommitFails checks that a commit fails with an error.
func (e *Env) CommitFails(want error, writes ...store.Write) {
	e.Helper()
	if err := e.Store.Commit(e.Context(), writes...); !errors.Is(err, want) {
		e.Fatalf("commit: error %v, want %v", err, want)
	}
}

// Get reads records.
func (e *Env) Get(keys ...store.Key) store.Got {
	e.Helper()
	got, err := e.Store.Get(e.Context(), keys...)
	if err != nil {
		e.Fatalf("get: %v", err)
	}
	if len(got.Records) != len(keys) {
		e.Fatalf("get: %d records of %d keys", len(got.Records), len(keys))
	}
	return got
}

// Record reads one record.
func (e *Env) Record(k store.Key) store.Record {
	e.Helper()
	return e.Get(k).Records[0]
}

// WantRecord checks a record; version 0 is none.
func (e *Env) WantRecord(k store.Key, version uint64, value string) {
	e.Helper()
	r := e.Record(k)
	if r.Version != version || string(r.Value) != value || version > 0 && r.Key != k {
		e.Fatalf("%v: version %d of %q (%v), want %d of %q", k, r.Version, r.Value, r.Key, version, value)
	}
}

// Page reads one page of a list.
func (e *Env) Page(q store.Query) store.Page {
	e.Helper()
	p, err := e.Store.List(e.Context(), q)
	if err != nil {
		e.Fatalf("list %+v: %v", q, err)
	}
	if len(p.Records) > store.PageSize(q.Max) {
		e.Fatalf("list %+v: %d records in a page", q, len(p.Records))
	}
	return p
}

// Pages reads a list to its end.
func (e *Env) Pages(q store.Query) []store.Record {
	e.Helper()
	var all []store.Record
	for range 10_000 {
		p := e.Page(q)
		all = append(all, p.Records...)
		if p.Next == "" {
			return all
		}
		q.After = p.Next
	}
	e.Fatalf("list %+v: no end of it", q)
	return nil
}
