package function_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/aws/function"
)

const tenant = `{
	"namespace": "tenant-alpha",
	"system": {"on_unavailable": "allow", "limits": {"rpm": {"capacity": 10000}}},
	"resources": {"gpt-4": {"limits": {"rpm": {"capacity": 1000}, "tpm": {"capacity": 50000, "burst": 75000, "refill_amount": 50000, "refill_period": 60}}}},
	"entities": {"user-123": {"name": "Ann", "resources": {
		"gpt-4": {"limits": {"rpm": {"capacity": 500, "refill_period": 3600}}},
		"_default_": {"limits": {"rpm": {"capacity": 200, "enforce": "shadow"}}}}}}}`

// Planning writes nothing, and applying twice writes once.
func TestPlanAndApply(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, text := b.ask(`{"action": "plan", "manifest": ` + tenant + `}`)
	golden(t, "planned.json", text)
	if _, err := admin.New(b.lim).Namespaces.Get(t.Context(), "tenant-alpha"); !errors.Is(err, weir.ErrNotFound) {
		t.Fatalf("a plan made the namespace: %v", err)
	}
	_, text = b.ask(`{"action": "apply", "by": "ci", "manifest": ` + tenant + `}`)
	golden(t, "applied.json", text)
	_, text = b.ask(`{"action": "apply", "manifest": ` + tenant + `}`)
	golden(t, "again.json", text)
	_, text = b.ask(`{"action": "apply", "manifest": {"namespace": "tenant-alpha"}}`)
	golden(t, "removed.json", text)
	revs, err := admin.New(b.lim.In("tenant-alpha")).Manifests.Revisions(t.Context(), admin.RevisionQuery{Manifest: "default"})
	must(t, err)
	if n := len(revs.Items); n != 2 || revs.Items[1].By != "lambda:ci" {
		t.Errorf("revisions %+v", revs.Items)
	}
}

// Changes write limits as a manifest does, also quotas and balances.
func TestLimitsOfChanges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const limits = `{"credits":{"refill_period":"balance","max_debt":9},` +
		`"jobs":{"capacity":3,"burst":4,"refill_period":"1500ms","enforce":"shadow","returns":"strict"},` +
		`"rpm":{"capacity":60,"refill_period":3600},"usd":{"capacity":5000,"refill_period":"month@Europe/Berlin"}}`
	a, _ := b.ask(`{"action": "plan", "manifest": {"namespace": "x", "resources": {"r": {"limits": ` + limits + `}}}}`)
	for _, c := range a.Changes {
		if got, err := json.Marshal(c.Limits); c.Level == "resource" && err == nil && string(got) == limits {
			return
		}
	}
	t.Errorf("changes %+v, want limits %s", a.Changes, limits)
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a, text := b.ask(`{"action": "apply", "manifest": {"namespace": "x", "resorces": {},
		"resources": {"gpt-4": {"limits": {"rpm": {"capacity": -1}, "tpm": {"burst": 5}}}}}}`)
	golden(t, "mistakes.json", text)
	if len(a.Errors) != 3 {
		t.Errorf("%d of 3 mistakes", len(a.Errors))
	}
	for payload, want := range map[string]string{
		`{"manifest": {"namespace": "x"}}`:                                `action \"\" is neither plan, apply nor read`,
		`{"action": "destroy", "manifest": {"namespace": "x"}}`:           `\"destroy\" is neither`,
		`{"action": "plan"}`:                                              "either manifest or saved",
		`{"action": "plan", "manifest": {"namespace": "x"}, "saved": {}}`: "either manifest or saved",
		`{"action": "plan", "manifst": {"namespace": "x"}}`:               `unknown field \"manifst\"`,
		`{"action": "read", "read": "deleteNamespace", "query": {}}`:      `\"deleteNamespace\" is not an operation that reads manifests`,
		`{"action": "read", "read": "listManifests", "query": []}`:        "query of listManifests: ",
		`{"action": "plan", "manifest": {"namespaces": ["x", "y"]}}`:      "2 namespaces: give one at a time",
		`[]`: "is not a request such as {action, manifest}",
		`{"action": "apply", "saved": {"format": "weir-plan-1", "plans": []}}`:                   "holds 0 plans",
		`{"action": "plan", "manifest": {"namespace": "x", "entities": {"a": {"parent": "b"}}}}`: "neither exists nor is declared",
	} {
		if a, text := b.ask(payload); a.Status != function.Failed || !strings.Contains(text, want) {
			t.Errorf("%s: %s", payload, text)
		}
	}
	if got := b.live("x"); !strings.Contains(got, "not found") {
		t.Errorf("written: %s", got)
	}
}

// A saved plan is applied unchanged, or not at all.
func TestSaved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a, _ := b.ask(`{"action": "plan", "detail": true, "manifest": ` + tenant + `}`)
	payload, err := json.Marshal(function.Request{Action: "apply", Saved: a.Saved})
	must(t, err)
	applied, text := b.ask(string(payload))
	if applied.Status != function.Applied || applied.ManifestHash != a.ManifestHash || applied.Result.Created != 5 {
		t.Fatal(text)
	}
	if again, text := b.ask(string(payload)); again.Status != function.Failed || !strings.Contains(text, "changed since") {
		t.Fatal(text)
	}
}

// Unmanaged records that already exist are taken over only on request.
func TestAdopt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	must(t, admin.New(b.lim).Limits.Set(t.Context(), admin.Scope{Resource: "gpt-4"}, weir.PerMinute("rpm", 7)))
	const payload = `{"action": "apply", "manifest": {"namespace": "default", "resources": {"gpt-4": {"limits": {"rpm": {"capacity": 9}}}}}`
	if a, text := b.ask(payload + `}`); a.Status != function.Failed || !strings.Contains(text, "adopt") || a.Changes[0].Action != "adopt" {
		t.Fatal(text)
	}
	if a, text := b.ask(payload + `, "adopt": true}`); a.Status != function.Applied || a.Result.Adopted != 1 {
		t.Fatal(text)
	}
}
