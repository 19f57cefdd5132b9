package weir_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

// shadowed returns a bundle whose entities have an enforced rpm and a tpm in shadow.
func shadowed(t *testing.T, change ...func(*weir.Config)) *bundle {
	t.Helper()
	b := setup(t, change...)
	b.set("", "", weir.PerHour("rpm", 10), weir.PerHour("tpm", 100).WithEnforce(weir.EnforceShadow))
	return b
}

func TestShadow(t *testing.T) {
	t.Parallel()
	b := shadowed(t)
	b.take("alice", weir.Tokens{"rpm": 1, "tpm": 90})
	d := b.take("alice", weir.Tokens{"rpm": 1, "tpm": 20}).Decision()
	type seen struct {
		Refused, Shadow, WouldRefuse bool
		Requested, Available         int64
		RetryAfter                   time.Duration
	}
	look := func(ss []weir.LimitStatus) (got []seen) {
		for _, s := range ss {
			got = append(got, seen{s.Refused, s.Shadow, s.WouldRefuse, s.Requested, s.Available, s.RetryAfter})
		}
		return got
	}
	if diff := cmp.Diff([]seen{{Requested: 1, Available: 8}, {Shadow: true, WouldRefuse: true, Requested: 20, Available: 10}}, look(d.Statuses)); diff != "" {
		t.Error(diff)
	}
	if !d.Allowed || d.RetryAfter != 0 {
		t.Errorf("allowed %t, retry after %v", d.Allowed, d.RetryAfter)
	}
	b.take("alice", weir.Tokens{"rpm": 1, "tpm": 10})
	b.take("alice", weir.Tokens{"rpm": 1, "tpm": 101}) // more than tpm ever admits
	b.wantLeft("alice", weir.Tokens{"rpm": 6, "tpm": 0})

	// Only enforced limits refuse, and RetryAfter is the time until they admit.
	over := b.refused("alice", weir.Tokens{"rpm": 7, "tpm": 50})
	if diff := cmp.Diff([]seen{
		{Refused: true, Requested: 7, Available: 6, RetryAfter: 6 * time.Minute},
		{Shadow: true, WouldRefuse: true, Requested: 50},
	}, look(over.Statuses)); diff != "" {
		t.Error(diff)
	}
	if over.RetryAfter != 6*time.Minute {
		t.Errorf("retry after %v", over.RetryAfter)
	}
	if want := "limit exceeded: rpm of alice on api has 6 of 10 available, 7 requested; retry in 6m0s"; over.Error() != want {
		t.Errorf("error %q, want %q", over, want)
	}
}

func TestShadowAvailable(t *testing.T) {
	t.Parallel()
	b := shadowed(t)
	b.take("alice", weir.Tokens{"tpm": 100})
	av, err := b.Available(b.ctx, "alice", "api")
	must(t, err)
	if s := av.Statuses; s[0].Shadow || !s[1].Shadow || s[1].Available != 0 {
		t.Errorf("statuses %+v", s)
	}
	for _, tokens := range []weir.Tokens{{"tpm": 1}, {"rpm": 10, "tpm": 1000}} {
		if fits, err := av.Fits(tokens); !fits || err != nil {
			t.Errorf("%v: fits %t, %v", tokens, fits, err)
		}
	}
	if fits, err := av.Fits(weir.Tokens{"tpm": -1}); fits || err == nil {
		t.Errorf("a negative amount: fits %t, %v", fits, err)
	}
}

