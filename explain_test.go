package weir_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

// explained returns the explanation of a request on "api", and fails the test if explaining did more than read.
func (b *bundle) explained(entity string, tokens weir.Tokens) weir.Explanation {
	b.t.Helper()
	x, err := b.Explain(b.ctx, weir.Request{Entity: entity, Resource: "api", Tokens: tokens})
	must(b.t, err)
	return x
}

// scopesText formats levels as in "entity - resource + system": + marks the level that applies, - marks a level without
// limits.
func scopesText(levels []weir.ExplainedScope) string {
	var parts []string
	for _, l := range levels {
		text := string(l.Source)
		switch {
		case l.Applies:
			text = "+" + text
		case !l.Set:
			text = "-" + text
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

func TestExplainLevels(t *testing.T) {
	t.Parallel()
	rpm := weir.PerMinute("rpm", 10)
	b := setup(t)
	want := func(when, levels string) {
		t.Helper()
		x := b.explained("alice", nil)
		if got := scopesText(x.Chain[0].Scopes); got != levels {
			t.Errorf("%s: %q, want %q", when, got, levels)
		}
	}
	x := b.explained("alice", weir.Tokens{"any": 1})
	if got := scopesText(x.Chain[0].Scopes); !errors.Is(x.Err, weir.ErrNoLimits) || got != "-entity -entity-default -resource -system" {
		t.Errorf("no limits: %v, %s", x.Err, got)
	}
	b.set("", "", rpm)
	want("system", "-entity -entity-default -resource +system")
	b.set("", "api", rpm)
	want("resource", "-entity -entity-default +resource system")
	b.set("alice", "", rpm)
	want("default", "-entity +entity-default resource system")
	b.set("alice", "api", rpm)
	want("entity", "+entity entity-default resource system")
	must(t, b.admin.Limits.Delete(b.ctx, admin.Scope{Entity: "alice"}))
	must(t, b.admin.Limits.Delete(b.ctx, admin.Scope{Resource: "api"}))
	want("entity alone", "+entity -entity-default -resource system")

	x, err := b.Explain(b.ctx, weir.Request{Entity: "alice", Resource: "api", Limits: []weir.Limit{weir.PerDay("rpd", 5)}})
	must(t, err)
	if got := scopesText(x.Chain[0].Scopes); got != "+request" || x.Chain[0].Limits[0].Limit.Name != "rpd" {
		t.Errorf("a request's own: %s, %+v", got, x.Chain[0].Limits)
	}
}

func TestExplainChain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.chain("alice", "team", "org")
	cascade := false
	_, err := b.admin.Entities.Update(b.ctx, "team", admin.EntityUpdate{Cascade: &cascade})
	must(t, err)
	b.set("alice", "api", weir.PerMinute("rpm", 100), weir.PerMinute("tpm", 1000))
	b.set("team", "api", weir.PerMinute("rpm", 10))
	b.take("alice", weir.Tokens{"rpm": 4, "tpm": 500})

	x := b.explained("alice", one)
	if len(x.Chain) != 2 || !x.Chain[0].Exists || !x.Chain[0].Cascade || x.Chain[1].Cascade || x.Chain[1].Parent != "org" {
		t.Fatalf("chain %+v", x.Chain)
	}
	if n, l := x.Binding(); n == nil || n.ID != "alice" || l.Limit.Name != "tpm" || l.Used() != 0.5 {
		t.Errorf("binds: %+v of %+v", l, n)
	}
	if x.Err != nil || x.RetryAfter() != 0 || x.OnUnavailable != weir.OnUnavailableDeny || x.OnUnavailableFrom != "config" || !x.At.Equal(noon) {
		t.Errorf("%+v", x)
	}

	// The requested tokens can make another limit bind.
	x = b.explained("alice", weir.Tokens{"rpm": 7})
	if n, l := x.Binding(); n == nil || n.ID != "team" || !l.Status.Refused || x.RetryAfter() != 6*time.Second {
		t.Errorf("refused: %+v of %+v, %v", l, n, x.Err)
	}
	x = b.explained("alice", weir.Tokens{"rpm": 7, "tpm": 2000})
	if n, l := x.Binding(); !errors.Is(x.Err, weir.ErrExceedsBurst) || n.ID != "alice" || l.Limit.Name != "tpm" || !l.Never() || x.RetryAfter() != 0 {
		t.Errorf("never: %v, %+v of %+v", x.Err, l, n)
	}

	ghost := b.peer()
	ghost.set("", "", weir.PerMinute("rpm", 3))
	if x := ghost.explained("nobody", nil); x.Chain[0].Exists || x.Chain[0].Limits[0].Status.Source != weir.SourceSystem {
		t.Errorf("an unknown entity: %+v", x.Chain)
	} else if n, _ := x.Binding(); n != nil {
		t.Error("a full bucket binds")
	}
}

func TestExplainEnforce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerMinute("on", 10), weir.PerMinute("tried", 1).WithEnforce(weir.EnforceShadow), weir.PerMinute("half", 1).WithEnforce(50))
	b.take("alice", weir.Tokens{"on": 1, "tried": 1, "half": 1})
	x := b.explained("alice", weir.Tokens{"tried": 5})
	var got []string
	for _, l := range x.Chain[0].Limits {
		got = append(got, fmt.Sprintf("%s %s %v", l.Limit.Name, l.Limit.Enforce, !l.Status.Shadow))
	}
	want := fmt.Sprintf("[on on true tried shadow false half 50%% %v]", weir.PerMinute("half", 1).WithEnforce(50).EnforcedFor("alice"))
	if fmt.Sprint(got) != want || x.Err != nil || !x.Chain[0].Limits[1].Status.WouldRefuse || x.Chain[0].Limits[1].Never() {
		t.Errorf("%v, want %s; %v", got, want, x.Err)
	}
	if _, l := x.Binding(); l == nil || l.Status.Shadow {
		t.Errorf("binds: %+v", l)
	}
}

