package admin_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// balance is a limit that spends credits.
func balance(name string) weir.Limit { return weir.Limit{Name: name, Balance: true} }

var credits = admin.BalanceKey{Entity: "alice", Resource: weir.TotalResource, Limit: "credits"}

// prepaidOn returns a limiter on whose store alice has the balance credits on the total.
func prepaidOn(t *testing.T, st store.Store) *weir.Limiter {
	t.Helper()
	lim := limiterOn(t, st)
	must(t, admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerMinute("rpm", 1_000_000)))
	must(t, admin.New(lim).Limits.Set(t.Context(), admin.Scope{Entity: "alice", Resource: weir.TotalResource}, balance("credits")))
	return lim
}

// history returns the credits of a balance, newest first.
func history(t *testing.T, lim *weir.Limiter, k admin.BalanceKey) (all []admin.Credited) {
	t.Helper()
	for q := (admin.BalanceQuery{BalanceKey: k, Max: 2}); ; {
		page, err := admin.New(lim).Balances.History(t.Context(), q)
		must(t, err)
		all = append(all, page.Items...)
		if q.After = page.Next; q.After == "" {
			return all
		}
	}
}

// shown returns the balances of alice.
func shown(t *testing.T, lim *weir.Limiter) []admin.Balance {
	t.Helper()
	page, err := admin.New(lim).Balances.List(t.Context(), admin.BalanceQuery{BalanceKey: admin.BalanceKey{Entity: "alice"}})
	must(t, err)
	return page.Items
}

func TestBalance(t *testing.T) {
	t.Parallel()
	lim := prepaidOn(t, memory.New(nil))
	ctx, add := admin.WithPrincipal(t.Context(), "token:billing"), admin.New(lim).Balances.Add
	at := cmpopts.IgnoreFields(admin.Balance{}, "At")
	want := admin.Balance{BalanceKey: credits}
	if diff := cmp.Diff([]admin.Balance{want}, shown(t, lim), at); diff != "" {
		t.Errorf("before the first credit:\n%s", diff)
	}
	first := admin.Credit{BalanceKey: admin.BalanceKey{Entity: "alice", Limit: "credits"}, Amount: 500, ID: "inv-1"}
	b, repeated, err := add(ctx, first)
	must(t, err)
	want.Available, want.Credited = 500, 500
	if diff := cmp.Diff(want, b, at); diff != "" || repeated {
		t.Errorf("repeated %v:\n%s", repeated, diff)
	}
	lease, err := lim.Acquire(ctx, weir.Request{Entity: "alice", Resource: "r", Tokens: weir.Tokens{"credits": 300}})
	must(t, err)
	must(t, errOf(lease.Adjust(ctx, weir.Tokens{"credits": -50})))
	_, err = lim.Acquire(ctx, weir.Request{Entity: "alice", Resource: "r", Tokens: weir.Tokens{"credits": 251}})
	if !errors.Is(err, weir.ErrExceeded) || !strings.Contains(err.Error(), "until it is topped up") {
		t.Errorf("more than is left: %v", err)
	}
	if b, repeated, err = add(ctx, first); err != nil || !repeated || b.Available != 250 {
		t.Errorf("repeated: %+v, %v, %v", b, repeated, err)
	}
	must(t, errOf2(add(ctx, admin.Credit{BalanceKey: credits, Amount: 7, ID: "inv-2"})))
	want.Available, want.Credited, want.Debited, want.Returned = 257, 507, 300, 50
	if diff := cmp.Diff([]admin.Balance{want}, shown(t, lim), at); diff != "" {
		t.Error(diff)
	}

	first.Amount = 400
	_, _, err = add(ctx, first)
	if other, ok := errors.AsType[*admin.CreditError](err); !ok || *other != (admin.CreditError{ID: "inv-1", Have: 500, Want: 400}) || weir.CodeOf(err) != weir.CodeExists ||
		!strings.Contains(err.Error(), "500 tokens, not 400") {
		t.Errorf("another amount: %v", err)
	}
	var made []string
	for _, c := range history(t, lim, credits) {
		made = append(made, fmt.Sprintln(c.ID, c.Amount, c.Available, c.Principal, c.Repeated))
	}
	if diff := cmp.Diff([]string{"inv-2 7 257 token:billing false\n", "inv-1 500 500 token:billing false\n"}, made); diff != "" {
		t.Error(diff)
	}
}