// TestShadowLease: a debit that a shadow limit left out is neither returned nor forced, however the lease ends; a debit
// that fitted is treated as under an enforced limit.
func TestShadowLease(t *testing.T) {
	t.Parallel()
	ends := map[string]struct {
		end       func(*bundle, *weir.Lease) error
		in, leave int64 // left of 100 tpm if the 60 fitted; left of 40 if they were left out
	}{
		"commit":   {func(b *bundle, le *weir.Lease) error { return le.Commit(b.ctx) }, 40, 40},
		"rollback": {func(b *bundle, le *weir.Lease) error { return le.Rollback(b.ctx) }, 100, 40},
		"less":     {func(b *bundle, le *weir.Lease) error { return errOf(le.Adjust(b.ctx, weir.Tokens{"tpm": -20})) }, 60, 40},
		"more":     {func(b *bundle, le *weir.Lease) error { return errOf(le.Adjust(b.ctx, weir.Tokens{"tpm": 70})) }, -30, 40},
		"more, then no": {func(b *bundle, le *weir.Lease) error {
			return errors.Join(errOf(le.Adjust(b.ctx, weir.Tokens{"tpm": 70})), le.Rollback(b.ctx))
		}, 100, 40},
	}
	for name, tt := range ends {
		for _, carried := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " carried ", carried), func(t *testing.T) {
				t.Parallel()
				b := shadowed(t)
				carry := func(le *weir.Lease) *weir.Lease {
					if !carried {
						return le
					}
					text, err := json.Marshal(le.Token(le.Token("", time.Time{}).Entity, b.clock.Now().Add(time.Minute)))
					must(t, err)
					var h weir.LeaseToken
					must(t, json.Unmarshal(text, &h))
					return b.peer().resume(h)
				}
				le := b.take("alice", weir.Tokens{"rpm": 1, "tpm": 60})
				must(t, tt.end(b, carry(le)))
				b.wantLeftTPM("alice", tt.in)

				b.take("bob", weir.Tokens{"tpm": 60})
				le = b.take("bob", weir.Tokens{"rpm": 1, "tpm": 60})
				must(t, tt.end(b, carry(le)))
				b.wantLeftTPM("bob", tt.leave)
				if s := le.Decision().Statuses[1]; s.Requested != 60 || !s.WouldRefuse {
					t.Errorf("the decision forgot what was asked for: %+v", s)
				}
			})
		}
	}
}

func (b *bundle) wantLeftTPM(entity string, want int64) {
	b.t.Helper()
	av, err := b.Available(b.ctx, entity, "api")
	must(b.t, err)
	if got := av.Statuses[1].Available; got != want {
		b.t.Errorf("%s has %d tpm left, want %d", entity, got, want)
	}
}

// TestShadowAll: requests that share a bucket are left out together, because they are decided as one.
func TestShadowAll(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var events []weir.WouldRefuseEvent
	b := shadowed(t, func(c *weir.Config) {
		c.Observer = &weir.Observer{WouldRefuse: func(_ context.Context, e weir.WouldRefuseEvent) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		}}
	})
	ask := func(entity string, tpm int64) weir.Request {
		return weir.Request{Entity: entity, Resource: "api", Tokens: weir.Tokens{"rpm": 1, "tpm": tpm}}
	}
	leases, err := b.AcquireAll(b.ctx, []weir.Request{ask("alice", 60), ask("bob", 50), ask("alice", 60)})
	must(t, err)
	for i, want := range []bool{true, false, true} {
		if s := leases[i].Decision().Statuses[1]; s.WouldRefuse != want {
			t.Errorf("request %d: %+v", i, s)
		}
	}
	b.wantLeft("alice", weir.Tokens{"rpm": 8, "tpm": 100})
	b.wantLeft("bob", weir.Tokens{"rpm": 9, "tpm": 50})
	for _, le := range leases {
		must(t, le.Rollback(b.ctx))
	}
	b.wantLeft("alice", weir.Tokens{"rpm": 10, "tpm": 100})
	b.wantLeft("bob", weir.Tokens{"rpm": 10, "tpm": 100})
	want := []weir.WouldRefuseEvent{{Namespace: "default", Entity: "alice", Resource: "api", Limit: "tpm", Requested: 120, Allowed: true}}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Error(diff)
	}
}