func TestExplainManifests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lock, err := b.admin.Manifests.Lock(b.ctx, "plans", time.Minute)
	must(t, err)
	mark := &admin.Managed{Manifest: "plans", Hash: "x"}
	for _, err := range b.admin.Manifests.Declare(b.ctx, []admin.DeclaredChange{
		{After: admin.Declared{Limits: &admin.ScopedLimits{Scope: admin.Scope{Resource: "api"}, Limits: []weir.Limit{weir.PerMinute("rpm", 2)}, Managed: mark}}},
		{After: admin.Declared{Entity: &admin.Entity{ID: "alice", Managed: &admin.Managed{Manifest: "people"}}}},
	}) {
		must(t, err)
	}
	_, err = lock.Record(admin.WithPrincipal(b.ctx, "ci"), admin.Revision{Hash: "h"}, []byte("text"))
	must(t, err)

	x := b.explained("alice", nil)
	if len(x.Manifests) != 1 || x.Manifests[0].Revision != 1 || x.Manifests[0].By != "ci" {
		t.Errorf("manifests %+v", x.Manifests)
	}
	if n := x.Chain[0]; n.Manifest != "people" || n.Limits[0].Status.Manifest != "plans" {
		t.Errorf("%+v", n)
	}
	// Decisions report the binding limit too, without another read.
	b.take("alice", weir.Tokens{"rpm": 2})
	b.fake.counts()
	_, err = b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: one})
	var over *weir.ExceededError
	if !errors.As(err, &over) || over.Statuses[0].Manifest != "plans" {
		t.Errorf("refused with %v", err)
	}
	_, err = b.AcquireAll(b.ctx, []weir.Request{{Entity: "alice", Resource: "api", Tokens: one}})
	if !errors.As(err, &over) || over.Statuses[0].Manifest != "plans" {
		t.Errorf("all refused with %v", err)
	}
	b.wantReads(0, "refusals")
}

func TestExplainErrors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerMinute("rpm", 2))
	for _, req := range []weir.Request{
		{Resource: "api"},
		{Entity: "alice"},
		{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"tpm": 1}},
		{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpm": -1}},
		{Entity: "alice", Resource: "api", OnUnavailable: "perhaps"},
		{Entity: "alice", Resource: "api", Limits: []weir.Limit{{Name: "rpm"}}},
	} {
		if _, err := b.Explain(b.ctx, req); !errors.As(err, new(*weir.ConfigError)) {
			t.Errorf("%+v: %v", req, err)
		}
	}
	_, err := b.In("ghost").Explain(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
	wantErr(t, err, weir.ErrNotFound)
}

// If a bucket follows newer limits than the cached ones, Explain reports the newer ones, as Acquire would.
func TestExplainStale(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerMinute("rpm", 5))
	b.explained("alice", nil)
	other := b.peer()
	other.set("", "", weir.PerMinute("rpm", 7))
	other.take("alice", one)
	if l := b.explained("alice", nil).Chain[0].Limits[0]; l.Limit.Amount != 7 || l.Status.Available != 6 {
		t.Errorf("explains %+v", l)
	}
}

