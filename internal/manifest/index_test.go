package manifest_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/raced"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/memory"
)

// TestCost checks that the plan of a small manifest reads what that manifest names and manages, and not the 5,000
// records of another one beside it.
func TestCost(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	fake := new(dynamotest.Fake)
	table := dynamotest.Table(t)
	_, err := dynamodb.Create(t.Context(), unscanned{fake}, table, dynamodb.CreateConfig{})
	must(t, err)
	st, err := dynamodb.Open(t.Context(), dynamodb.Config{Client: unscanned{fake}, Table: table, CallTimeout: patient, WriteTimeout: patient})
	must(t, err)
	lim := limiterOn(t, st)
	by := &record.Managed{Manifest: "others"}
	limits := record.Limits{Limits: []record.Limit{{Name: "rpm", Amount: 10, Burst: 10, Period: time.Minute}}, Managed: by}
	key := func(kind store.Kind, id, sub string) store.Key {
		return store.Key{Namespace: "default", Kind: kind, ID: id, Sub: sub}
	}
	var others []store.Write
	for i := range 2500 {
		others = append(others,
			record.Put(key(store.KindEntity, fmt.Sprint("e", i), ""), 0, record.Entity{Created: time.Now(), Managed: by}),
			record.Put(key(store.KindEntityLimits, fmt.Sprint("e", i), "x"), 0, limits))
	}
	for some := range slices.Chunk(others, 90) {
		must(t, st.Commit(t.Context(), some...))
	}
	for i, text := range []string{
		"resources: {x: {limits: {rpm: {capacity: %d}}}}", "entities: {e: {resources: {x: {limits: {rpm: {capacity: %d}}}}}}",
	} {
		for capacity := 1; capacity <= 3; capacity++ {
			m := decodeOne(t, fmt.Sprintf("namespace: default\nmanifest: mine%d\n"+text, i, capacity))
			before := fake.Capacity().Read
			p, err := manifest.Make(t.Context(), lim, m, manifest.PlanOptions{})
			must(t, err)
			if units := fake.Capacity().Read - before; units > 20 || p.Empty() {
				t.Errorf("%s: the plan of %s reads %v units, want at most 20", text, changes(p), units)
			}
			apply(t, lim, m)
		}
	}
}

// TestListed checks that a plan finds all that a manifest manages, whatever wrote it: an apply that failed, one that
// kept what is no longer declared, and one of an earlier version of weir, which kept no list.
func TestListed(t *testing.T) {
	t.Parallel()
	const none = "namespace: default"
	m := decodeOne(t, "namespace: default\nresources: {a: {limits: {rpm: {capacity: 1}}}, b: {limits: {rpm: {capacity: 1}}}}")
	check := func(t *testing.T, lim *weir.Limiter, want string) {
		t.Helper()
		if got := changes(planWhole(t, lim, decodeOne(t, none))); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	t.Run("failed", func(t *testing.T) {
		t.Parallel()
		st := &faulty{Store: memory.New(nil)}
		lim := limiterOn(t, st)
		p := plan(t, lim, m)
		st.failAt, st.made = 4, true // the list, the lock with it, and the records, of which nobody hears
		if _, err := manifest.Apply(t.Context(), lim, p, manifest.ApplyOptions{}); err == nil {
			t.Fatal("no error")
		}
		st.failAt = 0
		lim = limiterOn(t, st.Store)
		check(t, lim, "delete resource a (tightens)\ndelete resource b (tightens)")
	})
	t.Run("kept", func(t *testing.T) {
		t.Parallel()
		lim := limiterOn(t, memory.New(nil))
		apply(t, lim, m)
		_, err := manifest.Apply(t.Context(), lim, plan(t, lim, decodeOne(t, none)), manifest.ApplyOptions{Keep: true})
		must(t, err)
		check(t, lim, "delete resource a (tightens)\ndelete resource b (tightens)")
		apply(t, lim, decodeOne(t, none))
		check(t, lim, "")
		state, err := admin.New(lim).Manifests.State(t.Context(), "default")
		if err != nil || state.Managed == nil || len(state.Managed) > 0 {
			t.Errorf("the list still has %v, %v", state.Managed, err)
		}
	})
	t.Run("earlier", func(t *testing.T) {
		t.Parallel()
		st := memory.New(nil)
		lim := limiterOn(t, st)
		apply(t, lim, m)
		key := store.Key{Namespace: "default", Kind: store.KindManifest, ID: "default"}
		got, err := st.Get(t.Context(), key)
		must(t, err)
		r := got.Records[0]
		r.Value = []byte(`{"revision":1,"hash":"` + m.Hash() + `"}`)
		must(t, st.Commit(t.Context(), store.Write{Record: r}))
		check(t, lim, "delete resource a (tightens)\ndelete resource b (tightens)")
		got, err = st.Get(t.Context(), key)
		must(t, err)
		must(t, st.Commit(t.Context(), store.Write{Record: got.Records[0], Delete: true}))
		if got := changes(plan(t, lim, decodeOne(t, "namespace: default\nresources: {a: {limits: {rpm: {capacity: 1}}}}"))); got != "delete resource b (tightens)" {
			t.Errorf("never applied to the end: %s", got)
		}
	})
	t.Run("torn", func(t *testing.T) {
		t.Parallel()
		st := memory.New(nil)
		lim := limiterOn(t, st)
		apply(t, lim, m)
		key := store.Key{Namespace: "default", Kind: store.KindRevisionText, ID: "default", Sub: "000000000.0000"}
		got, err := st.Get(t.Context(), key)
		must(t, err)
		r := got.Records[0]
		for _, text := range []string{`{"gzip":"x"}`, `{"gzip":"H4sIAAAAAAAA/4qOBQQAAP//KbtMDQIAAAA="}`} {
			r.Value = []byte(text)
			must(t, st.Commit(t.Context(), store.Write{Record: r}))
			r.Version++
			check(t, lim, "delete resource a (tightens)\ndelete resource b (tightens)")
		}
	})
}