// TestShadowObserved: observers are told by Acquire and by Allow, for admitted and refused requests, and for parents.
func TestShadowObserved(t *testing.T) {
	t.Parallel()
	c := &clock{now: noon}
	var events []weir.WouldRefuseEvent
	b := directOn(t, memory.New(&memory.Config{Now: c.Now}), c, func(cfg *weir.Config) {
		cfg.Observer = &weir.Observer{WouldRefuse: func(_ context.Context, e weir.WouldRefuseEvent) { events = append(events, e) }}
	})
	b.chain("child", "parent")
	b.set("child", "", weir.PerHour("rpm", 3))
	b.set("parent", "", weir.PerHour("rpm", 1).WithEnforce(weir.EnforceShadow))
	want := weir.WouldRefuseEvent{Namespace: "default", Entity: "parent", Resource: "api", Limit: "rpm", Requested: 1, Allowed: true}
	allow := func(allowed bool) {
		t.Helper()
		if ok, err := b.Allow(b.ctx, "child", "api"); ok != allowed || err != nil {
			t.Errorf("allowed %t, %v", ok, err)
		}
	}
	allow(true)
	if len(events) > 0 {
		t.Fatalf("nothing would have been refused: %v", events)
	}
	allow(true)
	b.take("child", weir.Tokens{"rpm": 1})
	allow(false)
	b.refused("child", weir.Tokens{"rpm": 1})
	refused := want
	refused.Allowed = false
	if diff := cmp.Diff([]weir.WouldRefuseEvent{want, want, refused, refused}, events); diff != "" {
		t.Error(diff)
	}
}

// TestShadowAllow: a shadow limit does not refuse in Allow either, without an observer and after Allow used its quick form.
func TestShadowAllow(t *testing.T) {
	t.Parallel()
	b := direct(t, &memory.Config{})
	b.set("", "", weir.PerHour("rpm", 3))
	b.wantAllows("alice", 3, "enforced")
	b.set("", "", weir.PerHour("rpm", 3).WithEnforce(weir.EnforceShadow))
	for range 20 {
		if ok, err := b.Allow(b.ctx, "alice", "api"); !ok || err != nil {
			t.Fatalf("a limit in shadow refused: %t, %v", ok, err)
		}
	}
	b.set("", "", weir.PerHour("rpm", 3))
	b.wantAllows("alice", 0, "enforced again: what was left out is not owed, what was spent is")
	b.wantLeft("alice", weir.Tokens{"rpm": 0})
}

// TestShadowWait: Wait waits only for limits that refuse.
func TestShadowWait(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 1), weir.PerHour("tpm", 1).WithEnforce(weir.EnforceShadow))
		b.take("alice", weir.Tokens{"rpm": 1, "tpm": 1})
		ctx, cancel := context.WithTimeout(b.ctx, 61*time.Second)
		defer cancel()
		began := time.Now()
		if _, err := b.Wait(ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpm": 1, "tpm": 1}}); err != nil {
			b.t.Fatal(err)
		}
		if waited := time.Since(began); waited > time.Minute {
			b.t.Errorf("waited %v", waited)
		}
	})
}

