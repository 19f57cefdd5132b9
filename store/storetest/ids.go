package storetest

import (
	"fmt"
	"strings"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

func idScenarios() []scenario {
	return []scenario{
		{name: "never collide", run: each(idCollide)},
		{name: "travel unchanged", run: each(idUnchanged)},
		{name: "limit names", run: each(idLimits)},
		{name: "in the catalog", aside: true, run: each(idCatalog)},
		{name: "in settles", run: each(idSettles)},
	}
}

// oddIDs are legal ids that a careless key builder, expression or pattern misinterprets.
var oddIDs = []string{
	"a", "A", "a/b", "b/c", "c", "a#b", "a##b", "#", "/", "//", "a/", "/a", "openai/gpt-4o", "a b", " a", "a ", "%",
	"%2F",
	"a%2Fb", "a%b", "%%", "+", "a+b", "*", "?", "[a]", "{a}", ":", "a:b", "::", ".", "..", "../a", "~", "\\", "a\\b",
	"'", "\"", "`", "$a",
	"${a}", "&amp;", "<a>", "|", "^", "!", "@", "=", ",", ";", "_", "__", "-", "--", "a-b", "a_b", "NULL", "nil", "0",
	"00", "-1", "1e9",
	"é", "e\u0301", "ß", "ss", "日本", "日", "本", "𝔘", "🙂", "ÿ", "#STATE", "BUCKET#a#b#0", "n/BUCKET", "ttl",
	strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("é", 128), strings.Repeat("🙂", 64),
	strings.Repeat("/", 256),
}

// oddBuckets are buckets whose parts become equal when they are joined with some separator.
func oddBuckets() []store.Bucket {
	var all []store.Bucket
	for _, id := range oddIDs {
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

func idCollide(e *env) {
	l, all := still("rpm", 1_000_000), oddBuckets()
	for i, b := range all {
		e.allow(debit(b, charge(l, int64(i+1))))
	}
	snap := e.peek(all...)
	born := map[uint64]store.Bucket{}
	for i, st := range snap.States {
		m := reckon.Find(st, l)
		if m == nil {
			e.Fatalf("%v is gone", all[i])
		}
		if got := reckon.Outstanding(l, m.Level, snap.At); got != int64(i+1)*tok {
			e.Errorf("%v: %d millitokens outstanding, want %d", all[i], got, (i+1)*tok)
		}
		if other, ok := born[st.ID]; ok {
			e.Errorf("%v and %v have the same id", other, all[i])
		}
		born[st.ID] = all[i]
	}
	e.forget(all[0])
	for _, b := range all[1:4] {
		if st, _ := e.state(b); st.ID == 0 {
			e.Errorf("to forget %v made %v go", all[0], b)
		}
	}
}

func idUnchanged(e *env) {
	l, want := still("rpm", 10), map[store.Bucket]bool{}
	for _, b := range oddBuckets() {
		if b.Namespace == "n" {
			want[b] = true
			e.allow(debit(b, charge(l, 1)))
		}
	}
	for _, b := range e.bucketPages(store.BucketQuery{Namespace: "n", Max: 7}) {
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
func idLimits(e *env) {
	b := bkt("alice", "api")
	names := []string{
		"ttl", "id", "at", "wc", "sc", "e", "L_x", "x", "D_x", "R_x", "P_x", "l", "PK", "SK", "#l", ":l", "name",
		"size", "and",
		"rpm", "RPM", "r.p.m", "r-p-m", "r p m", "r/p/m", "r:p:m", "tokens%", "日本", "é", "0", "1", "null", "level",
		"_", "$",
	}
	charges := make([]store.Charge, len(names))
	for i, n := range names {
		charges[i] = charge(still(n, 100), int64(i+1))
	}
	e.allow(debit(b, charges...))
	out := e.allow(debit(b, charges...))
	for i, n := range names {
		if out.Levels[i].Limit.Name != n {
			e.Fatalf("level %d is of %q, want %q", i, out.Levels[i].Limit.Name, n)
		}
		e.wantTokens(b, charges[i].Limit, 100-2*int64(i+1))
	}
}

func idCatalog(e *env) {
	want := map[store.Key]string{}
	for i, id := range oddIDs {
		for _, k := range []store.Key{
			{Namespace: "n", Kind: store.KindEntityLimits, ID: id, Sub: "c"},
			{Namespace: "n", Kind: store.KindEntityLimits, ID: "z", Sub: id},
			{Namespace: "n", Kind: store.KindEntity, ID: id},
			{Namespace: "n", Kind: store.KindResourceLimits, ID: id},
		} {
			want[k] = fmt.Sprint(i, k)
			e.commit(put(k, 0, want[k]))
		}
	}
	for k, v := range want {
		if r := e.record(k); string(r.Value) != v || r.Key != k || r.Version != 1 {
			e.Errorf("%v holds version %d of %q", k, r.Version, r.Value)
		}
	}
	for _, kind := range []store.Kind{store.KindEntityLimits, store.KindEntity, store.KindResourceLimits} {
		for _, r := range e.pages(store.Query{Namespace: "n", Kind: kind, Max: 7}) {
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

func idSettles(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 1000)
	for _, id := range oddIDs {
		s := store.Settle{Debits: []store.Debit{debit(b, charge(l, 1))}, ID: id, Expires: e.soon()}
		if _, err := e.store.Settle(e.Context(), s); err != nil {
			e.Fatalf("settle %q: %v", id, err)
		}
		e.settleFails(store.ErrSettled, s)
	}
	e.wantTokens(b, l, int64(1000-len(oddIDs)))
}