func TestBalanceMistakes(t *testing.T) {
	t.Parallel()
	lim := prepaidOn(t, memory.New(nil))
	for field, c := range map[string]admin.Credit{
		"id":       {BalanceKey: credits, Amount: 1},
		"amount":   {BalanceKey: credits, ID: "x", Amount: -1},
		"limit":    {BalanceKey: admin.BalanceKey{Entity: "alice"}, ID: "x", Amount: 1},
		"entity":   {BalanceKey: admin.BalanceKey{Limit: "credits"}, ID: "x", Amount: 1},
		"resource": {BalanceKey: admin.BalanceKey{Entity: "alice", Limit: "credits", Resource: "_"}, ID: "x", Amount: 1},
	} {
		_, _, err := admin.New(lim).Balances.Add(t.Context(), c)
		wantConfigError(t, err, field)
	}
	must(t, errOf2(admin.New(lim).Balances.Add(t.Context(), admin.Credit{BalanceKey: credits, ID: "x", Amount: weir.MaxTokens})))
	_, _, err := admin.New(lim).Balances.Add(t.Context(), admin.Credit{BalanceKey: credits, ID: "y", Amount: 1})
	wantConfigError(t, err, "amount")
	for _, k := range []admin.BalanceKey{
		{Entity: "alice", Limit: "credit"},
		{Entity: "bob", Limit: "credits"},
		{Entity: "alice", Limit: "credits", Resource: "r"},
		{Entity: "alice", Limit: "rpm", Resource: "r"},
	} {
		if _, _, err := admin.New(lim).Balances.Add(t.Context(), admin.Credit{BalanceKey: k, ID: "x", Amount: 1}); !errors.Is(err, weir.ErrNotFound) {
			t.Errorf("%+v: %v", k, err)
		}
	}
	if n := len(history(t, lim, credits)); n != 1 {
		t.Errorf("%d credits are in the history", n)
	}
}

// A balance can replace a limit of another kind whose bucket is still there.
func TestBalanceReplaces(t *testing.T) {
	t.Parallel()
	lim := prepaidOn(t, memory.New(nil))
	total := admin.Scope{Entity: "alice", Resource: weir.TotalResource}
	must(t, admin.New(lim).Limits.Set(t.Context(), total, weir.PerMinute("credits", 10)))
	must(t, errOf(lim.Acquire(t.Context(), weir.Request{Entity: "alice", Resource: "r", Tokens: weir.Tokens{"credits": 3}})))
	must(t, admin.New(lim).Limits.Set(t.Context(), total, balance("credits")))
	b, _, err := admin.New(lim).Balances.Add(t.Context(), admin.Credit{BalanceKey: credits, ID: "x", Amount: 5})
	if err != nil || b.Available != 5 {
		t.Errorf("%+v, %v", b, err)
	}
}

// The same id, 1,000 times at once from two processes, adds once and leaves one event. That of another entity and
// namespace is another credit.
func TestBalanceAtOnce(t *testing.T) {
	t.Parallel()
	onEachStore(t, balanceAtOnce)
}

