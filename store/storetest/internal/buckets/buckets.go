package buckets

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

func bucketScenarios() []Scenario {
	return []Scenario{
		{Name: "filters and order", Aside: true, Run: OnStore(bucketFilters)},
		{Name: "pages of every size", Aside: true, Run: OnStore(bucketPagesOfSize)},
		{Name: "states", Run: OnStore(bucketStates)},
		{Name: "while buckets come and go", Run: OnStore(bucketMoving)},
		{Name: "while others debit", Run: OnStore(bucketConcurrent)},
		{Name: "cursors of others", Run: OnStore(bucketCursors)},
		{Name: "forged cursors", Run: OnStore(bucketForged)},
		{Name: "peek", Run: OnStore(bucketPeek)},
		{Name: "reads make nothing", Run: OnStore(bucketReads)},
		{Name: "forget", Run: OnStore(bucketForget)},
	}
}

func bucketPage(e *Env, q store.BucketQuery) store.BucketPage {
	e.Helper()
	p, err := e.Store.Buckets(e.Context(), q)
	if err != nil {
		e.Fatalf("buckets %+v: %v", q, err)
	}
	if len(p.States) > store.PageSize(q.Max) {
		e.Fatalf("buckets %+v: %d in a page", q, len(p.States))
	}
	return p
}

// bucketPages follows a list of buckets to its end.
func bucketPages(e *Env, q store.BucketQuery) []store.Bucket {
	e.Helper()
	var all []store.Bucket
	for range 10_000 {
		p := bucketPage(e, q)
		for _, st := range p.States {
			all = append(all, st.Bucket)
		}
		if p.Next == "" {
			return all
		}
		q.After = p.Next
	}
	e.Fatalf("buckets %+v: no end of them", q)
	return nil
}

func byEntity(a, b store.Bucket) int {
	return cmp.Or(cmp.Compare(a.Entity, b.Entity), cmp.Compare(a.Resource, b.Resource))
}

// populate charges buckets so that they are not full.
func populate(e *Env, namespace string, entities, resources []string) []store.Bucket {
	e.Helper()
	var all []store.Bucket
	for _, en := range entities {
		for _, re := range resources {
			b := store.Bucket{Namespace: namespace, Entity: en, Resource: re}
			e.Allow(Debit(b, Charge(Still("rpm", 10), 1)))
			all = append(all, b)
		}
	}
	return all
}

func bucketFilters(e *Env) {
	all := populate(e, "n", []string{
		"b", "a", "c", "ab", "a b", "a/b", "B", "é", "日本",
	}, []string{"api", "a", "z", "gpt-4o/mini"})
	populate(e, "m", []string{"a", "x"}, []string{"api"})
	slices.SortFunc(all, byEntity)
	for _, en := range []string{"", "a", "a/b", "x", "日本"} {
		for _, re := range []string{"", "api", "gpt-4o/mini", "none"} {
			var want []store.Bucket
			for _, b := range all {
				if (en == "" || en == b.Entity) && (re == "" || re == b.Resource) {
					want = append(want, b)
				}
			}
			for _, size := range []int{0, 1, 5, 1000} {
				q := store.BucketQuery{Namespace: "n", Entity: en, Resource: re, Max: size}
				if got := bucketPages(e, q); !slices.Equal(got, want) {
					e.Fatalf("buckets %+v: %v, want %v", q, got, want)
				}
			}
		}
	}
	if got := bucketPages(e, store.BucketQuery{Namespace: "none"}); len(got) > 0 {
		e.Fatalf("buckets of a namespace that nobody used: %v", got)
	}
}

func bucketPagesOfSize(e *Env) {
	var names []string
	for i := range 111 {
		names = append(names, fmt.Sprint("entity-", i))
	}
	all := populate(e, "n", names, []string{"api"})
	slices.SortFunc(all, byEntity)
	for _, size := range []int{0, 1, 2, 10, 100, 110, 111, 112, 1000, 5000} {
		if got := bucketPages(e, store.BucketQuery{Namespace: "n", Max: size}); !slices.Equal(got, all) {
			e.Fatalf("pages of %d: %v", size, got)
		}
	}
}

// bucketStates checks that a list shows the same state as Peek.
func bucketStates(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	e.Allow(At(3, Debit(b, Charge(l, 4))))
	e.Settle(Debit(b, Charge(l, -1)))
	e.Quiesce()
	want, now := e.State(b)
	p := bucketPage(e, store.BucketQuery{Namespace: "n"})
	if len(p.States) != 1 || p.At.Before(now) {
		e.Fatalf("page %+v after %v", p, now)
	}
	got := p.States[0]
	if got.Bucket != want.Bucket || got.ID != want.ID || got.Epoch != 3 || !got.At.Equal(want.At) ||
		len(got.Limits) != 1 {
		e.Fatalf("listed %+v, peek shows %+v", got, want)
	}
	m := got.Limits[0]
	if *m.Limit != *l || m.Debited != 4*Token || m.Returned != 1*Token || reckon.Room(l, m.Level, p.At) != 7*Token {
		e.Fatalf("listed %+v", m)
	}
}

func bucketMoving(e *Env) {
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("%02d", i))
	}
	populate(e, "n", names, []string{"api"})
	q := store.BucketQuery{Namespace: "n", Max: 7}
	seen, last := map[string]int{}, ""
	for {
		p := bucketPage(e, q)
		for _, st := range p.States {
			if st.Bucket.Entity <= last {
				e.Fatalf("%q listed after %q", st.Bucket.Entity, last)
			}
			last = st.Bucket.Entity
			seen[last]++
		}
		if q.After = p.Next; p.Next == "" {
			break
		}
		populate(e, "n", []string{last + "-new", "zz" + last}, []string{"api"})
		e.Forget(Bucket(last, "api")) // the bucket that the cursor points to
	}
	for _, name := range names {
		if seen[name] != 1 {
			e.Fatalf("%s listed %d times", name, seen[name])
		}
	}
}

