package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

func bucketScenarios() []scenario {
	return []scenario{
		{name: "filters and order", aside: true, run: each(bucketFilters)},
		{name: "pages of every size", aside: true, run: each(bucketPagesOfSize)},
		{name: "states", run: each(bucketStates)},
		{name: "while buckets come and go", run: each(bucketMoving)},
		{name: "while others debit", run: each(bucketConcurrent)},
		{name: "cursors of others", run: each(bucketCursors)},
		{name: "peek", run: each(bucketPeek)},
		{name: "reads make nothing", run: each(bucketReads)},
		{name: "forget", run: each(bucketForget)},
	}
}

func (e *env) bucketPage(q store.BucketQuery) store.BucketPage {
	e.Helper()
	p, err := e.store.Buckets(e.Context(), q)
	if err != nil {
		e.Fatalf("buckets %+v: %v", q, err)
	}
	if len(p.States) > store.PageSize(q.Max) {
		e.Fatalf("buckets %+v: %d in a page", q, len(p.States))
	}
	return p
}

// bucketPages follows a list of buckets to its end.
func (e *env) bucketPages(q store.BucketQuery) []store.Bucket {
	e.Helper()
	var all []store.Bucket
	for range 10_000 {
		p := e.bucketPage(q)
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
func (e *env) populate(namespace string, entities, resources []string) []store.Bucket {
	e.Helper()
	var all []store.Bucket
	for _, en := range entities {
		for _, re := range resources {
			b := store.Bucket{Namespace: namespace, Entity: en, Resource: re}
			e.allow(debit(b, charge(still("rpm", 10), 1)))
			all = append(all, b)
		}
	}
	return all
}

func bucketFilters(e *env) {
	all := e.populate("n", []string{
		"b", "a", "c", "ab", "a b", "a/b", "B", "é", "日本",
	}, []string{"api", "a", "z", "gpt-4o/mini"})
	e.populate("m", []string{"a", "x"}, []string{"api"})
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
				if got := e.bucketPages(q); !slices.Equal(got, want) {
					e.Fatalf("buckets %+v: %v, want %v", q, got, want)
				}
			}
		}
	}
	if got := e.bucketPages(store.BucketQuery{Namespace: "none"}); len(got) > 0 {
		e.Fatalf("buckets of a namespace that nobody used: %v", got)
	}
}

func bucketPagesOfSize(e *env) {
	var names []string
	for i := range 111 {
		names = append(names, fmt.Sprint("entity-", i))
	}
	all := e.populate("n", names, []string{"api"})
	slices.SortFunc(all, byEntity)
	for _, size := range []int{0, 1, 2, 10, 100, 110, 111, 112, 1000, 5000} {
		if got := e.bucketPages(store.BucketQuery{Namespace: "n", Max: size}); !slices.Equal(got, all) {
			e.Fatalf("pages of %d: %v", size, got)
		}
	}
}

// bucketStates checks that a list shows the same state as Peek.
func bucketStates(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 10)
	e.allow(at(3, debit(b, charge(l, 4))))
	e.settle(debit(b, charge(l, -1)))
	e.quiesce()
	want, now := e.state(b)
	p := e.bucketPage(store.BucketQuery{Namespace: "n"})
	if len(p.States) != 1 || p.At.Before(now) {
		e.Fatalf("page %+v after %v", p, now)
	}
	got := p.States[0]
	if got.Bucket != want.Bucket || got.ID != want.ID || got.Epoch != 3 || !got.At.Equal(want.At) ||
		len(got.Limits) != 1 {
		e.Fatalf("listed %+v, peek shows %+v", got, want)
	}
	m := got.Limits[0]
	if *m.Limit != *l || m.Debited != 4*tok || m.Returned != 1*tok || reckon.Room(l, m.Level, p.At) != 7*tok {
		e.Fatalf("listed %+v", m)
	}
}

func bucketMoving(e *env) {
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("%02d", i))
	}
	e.populate("n", names, []string{"api"})
	q := store.BucketQuery{Namespace: "n", Max: 7}
	seen, last := map[string]int{}, ""
	for {
		p := e.bucketPage(q)
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
		e.populate("n", []string{last + "-new", "zz" + last}, []string{"api"})
		e.forget(bkt(last, "api")) // the bucket that the cursor points to
	}
	for _, name := range names {
		if seen[name] != 1 {
			e.Fatalf("%s listed %d times", name, seen[name])
		}
	}
}

