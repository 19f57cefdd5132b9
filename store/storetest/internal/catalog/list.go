package catalog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

func listScenarios() []Scenario {
	return []Scenario{
		{Name: "filters", Run: OnStore(listFilters)},
		{Name: "by parent", Run: OnStore(listParent)},
		{Name: "by prefix", Run: OnStore(listPrefix)},
		{Name: "order", Run: OnStore(listOrder)},
		{Name: "pages of every size", Run: OnStore(listPages)},
		{Name: "page sizes", Run: OnStore(listSizes)},
		{Name: "while records come and go", Run: OnStore(listMoving)},
		{Name: "while others write", Run: OnStore(listConcurrent)},
		{Name: "cursor of a deleted record", Run: OnStore(listDeletedCursor)},
		{Name: "cursors of others", Run: OnStore(listCursors)},
		{Name: "forged cursors", Run: OnStore(listForged)},
		{Name: "random", Run: listRandom},
	}
}

func byID(a, b store.Record) int {
	return cmp.Or(cmp.Compare(a.Key.ID, b.Key.ID), cmp.Compare(a.Key.Sub, b.Key.Sub))
}

// wantPages checks a whole list against the records that match, at several page sizes.
func wantPages(e *Env, q store.Query, from []store.Record) {
	e.Helper()
	var want []store.Record
	for _, r := range from {
		k := r.Key
		if k.Namespace == q.Namespace && k.Kind == q.Kind && (q.ID == "" || q.ID == k.ID) &&
			(q.Sub == "" || q.Sub == k.Sub) && (q.Parent == "" || q.Parent == r.Parent) &&
			(q.ID != "" || strings.HasPrefix(k.ID, q.Prefix)) {
			want = append(want, r)
		}
	}
	slices.SortFunc(want, byID)
	if q.Reverse {
		slices.Reverse(want)
	}
	for _, size := range []int{0, 1, 2, 3, len(want), len(want) + 1} {
		q.Max = size
		got := e.Pages(q)
		if len(got) != len(want) {
			e.Fatalf("list %+v: %d records, want %d", q, len(got), len(want))
		}
		for i, r := range got {
			w := want[i]
			if r.Key != w.Key || !bytes.Equal(r.Value, w.Value) || r.Parent != w.Parent || r.Version != 1 {
				e.Fatalf("list %+v: record %d is %+v, want %+v", q, i, r, w)
			}
		}
	}
}

// fillWith writes new records.
func fillWith(e *Env, records ...store.Record) {
	e.Helper()
	for chunk := range slices.Chunk(records, store.MaxWrites) {
		var writes []store.Write
		for _, r := range chunk {
			writes = append(writes, store.Write{Record: r})
		}
		e.Commit(writes...)
	}
}

func limitsRecord(id, sub, parent string) store.Record {
	return store.Record{
		Key:    store.Key{Namespace: "n", Kind: store.KindEntityLimits, ID: id, Sub: sub},
		Parent: parent, Value: []byte(id + " on " + sub),
	}
}

func listFilters(e *Env) {
	var all []store.Record
	for i, id := range []string{"a", "ab", "b", "c", "a/b", "A"} {
		for j, sub := range []string{"", "api", "a", "z"} {
			all = append(all, limitsRecord(id, sub, []string{"", "p", "q"}[(i+j)%3]))
		}
	}
	fillWith(e, all...)
	fillWith(e, store.Record{Key: Entity("a")}, store.Record{
		Key: store.Key{Namespace: "m", Kind: store.KindEntityLimits, ID: "a", Sub: "a"},
	})
	for _, reverse := range []bool{false, true} {
		for _, id := range []string{"", "a", "a/b", "none"} {
			for _, sub := range []string{"", "api", "none"} {
				for _, parent := range []string{"", "p", "none"} {
					wantPages(e,
						store.Query{
							Namespace: "n", Kind: store.KindEntityLimits, ID: id, Sub: sub, Parent: parent,
							Reverse: reverse,
						},
						all,
					)
				}
			}
		}
	}
	wantPages(e, store.Query{Namespace: "n", Kind: store.KindSystem}, nil)
	wantPages(e, store.Query{Namespace: "none", Kind: store.KindEntityLimits}, nil)
}