func balanceAtOnce(t *testing.T, here, there store.Store) {
	t.Helper()
	lims := []*weir.Limiter{prepaidOn(t, here), limiterOn(t, there)}
	var added atomic.Int64
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for range 50 {
				b, repeated, err := admin.New(lims[i%2]).Balances.Add(t.Context(), admin.Credit{BalanceKey: credits, Amount: 5, ID: "inv-1"})
				if err != nil || b.Available != 5 {
					t.Errorf("%+v, %v", b, err)
				}
				if !repeated {
					added.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n, h := added.Load(), history(t, lims[0], credits); n != 1 || len(h) != 1 {
		t.Errorf("added %d times, with %d events", n, len(h))
	}

	must(t, errOf(admin.New(lims[0]).Namespaces.Create(t.Context(), "other")))
	for _, k := range []admin.BalanceKey{credits, {Entity: "bob", Resource: weir.TotalResource, Limit: "credits"}} {
		lim := lims[0].In("other")
		must(t, admin.New(lim).Limits.Set(t.Context(), admin.Scope{Entity: k.Entity, Resource: k.Resource}, balance("credits")))
		b, repeated, err := admin.New(lim).Balances.Add(t.Context(), admin.Credit{BalanceKey: k, Amount: 9, ID: "inv-1"})
		if err != nil || repeated || b.Available != 9 || len(history(t, lim, k)) != 1 {
			t.Errorf("%+v: %+v, %v, %v", k, b, repeated, err)
		}
	}
}

// listing counts the audit events that are listed.
type listing struct {
	store.Store
	events int
}

func (l *listing) List(ctx context.Context, q store.Query) (store.Page, error) {
	page, err := l.Store.List(ctx, q)
	if q.Kind == store.KindAudit {
		l.events += len(page.Records)
	}
	return page, err
}

// A credit does not read the credits of all time, however many there are; one that is repeated looks for its event.
func TestBalanceReadsFewEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &listing{Store: memory.New(nil)}
		lim, most := prepaidOn(t, st), 0
		add := func(id int) {
			st.events = 0
			must(t, errOf2(admin.New(lim).Balances.Add(t.Context(), admin.Credit{BalanceKey: credits, Amount: 1, ID: fmt.Sprint(id)})))
			most = max(most, st.events)
			time.Sleep(time.Hour)
		}
		for id := range 300 {
			add(id)
		}
		if most > 10 {
			t.Errorf("a credit has read %d events", most)
		}
		add(0)
		if h := history(t, lim, credits); len(h) != 300 {
			t.Errorf("%d events of 300 credits", len(h))
		}
	})
}

// A namespace that is purged leaves no balance, and no id of a credit.
func TestBalancePurged(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, here, _ store.Store) {
		t.Helper()
		ctx, lim := t.Context(), limiterOn(t, here)
		ns, err := admin.New(lim).Namespaces.Create(ctx, "blue")
		must(t, err)
		in := lim.In("blue")
		total := admin.Scope{Resource: weir.TotalResource}
		must(t, admin.New(in).Limits.Set(ctx, admin.Scope{}, weir.PerMinute("rpm", 10)))
		must(t, admin.New(in).Limits.Set(ctx, total, balance("credits"), weir.PerHour("rph", 5)))
		for entity, left := range map[string]int64{"alice": 5, "bob": -3} {
			k := admin.BalanceKey{Entity: entity, Limit: "credits"}
			must(t, errOf2(admin.New(in).Balances.Add(ctx, admin.Credit{BalanceKey: k, Amount: 10, ID: "x"})))
			must(t, errOf(in.Adjust(ctx, weir.Request{Entity: entity, Resource: "r", Tokens: weir.Tokens{"credits": 10 - left, "rph": 1}})))
		}
		must(t, admin.New(lim).Namespaces.Delete(ctx, "blue"))
		must(t, admin.New(lim).Namespaces.Purge(ctx, "blue"))
		page, err := here.Buckets(ctx, store.BucketQuery{Namespace: ns.ID})
		must(t, err)
		for _, entity := range []string{"alice", "bob"} { // each id is new again
			b := store.Bucket{Namespace: ns.ID, Entity: entity, Resource: weir.TotalResource}
			got, err := here.Credit(ctx, store.Credit{Bucket: b, Limit: "credits", Amount: 7000, ID: "x"})
			if err != nil || got.Before || got.Level != -7000 {
				t.Errorf("%s: %+v, %v", entity, got, err)
			}
		}
		for _, st := range page.States {
			for _, l := range st.Limits {
				if l.Limit.IsBalance() && l.Level != 0 {
					t.Errorf("%s: %s is at %d", st.Bucket, l.Limit.Name, l.Level)
				}
			}
		}
	})
}