func TestExplainUnavailable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	must(t, b.admin.Limits.SetOnUnavailable(b.ctx, admin.Scope{}, weir.OnUnavailableAllow))
	b.set("", "", weir.PerMinute("rpm", 5))
	x := b.explained("alice", nil)
	if x.OnUnavailable != weir.OnUnavailableAllow || x.OnUnavailableFrom != "system" {
		t.Errorf("%s from %s", x.OnUnavailable, x.OnUnavailableFrom)
	}
	x, err := b.Explain(b.ctx, weir.Request{Entity: "alice", Resource: "api", OnUnavailable: weir.OnUnavailableDeny})
	must(t, err)
	if x.OnUnavailable != weir.OnUnavailableDeny || x.OnUnavailableFrom != "request" {
		t.Errorf("%s from %s", x.OnUnavailable, x.OnUnavailableFrom)
	}
}

// Acquire does what Explain predicts.
func TestExplainForetells(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := setup(t)
		b.chain("alice", "org")
		limit := func(name string) weir.Limit {
			l := weir.PerMinute(name, rapid.Int64Range(1, 20).Draw(rt, "amount")).WithBurst(rapid.Int64Range(1, 30).Draw(rt, "burst"))
			return l.WithEnforce(rapid.SampledFrom([]weir.Enforce{weir.EnforceOn, weir.EnforceOn, weir.EnforceShadow, 50}).Draw(rt, "enforce"))
		}
		b.set("alice", "api", limit("rpm"), limit("tpm"))
		if rapid.Bool().Draw(rt, "parent") {
			b.set("org", "api", limit("tpm"))
		}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			b.clock.advance(time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(rt, "time")))
			req := weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{
				"rpm": rapid.Int64Range(0, 10).Draw(rt, "rpm"), "tpm": rapid.Int64Range(0, 32).Draw(rt, "tpm"),
			}}
			x, err := b.Explain(b.ctx, req)
			must(t, err)
			_, err = b.Acquire(b.ctx, req)
			if fmt.Sprint(x.Err) != fmt.Sprint(err) {
				rt.Fatalf("explained %v, came to %v", x.Err, err)
			}
			_, l := x.Binding()
			var over *weir.ExceededError
			if errors.As(err, &over) && (l == nil || l.Status.RetryAfter != over.RetryAfter) {
				rt.Fatalf("binds %+v, refused for %s", l, over.RetryAfter)
			}
		}
	})
}

// TestExplainGrid: an explanation has, for each entity, the limits on the resource, its group and the total, with the
// scopes of each.
func TestExplainGrid(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.grid()
	b.take("key", weir.Tokens{"tpd": 60})
	x := b.explained("key", weir.Tokens{"tpd": 41})
	var rows []string
	for _, n := range x.Chain {
		cells := []string{scopesText(n.Scopes)}
		for _, g := range []string{weir.GroupResource("apis"), weir.TotalResource} {
			cells = append(cells, g+": "+scopesText(slices.DeleteFunc(slices.Clone(n.Groups), func(s weir.ExplainedScope) bool {
				return s.Resource != g
			})))
		}
		for _, l := range n.Limits {
			cells = append(cells, fmt.Sprintf("%s %d", l.Status.Resource, l.Status.Available))
		}
		rows = append(rows, n.ID+": "+strings.Join(cells, ", "))
	}
	want := []string{
		"key: +entity -entity-default -resource -system, _group_apis: +entity resource, _total_: +entity -resource, " +
			"api 40, _group_apis 40, _total_ 40",
		"team: -entity -entity-default -resource -system, _group_apis: -entity +resource, _total_: +entity -resource, " +
			"_group_apis 40, _total_ 40",
	}
	if !slices.Equal(rows, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
	if over, ok := errors.AsType[*weir.ExceededError](x.Err); !ok || len(over.Statuses) != 5 {
		t.Errorf("got %v", x.Err)
	}
}

// TestExplainStrict: returns to a quota are strict in any case; an explanation has that only where somebody set it.
func TestExplainStrict(t *testing.T) {
	t.Parallel()
	quota, err := weir.ParseLimit("usd:5/month@UTC")
	must(t, err)
	strict, rate := quota, weir.PerMinute("rpm", 5)
	strict.Name, strict.Strict, rate.Strict = "eur", true, true
	b := setup(t)
	b.set("", "", quota, strict, rate)
	got := make(map[string]bool)
	for _, l := range b.explained("alice", nil).Chain[0].Limits {
		got[l.Limit.Name] = l.Limit.Strict
	}
	if want := map[string]bool{"usd": false, "eur": true, "rpm": true}; !maps.Equal(got, want) {
		t.Errorf("strict: %v, want %v", got, want)
	}
}