// listParent checks that the index by parent follows the writes.
func listParent(e *Env) {
	q := store.Query{Namespace: "n", Kind: store.KindEntity, Parent: "p"}
	children := func() string {
		var s strings.Builder
		for _, r := range e.Pages(q) {
			s.WriteString(r.Key.ID)
		}
		return s.String()
	}
	child := func(id, parent string, version uint64) {
		w := Put(Entity(id), version, "")
		w.Record.Parent = parent
		e.Commit(w)
	}
	child("b", "p", 0)
	child("a", "p", 0)
	child("c", "q", 0)
	if got := children(); got != "ab" {
		e.Fatalf("children %q, want ab", got)
	}
	child("a", "q", 1)
	child("c", "p", 1)
	child("b", "", 1)
	if got := children(); got != "c" {
		e.Fatalf("children %q, want c", got)
	}
	e.Commit(Del(Entity("c"), 2))
	child("b", "p", 2)
	if got := children(); got != "b" {
		e.Fatalf("children %q, want b", got)
	}
}

// listPrefix checks that a prefix applies to the ID alone, bytewise, whatever follows, and in lists of every kind.
func listPrefix(e *Env) {
	ids := []string{
		"a", "ab", "ab/c", "aB", "ac", "b", "A", "ab#", "ab\U0010ffffz", "\U0010ffff", "\U0010fffe", "\ud7ff", "\ue000",
		"日本", "日",
	}
	for _, kind := range []store.Kind{store.KindEntity, store.KindEntityLimits, store.KindAudit, store.KindNamespace} {
		var all []store.Record
		subs, prefixes := []string{""}, []string{"a"}
		if kind == store.KindEntityLimits || kind == store.KindAudit {
			subs = []string{"ab", "b"}
		}
		if kind == store.KindEntity {
			prefixes = []string{"a", "ab\U0010ffff", "\U0010ffff", "\ud7ff", "日", "日本語"}
		}
		for i, id := range ids {
			for _, sub := range subs {
				all = append(all, store.Record{
					Key: store.Key{Namespace: "n", Kind: kind, ID: id, Sub: sub}, Parent: []string{"", "ab"}[i%2],
				})
			}
		}
		fillWith(e, all...)
		for _, prefix := range prefixes {
			wantPages(e, store.Query{Namespace: "n", Kind: kind, Prefix: prefix}, all)
		}
		for _, q := range []store.Query{{Reverse: true}, {Parent: "ab"}, {Sub: "ab"}, {ID: "b"}} {
			q.Namespace, q.Kind, q.Prefix = "n", kind, "a"
			wantPages(e, q, all)
		}
	}
}

// listOrder checks the order: bytewise by ID, then Sub; not by the two concatenated, nor by any language's rules.
func listOrder(e *Env) {
	var all []store.Record
	ids := []string{
		"a", "a!", "a#", "a/", "a0", "aa", "a a", "ä", "z", "Z", "é", "e\u0301", "日", "🙂", "~", "!", "0", "00", "10",
		"9", "#", "/", "%",
		"\uffee", "𝔘", "ab", "a\u00e9", "a~",
	}
	for _, id := range ids {
		for _, sub := range []string{"", "b", "!", "/", "é", "~"} {
			all = append(all, limitsRecord(id, sub, ""))
		}
	}
	fillWith(e, all...)
	for _, reverse := range []bool{false, true} {
		wantPages(e, store.Query{Namespace: "n", Kind: store.KindEntityLimits, Reverse: reverse}, all)
	}
}

func listPages(e *Env) {
	var all []store.Record
	for i := range 13 {
		all = append(all, limitsRecord(fmt.Sprint("id-", i/3), fmt.Sprint("sub-", i%3), "p"))
	}
	fillWith(e, all...)
	slices.SortFunc(all, byID)
	for size := 1; size <= len(all)+1; size++ {
		for _, q := range []store.Query{{}, {Reverse: true}, {Parent: "p"}} {
			q.Namespace, q.Kind, q.Max = "n", store.KindEntityLimits, size
			var got []store.Record
			for {
				p := e.Page(q)
				got = append(got, p.Records...)
				if p.Next == "" {
					break
				}
				q.After = p.Next
			}
			if q.Reverse {
				slices.Reverse(got)
			}
			if !slices.EqualFunc(got, all, func(a, b store.Record) bool { return a.Key == b.Key }) {
				e.Fatalf("pages of %d: %v", size, got)
			}
		}
	}
}