// Whichever call fails or loses its answer, a credit that is repeated is made once, and has one event.
func TestBalanceLostAnswers(t *testing.T) {
	t.Parallel()
	for _, applied := range []bool{false, true} {
		for at := 1; ; at++ {
			h := &hooked{Store: memory.New(nil)}
			lim := prepaidOn(t, h)
			c := admin.Credit{BalanceKey: credits, Amount: 5, ID: "inv-1"}
			stop := h.failAt(at, applied, errors.New("lost"))
			_, _, err := admin.New(lim).Balances.Add(t.Context(), c)
			finished := stop()
			if (err == nil) != finished {
				t.Errorf("call %d: %v", at, err)
			}
			b, _, err := admin.New(lim).Balances.Add(t.Context(), c)
			if n := len(history(t, lim, credits)); err != nil || b.Available != 5 || n != 1 {
				t.Errorf("call %d, applied %v, repeated: %+v, %d events, %v", at, applied, b, n, err)
			}
			if finished {
				break
			}
		}
	}
}

// A balance with something in it, or in debt, is not hidden: by limits that no longer have it, of another kind, or of
// a scope that comes first, by another plan, or by the deletion of its entity.
func TestBalanceHidden(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	total := admin.Scope{Entity: "alice", Resource: weir.TotalResource}
	onPlan := admin.Scope{Plan: "prepaid", Resource: weir.TotalResource}
	rpm := weir.PerMinute("rpm", 10)
	for name, change := range map[string]func(a *admin.Admin) error{
		"left out":     func(a *admin.Admin) error { return a.Limits.Set(ctx, onPlan, rpm) },
		"another kind": func(a *admin.Admin) error { return a.Limits.Set(ctx, onPlan, weir.PerMinute("credits", 10)) },
		"deleted":      func(a *admin.Admin) error { return a.Limits.Delete(ctx, onPlan) },
		"covered":      func(a *admin.Admin) error { return a.Limits.Set(ctx, total, rpm) },
		"no plan": func(a *admin.Admin) error {
			return errOf(a.Entities.Update(ctx, "alice", admin.EntityUpdate{Plan: new("")}))
		},
		"another plan": func(a *admin.Admin) error {
			return errOf(a.Entities.Update(ctx, "alice", admin.EntityUpdate{Plan: new("pro")}))
		},
		"entity": func(a *admin.Admin) error { return a.Entities.Delete(ctx, "alice", admin.DeleteOptions{}) },
		"replaced": func(a *admin.Admin) error {
			was, err := a.Limits.Get(ctx, onPlan)
			must(t, err)
			return a.Limits.If(was).Set(ctx, onPlan, rpm)
		},
		"declared": func(a *admin.Admin) error {
			var changes []admin.DeclaredChange
			for q := (admin.DeclaredQuery{}); q.After != "" || changes == nil; {
				page, err := a.Manifests.Declarable(ctx, q)
				must(t, err)
				for _, d := range page.Items { // the limits are removed, and so is the entity
					if d.Limits != nil && d.Limits.Scope == onPlan || d.Entity != nil {
						changes = append(changes, admin.DeclaredChange{Before: d})
					}
				}
				q.After = page.Next
			}
			errs := a.Manifests.Declare(ctx, changes)
			if len(errs) != 2 || (errs[0] == nil) != (errs[1] == nil) {
				t.Errorf("%d changes: %v", len(changes), errs)
			}
			return errs[0]
		},
	} {
		for _, left := range []int64{5, -3, 0} {
			t.Run(fmt.Sprint(name, " with ", left), func(t *testing.T) {
				t.Parallel()
				lim := memoryLimiter(t)
				a := admin.New(lim)
				must(t, a.Limits.Set(ctx, admin.Scope{Plan: "pro"}, rpm))
				must(t, a.Limits.Set(ctx, onPlan, rpm, balance("credits")))
				must(t, a.Entities.Create(ctx, admin.Entity{ID: "alice", Plan: "prepaid"}))
				must(t, errOf2(a.Balances.Add(ctx, admin.Credit{BalanceKey: credits, Amount: 10, ID: "x"})))
				must(t, errOf(lim.Adjust(ctx, weir.Request{Entity: "alice", Resource: "r", Tokens: weir.Tokens{"credits": 10 - left}})))
				err := change(a)
				if (left == 0) != (err == nil) {
					t.Fatalf("error %v", err)
				}
				if err == nil {
					return
				}
				var bad *weir.ConfigError
				want := map[int64]string{5: `"credits" of "alice" on the total, which has 5 left: debit that first`, -3: "3 in debt: forgive"}[left]
				if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %s", err, want)
				}
				if b := shown(t, lim); len(b) != 1 || b[0].Available != left || b[0].Removed {
					t.Errorf("afterwards: %+v", b)
				}
			})
		}
	}
}