func bucketConcurrent(e *env) {
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("%02d", i))
	}
	e.populate("n", names, []string{"api"})
	l := still("rpm", 1000)
	var stop atomic.Bool
	e.each(3, func(i int) {
		if i > 0 {
			for n := 0; !stop.Load(); n++ {
				b := bkt(fmt.Sprint("extra-", n%20), "api")
				e.takeQuietly(debit(b, charge(l, 0)), debit(bkt(names[n%30], "api"), charge(still("rpm", 10), 0)))
				if n%3 == 0 {
					if err := e.store.Forget(e.Context(), b); err != nil {
						e.Errorf("forget: %v", err)
					}
				}
			}
			return
		}
		defer stop.Store(true)
		for range e.some(50) {
			n, q := 0, store.BucketQuery{Namespace: "n", Max: 7}
			for {
				p, err := e.store.Buckets(e.Context(), q)
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

func bucketCursors(e *env) {
	e.populate("n", []string{"a", "b", "c"}, []string{"api", "web"})
	e.populate("m", []string{"a", "b", "c"}, []string{"api", "web"})
	base := store.BucketQuery{Namespace: "n", Max: 2}
	next := e.bucketPage(base).Next
	for _, q := range []store.BucketQuery{
		{Namespace: "n", After: "x"},
		{Namespace: "n", After: "!!!"},
		{Namespace: "n", After: "日本"},
		{Namespace: "n", After: "bm90IGEgY3Vyc29y"},
		{Namespace: "n", After: " "},
		{Namespace: "m", After: next},
	} {
		if _, err := e.store.Buckets(e.Context(), q); !errors.Is(err, store.ErrBadCursor) {
			e.Errorf("buckets %+v: error %v, want %v", q, err, store.ErrBadCursor)
		}
	}
	base.After, base.Max = next, 3
	if p := e.bucketPage(base); len(p.States) != 3 || p.States[0].Bucket != bkt("b", "api") {
		e.Errorf("from the cursor on: %+v", p.States)
	}
}

// bucketPeek checks that Peek answers in the order of the request, including missing buckets and repeated ones.
func bucketPeek(e *env) {
	all := e.populate("n", []string{"c", "a", "b"}, []string{"api"})
	asked := []store.Bucket{all[2], bkt("none", "api"), all[0], all[1], bkt("a", "none"), all[2]}
	for i, st := range e.peek(asked...).States {
		if exists := st.ID != 0; exists == (st.Bucket.Entity == "none" || st.Bucket.Resource == "none") {
			e.Errorf("state %d: %+v", i, st)
		}
	}
	if snap := e.peek(); snap.At.IsZero() {
		e.Errorf("the time of a look at nothing is not known")
	}
}

// bucketReads checks that neither reading a bucket nor returning tokens to it creates it.
func bucketReads(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 10)
	none := func(what string) {
		e.Helper()
		if got := e.bucketPages(store.BucketQuery{Namespace: "n"}); len(got) > 0 {
			e.Fatalf("%s made %v", what, got)
		}
	}
	e.peek(b)
	none("a look")
	e.settle(debit(b, charge(l, -1)))
	none("a return")
	e.forget(b)
	none("to forget it")
}

func bucketForget(e *env) {
	l := still("rpm", 10)
	a, b, c := bkt("alice", "api"), bkt("alice", "web"), bkt("bob", "api")
	e.allow(debit(a, charge(l, 10)), debit(b, force(l, 100)), debit(c, charge(l, 3)))
	e.forget(a, b, bkt("none", "api"))
	e.wantTokens(a, l, 10)
	e.wantTokens(b, l, 10)
	e.wantTokens(c, l, 7)
	if got := e.bucketPages(store.BucketQuery{Namespace: "n"}); !slices.Equal(got, []store.Bucket{c}) {
		e.Fatalf("after a forget there are %v", got)
	}
	e.allow(at(0, debit(a, charge(still("rpm", 5), 5)))) // nor do its old limits apply
	e.refuse(at(0, debit(a, charge(still("rpm", 5), 1))))
	e.forget()
	e.forget(a, a)
	e.wantTokens(a, l, 10)
}