func bucketConcurrent(e *Env) {
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("%02d", i))
	}
	populate(e, "n", names, []string{"api"})
	l := Still("rpm", 1000)
	var stop atomic.Bool
	e.Each(3, func(i int) {
		if i > 0 {
			for n := 0; !stop.Load(); n++ {
				b := Bucket(fmt.Sprint("extra-", n%20), "api")
				e.TakeQuietly(Debit(b, Charge(l, 0)), Debit(Bucket(names[n%30], "api"), Charge(Still("rpm", 10), 0)))
				if n%3 == 0 {
					if err := e.Store.Forget(e.Context(), b); err != nil {
						e.Errorf("forget: %v", err)
					}
				}
			}
			return
		}
		defer stop.Store(true)
		for range e.Some(50) {
			n, q := 0, store.BucketQuery{Namespace: "n", Max: 7}
			for {
				p, err := e.Store.Buckets(e.Context(), q)
				if err != nil {
					e.Errorf("buckets: %v", err)
					return
				}
				for _, st := range p.States {
					if len(st.Bucket.Entity) == 2 {
						n++
					}
				}
				if q.After = p.Next; p.Next == "" {
					break
				}
			}
			if n != len(names) {
				e.Errorf("%d of %d buckets listed that never moved", n, len(names))
			}
		}
	})
}

func bucketCursors(e *Env) {
	populate(e, "n", []string{"a", "b", "c"}, []string{"api", "web"})
	populate(e, "m", []string{"a", "b", "c"}, []string{"api", "web"})
	base := store.BucketQuery{Namespace: "n", Max: 2}
	next := bucketPage(e, base).Next
	for _, q := range []store.BucketQuery{
		{Namespace: "n", After: "x"},
		{Namespace: "n", After: "!!!"},
		{Namespace: "n", After: "日本"},
		{Namespace: "n", After: "bm90IGEgY3Vyc29y"},
		{Namespace: "n", After: " "},
		{Namespace: "m", After: next},
	} {
		if _, err := e.Store.Buckets(e.Context(), q); !errors.Is(err, store.ErrBadCursor) {
			e.Errorf("buckets %+v: error %v, want %v", q, err, store.ErrBadCursor)
		}
	}
	base.After, base.Max = next, 3
	if p := bucketPage(e, base); len(p.States) != 3 || p.States[0].Bucket != Bucket("b", "api") {
		e.Errorf("from the cursor on: %+v", p.States)
	}
}

// bucketForged checks that a client that may list one entity's buckets sees no other's.
func bucketForged(e *Env) {
	populate(e, "n", []string{"alice", "bob", "zoe"}, []string{"api", "web"})
	populate(e, "m", []string{"foreign-1", "foreign-2"}, []string{"api", "web"})
	list := func(q store.BucketQuery) Lister {
		return func(after string) (ids []string, next string, err error) {
			q.Max, q.After = 1, after
			page, err := e.Store.Buckets(e.Context(), q)
			for _, st := range page.States {
				ids = append(ids, st.Bucket.Entity)
			}
			return ids, page.Next, err
		}
	}
	Forge(e, "bob", list(store.BucketQuery{Namespace: "n", Entity: "bob"}))
	Splice(e, list(store.BucketQuery{Namespace: "n"}), list(store.BucketQuery{Namespace: "m"}))
}

// bucketPeek checks that Peek answers in the order of the request, including missing buckets and repeated ones.
func bucketPeek(e *Env) {
	all := populate(e, "n", []string{"c", "a", "b"}, []string{"api"})
	asked := []store.Bucket{all[2], Bucket("none", "api"), all[0], all[1], Bucket("a", "none"), all[2]}
	for i, st := range e.Peek(asked...).States {
		if exists := st.ID != 0; exists == (st.Bucket.Entity == "none" || st.Bucket.Resource == "none") {
			e.Errorf("state %d: %+v", i, st)
		}
	}
	if snap := e.Peek(); snap.At.IsZero() {
		e.Errorf("the time of a look at nothing is not known")
	}
}

// bucketReads checks that neither reading a bucket nor returning tokens to it creates it.
func bucketReads(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	none := func(what string) {
		e.Helper()
		if got := bucketPages(e, store.BucketQuery{Namespace: "n"}); len(got) > 0 {
			e.Fatalf("%s made %v", what, got)
		}
	}
	e.Peek(b)
	none("a look")
	e.Settle(Debit(b, Charge(l, -1)))
	none("a return")
	e.Forget(b)
	none("to forget it")
}

func bucketForget(e *Env) {
	l := Still("rpm", 10)
	a, b, c := Bucket("alice", "api"), Bucket("alice", "web"), Bucket("bob", "api")
	e.Allow(Debit(a, Charge(l, 10)), Debit(b, Force(l, 100)), Debit(c, Charge(l, 3)))
	e.Forget(a, b, Bucket("none", "api"))
	e.WantTokens(a, l, 10)
	e.WantTokens(b, l, 10)
	e.WantTokens(c, l, 7)
	if got := bucketPages(e, store.BucketQuery{Namespace: "n"}); !slices.Equal(got, []store.Bucket{c}) {
		e.Fatalf("after a forget there are %v", got)
	}
	e.Allow(At(0, Debit(a, Charge(Still("rpm", 5), 5)))) // nor do its old limits apply
	e.Refuse(At(0, Debit(a, Charge(Still("rpm", 5), 1))))
	e.Forget()
	e.Forget(a, a)
	e.WantTokens(a, l, 10)
}