func listSizes(e *Env) {
	var all []store.Record
	for i := range 1003 {
		all = append(all, store.Record{Key: Entity(fmt.Sprintf("%04d", i))})
	}
	fillWith(e, all...)
	for size, want := range map[int]int{0: 100, -1: 100, 7: 7, 1000: 1000, 5000: 1000} {
		p := e.Page(store.Query{Namespace: "n", Kind: store.KindEntity, Max: size})
		if len(p.Records) != want || p.Next == "" {
			e.Fatalf("max %d gives %d records and the cursor %q, want %d and one", size, len(p.Records), p.Next, want)
		}
	}
}

// listMoving checks that a record that exists throughout is listed once, whatever changes between pages.
func listMoving(e *Env) {
	for _, reverse := range []bool{false, true} {
		kind := map[bool]store.Kind{false: store.KindEntity, true: store.KindResourceLimits}[reverse]
		key := func(i int) store.Key { return store.Key{Namespace: "n", Kind: kind, ID: fmt.Sprintf("%03d", i)} }
		for i := 0; i < 60; i += 2 {
			e.Commit(Put(key(i), 0, "old"))
		}
		seen, gone := map[string]int{}, map[string]bool{}
		q := store.Query{Namespace: "n", Kind: kind, Reverse: reverse, Max: 7}
		for n := 0; ; n++ {
			p := e.Page(q)
			for _, r := range p.Records {
				seen[r.Key.ID]++
			}
			if q.After = p.Next; p.Next == "" {
				break
			}
			// Add some before and after the cursor, and remove some, including the one that it points to.
			for i := range 4 {
				e.Commit(Put(key((n*14+i*16)%60+1), e.Record(key((n*14+i*16)%60+1)).Version, "new"))
			}
			leaving := []store.Key{key((n*26 + 8) % 60)}
			if len(p.Records) > 0 {
				leaving = append(leaving, p.Records[len(p.Records)-1].Key)
			}
			for _, k := range leaving {
				if v := e.Record(k).Version; v > 0 {
					e.Commit(Del(k, v))
					gone[k.ID] = true
				}
			}
		}
		for i := 0; i < 60; i += 2 {
			if id := key(i).ID; seen[id] != 1 && !gone[id] || seen[id] > 1 {
				e.Fatalf("reverse %t: %s listed %d times", reverse, id, seen[id])
			}
		}
	}
}

func listConcurrent(e *Env) {
	for i := range 50 {
		e.Commit(Put(Entity(fmt.Sprintf("%03d-stays", i)), 0, "x"))
	}
	var stop atomic.Bool
	e.Each(4, func(i int) {
		if i > 0 {
			for n := 0; !stop.Load(); n++ {
				k := Entity(fmt.Sprintf("%03d-goes-%d", n*7%50, i))
				err := e.Store.Commit(e.Context(), Put(k, 0, "x"))
				if err = cmp.Or(err, e.Store.Commit(e.Context(), Del(k, 1))); err != nil {
					e.Errorf("commit: %v", err)
				}
			}
			return
		}
		defer stop.Store(true)
		for range e.Some(50) {
			last, n := "", 0
			q := store.Query{Namespace: "n", Kind: store.KindEntity, Max: 9}
			for {
				p, err := e.Store.List(e.Context(), q)
				if err != nil {
					e.Errorf("list: %v", err)
					return
				}
				for _, r := range p.Records {
					if r.Key.ID <= last {
						e.Errorf("%q listed after %q", r.Key.ID, last)
					}
					last = r.Key.ID
					if len(r.Key.ID) == len("000-stays") {
						n++
					}
				}
				if q.After = p.Next; p.Next == "" {
					break
				}
			}
			if n != 50 {
				e.Errorf("%d of 50 records listed that never moved", n)
			}
		}
	})
}

func listDeletedCursor(e *Env) {
	for _, id := range []string{"a", "b", "c", "d"} {
		e.Commit(Put(Entity(id), 0, id))
	}
	q := store.Query{Namespace: "n", Kind: store.KindEntity, Max: 2}
	q.After = e.Page(q).Next
	for _, id := range []string{"a", "b", "c", "d"} {
		e.Commit(Del(Entity(id), 1))
	}
	if p := e.Page(q); len(p.Records) != 0 || p.Next != "" {
		e.Fatalf("listed after everything was deleted: %+v", p)
	}
	e.Commit(Put(Entity("b"), 0, "again"), Put(Entity("c"), 0, "again"))
	if p := e.Page(q); len(p.Records) != 1 || p.Records[0].Key.ID != "c" {
		e.Fatalf("listed behind b: %+v", p.Records)
	}
}