// TestEnforcePercent: a percentage covers a stable part of the entities, chosen by the documented rule, the same in every
// process.
func TestEnforcePercent(t *testing.T) {
	t.Parallel()
	quarter := weir.PerHour("rpm", 1).WithEnforce(25)
	var covered []string
	for i := range 40 {
		if id := fmt.Sprint("user-", i); quarter.EnforcedFor(id) {
			covered = append(covered, id)
		}
	}
	if diff := cmp.Diff(pinned, covered); diff != "" {
		t.Error(diff)
	}
	n := map[weir.Enforce]int{}
	for i := range 10_000 {
		id := fmt.Sprint("entity-", i)
		last := false
		for _, e := range []weir.Enforce{weir.EnforceShadow, 1, 25, 50, 99, weir.EnforceOn} {
			is := weir.PerHour("rpm", 1).WithEnforce(e).EnforcedFor(id)
			if last && !is {
				t.Fatalf("%s is covered by less than %v and not by it", id, e)
			}
			if last = is; is {
				n[e]++
			}
		}
	}
	if n[weir.EnforceShadow] != 0 || n[1] < 60 || n[1] > 140 || n[25] < 2350 || n[25] > 2650 || n[99] < 9850 || n[weir.EnforceOn] != 10_000 {
		t.Errorf("of 10,000 entities %v are covered", n)
	}

	b := setup(t)
	b.set("", "", quarter)
	other := b.peer()
	for i := range 40 {
		id := fmt.Sprint("user-", i)
		b.take(id, weir.Tokens{"rpm": 1})
		_, err := other.Acquire(b.ctx, weir.Request{Entity: id, Resource: "api", Tokens: weir.Tokens{"rpm": 1}})
		if refused := err != nil; refused != slices.Contains(covered, id) {
			t.Errorf("%s: error %v", id, err)
		}
	}
}

// pinned lists which of user-0 to user-39 a quarter covers, computed independently. The list must never change.
var pinned = []string{"user-0", "user-1", "user-3", "user-5", "user-8", "user-10", "user-13", "user-17", "user-19", "user-23", "user-25", "user-27", "user-30", "user-31", "user-33"}

func TestEnforceText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"on", "shadow", "1%", "25%", "99%"} {
		e, err := weir.ParseEnforce(text)
		if err != nil || e.String() != text {
			t.Errorf("%q: %v, %v", text, e, err)
		}
		l := weir.PerMinute("rpm", 5).WithEnforce(e)
		data, err := json.Marshal(l)
		must(t, err)
		var back weir.Limit
		must(t, json.Unmarshal(data, &back))
		if back != l {
			t.Errorf("%s: came back as %+v", data, back)
		}
	}
	for _, text := range []string{"", "off", "On", "0%", "100%", "25", "+5%", "05%", "-1%", "2.5%", "%", "300%", " 5%"} {
		if e, err := weir.ParseEnforce(text); err == nil {
			t.Errorf("%q was taken for %v", text, e)
		}
	}
	if data, err := json.Marshal(weir.PerMinute("rpm", 5)); string(data) != `{"name":"rpm","amount":5,"period":"min","burst":5}` {
		t.Errorf("%s, %v", data, err)
	}
	for _, e := range []weir.Enforce{-2, 100} {
		if err := (&admin.ScopedLimits{Limits: []weir.Limit{weir.PerMinute("rpm", 5).WithEnforce(e)}}).Validate(); err == nil {
			t.Errorf("%d is valid", e)
		}
	}
}

// TestEnforceSet: limits of a scope keep their enforce setting, and changing only that setting is a change. A request's own
// limits must be enforced.
func TestEnforceSet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, e := range []weir.Enforce{weir.EnforceOn, weir.EnforceShadow, 25} {
		want := weir.PerMinute("rpm", 1).WithEnforce(e)
		b.set("", "api", want)
		got, err := b.admin.Limits.Get(b.ctx, admin.Scope{Resource: "api"})
		must(t, err)
		if got.Limits[0] != want {
			t.Errorf("%+v, want %+v", got.Limits[0], want)
		}
		page, err := b.admin.Audit.List(b.ctx, admin.AuditQuery{Subject: "resource:api"})
		must(t, err)
		if len(page.Items) != i+1 {
			t.Errorf("%d events, want %d", len(page.Items), i+1)
		}
	}
	var config *weir.ConfigError
	req := weir.Request{Entity: "alice", Resource: "api", Limits: []weir.Limit{weir.PerMinute("rpm", 1).WithEnforce(25)}}
	if _, err := b.Acquire(b.ctx, req); !errors.As(err, &config) {
		t.Errorf("error %v", err)
	}
}
