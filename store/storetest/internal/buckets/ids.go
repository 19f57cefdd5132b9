package buckets

import (
	"fmt"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

func idScenarios() []Scenario {
	return []Scenario{
		{Name: "never collide", Run: OnStore(idCollide)},
		{Name: "travel unchanged", Run: OnStore(idUnchanged)},
		{Name: "limit names", Run: OnStore(idLimits)},
		{Name: "in the catalog", Aside: true, Run: OnStore(idCatalog)},
		{Name: "in settles", Run: OnStore(idSettles)},
	}
}

// oddBuckets are buckets whose parts become equal when they are joined with some separator.
func oddBuckets() []store.Bucket {
	var all []store.Bucket
	for _, id := range OddIDs {
		all = append(all,
			store.Bucket{Namespace: "n", Entity: id, Resource: "c"},
			store.Bucket{Namespace: "n", Entity: "z", Resource: id})
	}
	for _, sep := range []string{"/", "#", ":", "|", " ", "%", ".", "\\", "-", "_", ",", "%2F"} {
		all = append(all,
			store.Bucket{Namespace: "m", Entity: "a" + sep + "b", Resource: "c"},
			store.Bucket{Namespace: "m", Entity: "a", Resource: "b" + sep + "c"},
			store.Bucket{Namespace: "m" + sep + "a", Entity: "b", Resource: "c"},
			store.Bucket{Namespace: "m", Entity: "a" + sep, Resource: sep + "c"},
			store.Bucket{Namespace: "m", Entity: "a" + sep + sep, Resource: "c"},
			store.Bucket{Namespace: "m", Entity: "a", Resource: sep + sep + "c"})
	}
	return all
}

func idCollide(e *Env) {
	l, all := Still("rpm", 1_000_000), oddBuckets()
	for i, b := range all {
		e.Allow(Debit(b, Charge(l, int64(i+1))))
	}
	snap := e.Peek(all...)
	born := map[uint64]store.Bucket{}
	for i, st := range snap.States {
		m := reckon.Find(st, l)
		if m == nil {
			e.Fatalf("%v is gone", all[i])
		}
		if got := reckon.Outstanding(l, m.Level, snap.At); got != int64(i+1)*Token {
			e.Errorf("%v: %d millitokens outstanding, want %d", all[i], got, (i+1)*Token)
		}
		if other, ok := born[st.ID]; ok {
			e.Errorf("%v and %v have the same id", other, all[i])
		}
		born[st.ID] = all[i]
	}
	e.Forget(all[0])
	for _, b := range all[1:4] {
		if st, _ := e.State(b); st.ID == 0 {
			e.Errorf("to forget %v made %v go", all[0], b)
		}
	}
}

func idUnchanged(e *Env) {
	l, want := Still("rpm", 10), map[store.Bucket]bool{}
	for _, b := range oddBuckets() {
		if b.Namespace == "n" {
			want[b] = true
			e.Allow(Debit(b, Charge(l, 1)))
		}
	}
	for _, b := range bucketPages(e, store.BucketQuery{Namespace: "n", Max: 7}) {
		if !want[b] {
			e.Errorf("listed %q %q twice, or it was never charged", b.Entity, b.Resource)
		}
		delete(want, b)
	}
	for b := range want {
		e.Errorf("%q %q is not listed", b.Entity, b.Resource)
	}
}

// idLimits uses names that a driver uses itself, or words of its query language.
func idLimits(e *Env) {
	b := Bucket("alice", "api")
	names := []string{
		"ttl", "id", "at", "wc", "sc", "e", "L_x", "x", "D_x", "R_x", "P_x", "l", "PK", "SK", "#l", ":l", "name",
		"size", "and",
		"rpm", "RPM", "r.p.m", "r-p-m", "r p m", "r/p/m", "r:p:m", "tokens%", "日本", "é", "0", "1", "null", "level",
		"_", "$",
	}
	charges := make([]store.Charge, len(names))
	for i, n := range names {
		charges[i] = Charge(Still(n, 100), int64(i+1))
	}
	e.Allow(Debit(b, charges...))
	out := e.Allow(Debit(b, charges...))
	for i, n := range names {
		if out.Levels[i].Limit.Name != n {
			e.Fatalf("level %d is of %q, want %q", i, out.Levels[i].Limit.Name, n)
		}
		e.WantTokens(b, charges[i].Limit, 100-2*int64(i+1))
	}
}

func idCatalog(e *Env) {
	want := map[store.Key]string{}
	for i, id := range OddIDs {
		for _, k := range []store.Key{
			{Namespace: "n", Kind: store.KindEntityLimits, ID: id, Sub: "c"},
			{Namespace: "n", Kind: store.KindEntityLimits, ID: "z", Sub: id},
			{Namespace: "n", Kind: store.KindEntity, ID: id},
			{Namespace: "n", Kind: store.KindResourceLimits, ID: id},
		} {
			want[k] = fmt.Sprint(i, k)
			e.Commit(Put(k, 0, want[k]))
		}
	}
	for k, v := range want {
		if r := e.Record(k); string(r.Value) != v || r.Key != k || r.Version != 1 {
			e.Errorf("%v holds version %d of %q", k, r.Version, r.Value)
		}
	}
	for _, kind := range []store.Kind{store.KindEntityLimits, store.KindEntity, store.KindResourceLimits} {
		for _, r := range e.Pages(store.Query{Namespace: "n", Kind: kind, Max: 7}) {
			if want[r.Key] != string(r.Value) {
				e.Errorf("%v listed with %q, want %q", r.Key, r.Value, want[r.Key])
			}
			delete(want, r.Key)
		}
	}
	for k := range want {
		e.Errorf("%v is not listed", k)
	}
}

func idSettles(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 1000)
	for _, id := range OddIDs {
		s := store.Settle{Debits: []store.Debit{Debit(b, Charge(l, 1))}, ID: id, Expires: e.Soon()}
		if _, err := e.Store.Settle(e.Context(), s); err != nil {
			e.Fatalf("settle %q: %v", id, err)
		}
		e.SettleFails(store.ErrSettled, s)
	}
	e.WantTokens(b, l, int64(1000-len(OddIDs)))
}