// listForged checks that a client that may list some records sees no others.
func listForged(e *Env) {
	var all []store.Record
	for _, id := range []string{"alice", "bob", "bob-2", "zoe"} {
		all = append(all, limitsRecord(id, "api", "p"), limitsRecord(id, "web", "p"))
	}
	for _, id := range []string{"foreign-1", "foreign-2"} {
		r := limitsRecord(id, "api", "p")
		r.Key.Namespace = "m"
		all = append(all, r)
	}
	fillWith(e, all...)
	list := func(q store.Query) Lister {
		return func(after string) (ids []string, next string, err error) {
			q.Kind, q.Max, q.After = store.KindEntityLimits, 1, after
			page, err := e.Store.List(e.Context(), q)
			for _, r := range page.Records {
				ids = append(ids, r.Key.ID)
			}
			return ids, page.Next, err
		}
	}
	for _, reverse := range []bool{false, true} {
		Forge(e, "bob", list(store.Query{Namespace: "n", ID: "bob", Reverse: reverse}))
		Forge(e, "bob", list(store.Query{Namespace: "n", Prefix: "bob", Reverse: reverse}))
		Forge(e, "bob", list(store.Query{Namespace: "n", Prefix: "bob", Parent: "p", Reverse: reverse}))
		foreign := list(store.Query{Namespace: "m", Reverse: reverse})
		Splice(e, list(store.Query{Namespace: "n", Reverse: reverse}), foreign)
	}
}

func listCursors(e *Env) {
	var all []store.Record
	for i := range 6 {
		all = append(all, limitsRecord(fmt.Sprint("id-", i/3), fmt.Sprint("sub-", i%3), "p"))
		fillWith(e, store.Record{Key: Entity(fmt.Sprint("id-", i)), Parent: "p"})
	}
	fillWith(e, all...)
	base := store.Query{Namespace: "n", Kind: store.KindEntityLimits, Max: 2}
	fails := func(q store.Query) {
		e.Helper()
		if _, err := e.Store.List(e.Context(), q); !errors.Is(err, store.ErrBadCursor) {
			e.Errorf("list %+v: error %v, want %v", q, err, store.ErrBadCursor)
		}
	}
	for _, garbage := range []string{
		"x", "id-0", " ", "\x00", "AAAA", "!!!!", "bm90IGEgY3Vyc29y", "eyJpZCI6ImlkLTAifQ", "日本",
	} {
		q := base
		q.After = garbage
		fails(q)
	}
	next := e.Page(base).Next
	for _, change := range []func(q *store.Query){
		func(q *store.Query) { q.Namespace = "m" },
		func(q *store.Query) { q.Kind = store.KindEntity },
		func(q *store.Query) { q.ID = "id-0" },
		func(q *store.Query) { q.Prefix = "id" },
		func(q *store.Query) { q.Sub = "sub-0" },
		func(q *store.Query) { q.Parent = "p" },
		func(q *store.Query) { q.Reverse = true },
	} {
		q := base
		q.After = next
		change(&q)
		fails(q)
	}
	q := base
	q.After, q.Max = next, 3 // only the page size may change
	if p := e.Page(q); len(p.Records) != 3 || p.Records[0].Key != all[2].Key {
		e.Errorf("from the cursor on: %+v", p.Records)
	}
}

// listRandom lists random records with random queries.
func listRandom(t testing.TB, h Harness) {
	outer := Open(t, t, h, Noon)
	id := rapid.OneOf(rapid.SampledFrom(OddIDs), rapid.StringMatching(`[a-c/# %]{1,3}`))
	n := 0
	Property(t, h, func(rt *rapid.T) {
		n++
		e := *outer
		e.TB = rt
		ns := time.Duration(n).String()
		keys := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) store.Key {
			return store.Key{Namespace: ns, Kind: store.KindEntityLimits, ID: id.Draw(t, "id"), Sub: id.Draw(t, "sub")}
		}), 0, 12, rapid.ID).Draw(rt, "keys")
		var all []store.Record
		for _, k := range keys {
			all = append(all, store.Record{
				Key: k, Parent: rapid.SampledFrom([]string{"", "p", "p/q"}).Draw(rt, "parent"),
			})
		}
		fillWith(&e, all...)
		q := store.Query{Namespace: ns, Kind: store.KindEntityLimits, Reverse: rapid.Bool().Draw(rt, "reverse")}
		q.Parent = rapid.SampledFrom([]string{"", "p", "p/q"}).Draw(rt, "of")
		q.Prefix = rapid.OneOf(rapid.Just(""), id).Draw(rt, "prefix")
		wantPages(&e, q, all)
	})
}