// Nor is it hidden from afar: by a change above its entity, by limits that begin later, or by an entity that is created.
func TestBalanceHiddenFromAfar(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rpm, tomorrow := weir.PerMinute("rpm", 10), admin.InstantOf(time.Now().Add(24*time.Hour))
	total := func(entity string) admin.Scope { return admin.Scope{Entity: entity, Resource: weir.TotalResource} }
	plan := func(id string, plan string) func(*admin.Admin) error {
		return func(a *admin.Admin) error { return errOf(a.Entities.Update(ctx, id, admin.EntityUpdate{Plan: &plan})) }
	}
	bounded := func(sc admin.Scope, b admin.Bounded) func(*admin.Admin) error {
		return func(a *admin.Admin) error { return a.Limits.SetBounded(ctx, sc, b) }
	}
	for name, tt := range map[string]struct {
		change func(*admin.Admin) error
		hides  bool
	}{
		"the plan of an ancestor": {plan("org", "pro"), true},
		"no plan of an ancestor":  {plan("org", ""), true},
		"the plan of one between": {plan("team", "pro"), true},
		"as good a plan":          {plan("org", "as good"), false},
		"another parent of an ancestor": {func(a *admin.Admin) error {
			return errOf(a.Entities.Update(ctx, "team", admin.EntityUpdate{Parent: new("")}))
		}, true},
		"limits that end":              {bounded(total("alice"), admin.Bounded{Until: tomorrow, Limits: []weir.Limit{rpm}}), true},
		"limits that begin":            {bounded(total("alice"), admin.Bounded{From: tomorrow, Limits: []weir.Limit{rpm}}), true},
		"limits of another that begin": {bounded(total("bob"), admin.Bounded{From: tomorrow, Limits: []weir.Limit{rpm}}), false},
		"limits elsewhere that begin":  {bounded(admin.Scope{Entity: "alice"}, admin.Bounded{From: tomorrow, Limits: []weir.Limit{rpm}}), false},
		"more that begins": {bounded(admin.Scope{Plan: "prepaid", Resource: weir.TotalResource},
			admin.Bounded{From: tomorrow, Scale: 2}), false},
		"created": {func(a *admin.Admin) error { return a.Entities.Create(ctx, admin.Entity{ID: "carol", Plan: "pro"}) }, true},
		"created below": {func(a *admin.Admin) error {
			must(t, a.Entities.Create(ctx, admin.Entity{ID: "paying", Plan: "pro"}))
			return a.Entities.Create(ctx, admin.Entity{ID: "carol", Parent: "paying"})
		}, true},
		"created without": {func(a *admin.Admin) error { return a.Entities.Create(ctx, admin.Entity{ID: "carol", Parent: "org"}) }, false},
		"created by a manifest": {func(a *admin.Admin) error {
			return a.Manifests.Declare(ctx, []admin.DeclaredChange{{After: admin.Declared{Entity: &admin.Entity{ID: "carol", Plan: "pro"}}}})[0]
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := admin.New(memoryLimiter(t))
			must(t, a.Limits.Set(ctx, admin.Scope{Resource: "images"}, balance("credits")))
			must(t, a.Limits.Set(ctx, admin.Scope{Plan: "pro"}, rpm))
			for _, plan := range []string{"prepaid", "as good"} {
				must(t, a.Limits.Set(ctx, admin.Scope{Plan: plan, Resource: weir.TotalResource}, balance("credits")))
			}
			must(t, a.Entities.Create(ctx, admin.Entity{ID: "org", Plan: "prepaid"}))
			must(t, a.Entities.Create(ctx, admin.Entity{ID: "team", Parent: "org"}))
			must(t, a.Entities.Create(ctx, admin.Entity{ID: "alice", Parent: "team"}))
			must(t, a.Entities.Create(ctx, admin.Entity{ID: "apart", Parent: "team", Plan: "as good"}))
			for _, k := range []admin.BalanceKey{
				credits,
				{Entity: "apart", Resource: weir.TotalResource, Limit: "credits"},
				{Entity: "carol", Resource: "images", Limit: "credits"},
			} {
				must(t, errOf2(a.Balances.Add(ctx, admin.Credit{BalanceKey: k, Amount: 10, ID: "x"})))
			}
			err := tt.change(a)
			if tt.hides {
				wantConfigError(t, err, "limits")
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// getting counts the calls that read records or buckets.
type getting struct {
	store.Store
	calls atomic.Int64
}

func (g *getting) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	g.calls.Add(1)
	return g.Store.Get(ctx, keys...)
}

func (g *getting) Peek(ctx context.Context, bs ...store.Bucket) (store.Snapshot, error) {
	g.calls.Add(1)
	return g.Store.Peek(ctx, bs...)
}

// To find out that no balance is hidden, a hundred entities cost a few calls.
func TestBalanceHiddenCosts(t *testing.T) {
	t.Parallel()
	ctx, st := t.Context(), &getting{Store: memory.New(nil)}
	a := admin.New(limiterOn(t, st))
	for _, plan := range []string{"prepaid", "as good"} {
		must(t, a.Limits.Set(ctx, admin.Scope{Plan: plan, Resource: weir.TotalResource}, balance("credits")))
	}
	must(t, a.Entities.Create(ctx, admin.Entity{ID: "org", Plan: "prepaid"}))
	for i := range 300 {
		id := fmt.Sprint(i)
		must(t, a.Entities.Create(ctx, admin.Entity{ID: id, Parent: "org"}))
		k := admin.BalanceKey{Entity: id, Resource: weir.TotalResource, Limit: "credits"}
		must(t, errOf2(a.Balances.Add(ctx, admin.Credit{BalanceKey: k, Amount: 10, ID: "x"})))
	}
	before := st.calls.Load()
	must(t, errOf(a.Entities.Update(ctx, "org", admin.EntityUpdate{Plan: new("as good")})))
	if n := st.calls.Load() - before; n > 60 {
		t.Errorf("%d calls for 300 balances", n)
	}
}

// What does not hide a balance is allowed, and a scope without named resources has none.
func TestBalanceKept(t *testing.T) {
	t.Parallel()
	ctx, lim := t.Context(), prepaidOn(t, memory.New(nil))
	a := admin.New(lim)
	total := admin.Scope{Entity: "alice", Resource: weir.TotalResource}
	must(t, errOf2(a.Balances.Add(ctx, admin.Credit{BalanceKey: credits, Amount: 10, ID: "x"})))
	must(t, a.Limits.Set(ctx, total, balance("credits"), weir.PerMinute("rpm", 10)))
	must(t, a.Limits.Set(ctx, admin.Scope{Entity: "alice"}, weir.PerMinute("rpm", 10)))
	must(t, a.Limits.Set(ctx, admin.Scope{Entity: "bob", Resource: weir.TotalResource}, weir.PerMinute("rpm", 10)))
	must(t, a.Limits.Set(ctx, admin.Scope{Resource: weir.TotalResource}, balance("credits")))
	must(t, a.Limits.Delete(ctx, total)) // that of all entities applies
	if b := shown(t, lim); len(b) != 1 || b[0].Available != 10 || b[0].Removed {
		t.Errorf("%+v", b)
	}
	for _, sc := range []admin.Scope{{}, {Entity: "alice"}, {Plan: "p"}} {
		wantConfigError(t, a.Limits.Set(ctx, sc, balance("credits")), "limits")
	}
}

// errOf2 returns the error of a call with three results.
func errOf2[T, U any](_ T, _ U, err error) error { return err }
