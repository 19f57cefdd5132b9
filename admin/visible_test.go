package admin_test

import (
	"errors"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// Ids that nobody can see are refused when a record is created. Those that an earlier version stored are read, changed,
// spent from and deleted as before.
func TestVisible(t *testing.T) {
	t.Parallel()
	const bad = "a\u202eb"
	st := memory.New(nil)
	lim := limiterOn(t, st)
	a := admin.New(lim)
	refused := func(what string, err error) {
		t.Helper()
		if _, ok := errors.AsType[*weir.ConfigError](err); !ok {
			t.Errorf("%s: got %v", what, err)
		}
	}
	must := func(err error) {
		t.Helper()
		must(t, err)
	}
	rpm := weir.PerMinute("rpm", 5)
	refused("an entity", a.Entities.Create(t.Context(), admin.Entity{ID: bad}))
	refused("a resource", a.Limits.Set(t.Context(), admin.Scope{Resource: bad}, rpm))
	refused("a limit", a.Limits.Set(t.Context(), admin.Scope{}, weir.PerMinute(bad, 5)))
	_, err := a.Namespaces.Create(t.Context(), bad)
	refused("a namespace", err)

	id := record.DefaultNamespace
	must(a.Entities.Create(t.Context(), admin.Entity{ID: "good"}))
	must(a.Limits.Set(t.Context(), admin.Scope{Resource: "good"}, rpm))
	for _, key := range []store.Key{record.EntityKey(id, "good"), {Namespace: id, Kind: store.KindResourceLimits, ID: "good"}} {
		got, err := st.Get(t.Context(), key)
		must(err)
		r := got.Records[0]
		r.Key.ID, r.Version = bad, 0
		must(st.Commit(t.Context(), store.Write{Record: r}))
	}
	lim = limiterOn(t, st)
	a = admin.New(lim)
	_, err = lim.Acquire(t.Context(), weir.Request{Entity: bad, Resource: bad, Tokens: weir.Tokens{"rpm": 1}})
	must(err)
	name := "renamed"
	_, err = a.Entities.Update(t.Context(), bad, admin.EntityUpdate{Name: &name})
	must(err)
	must(a.Limits.Set(t.Context(), admin.Scope{Resource: bad}, weir.PerMinute("rpm", 7)))
	must(a.Limits.Delete(t.Context(), admin.Scope{Resource: bad}))
	must(a.Entities.Delete(t.Context(), bad, admin.DeleteOptions{}))
	if _, err := a.Entities.Get(t.Context(), bad); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
