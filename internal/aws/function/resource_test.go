package function_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

const (
	first = `namespace: tenant-alpha
system: {limits: {rpm: {capacity: 100}}}
entities:
  ann: {parent: team, cascade: true}
  team: {cascade: false, resources: {gpt-4: {limits: {rpm: {capacity: 5, burst: 9, refill_period: 1h}}}}}
`
	second = `namespace: tenant-alpha
system: {limits: {rpm: {capacity: 200}}}
`
)

// A resource is created in a new namespace, changed, moved to another namespace and deleted.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	created := b.send(b.event("Create", "1", properties(t, first)))
	id := wants(t, created, "SUCCESS", "")
	if id != "weir/limits/tenant-alpha/default" {
		t.Errorf("id %q", id)
	}
	if data := created["Data"].(map[string]any); data["Namespace"] != "tenant-alpha" || data["Revision"] != "1" || !strings.HasPrefix(data["ManifestHash"].(string), "sha256:") {
		t.Errorf("data %v", data)
	}
	if got := b.live("tenant-alpha"); !strings.Contains(got, "rpm: {capacity: 5, burst: 9, refill_period: 1h}") || !strings.Contains(got, "cascade: true") {
		t.Errorf("live\n%s", got)
	}

	ev := b.event("Update", "2", properties(t, second))
	ev.PhysicalResourceID = id
	if got := wants(t, b.send(ev), "SUCCESS", ""); got != id {
		t.Errorf("an update gave it the id %q", got)
	}
	if got := b.live("tenant-alpha"); got != "namespace: tenant-alpha\nsystem:\n  limits:\n    rpm: {capacity: 200}\n" {
		t.Errorf("live\n%s", got)
	}

	ev = b.event("Update", "3", properties(t, strings.ReplaceAll(second, "tenant-alpha", "tenant/beta")))
	ev.PhysicalResourceID = id
	moved := wants(t, b.send(ev), "SUCCESS", "")
	if moved != "weir/limits/tenant%2Fbeta/default" {
		t.Errorf("id %q", moved)
	}
	for _, old := range []string{id, moved} {
		ev = b.event("Delete", old, properties(t, second))
		ev.PhysicalResourceID = old
		if got := wants(t, b.send(ev), "SUCCESS", ""); got != old {
			t.Errorf("a delete gave it the id %q", got)
		}
	}
	for _, ns := range []string{"tenant-alpha", "tenant/beta"} {
		if got := b.live(ns); strings.Contains(got, "system") {
			t.Errorf("live\n%s", got)
		}
	}
}

// A manifest that is renamed takes its records along, and one with removed: keep leaves them when its resource is
// deleted.
func TestRenameAndKeep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := wants(t, b.send(b.event("Create", "1", properties(t, second))), "SUCCESS", "")
	renamed := properties(t, strings.Replace(second, "\n", "\nmanifest: new\nmoved: {from: [default]}\nremoved: keep\n", 1))
	ev := b.event("Update", "2", renamed)
	ev.PhysicalResourceID = old
	id := wants(t, b.send(ev), "SUCCESS", "")
	ev = b.event("Delete", "3", properties(t, second))
	ev.PhysicalResourceID = old
	wants(t, b.send(ev), "SUCCESS", "")
	ev = b.event("Delete", "4", renamed)
	ev.PhysicalResourceID = id
	wants(t, b.send(ev), "SUCCESS", "")
	if got := b.live("tenant-alpha"); id != "weir/limits/tenant-alpha/new" || !strings.Contains(got, "rpm: {capacity: 200}") {
		t.Errorf("%s: live\n%s", id, got)
	}
	several := map[string]any{"Manifest": map[string]any{"namespaces": []string{"a", "b"}}}
	wants(t, b.send(b.event("Create", "5", several)), "FAILED", "Manifest has 2 namespaces: declare a resource for each")
}

// Deleting a resource that never existed succeeds, so that a stack whose Create failed can be rolled back.
func TestDeleteOfNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bad := map[string]any{"Manifest": map[string]any{"namespace": "tenant-alpha", "resorces": map[string]any{}}}
	id := wants(t, b.send(b.event("Create", "1", bad)), "FAILED", "did you mean resources")
	for _, id := range []string{id, "weir/limits/never-was/default", "weir/another-table/default/default", "made-by-others", ""} {
		ev := b.event("Delete", id, bad)
		ev.PhysicalResourceID = id
		wants(t, b.send(ev), "SUCCESS", "")
	}
	for _, ns := range []string{"tenant-alpha", "never-was"} {
		if got := b.live(ns); !strings.Contains(got, "not found") {
			t.Errorf("a delete made %s:\n%s", ns, got)
		}
	}
}

// If some part of a resource could not be created, the resource has failed, and the response names every reason.
func TestFailedItems(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	_, err := admin.New(b.lim).Namespaces.Create(ctx, "tenant-alpha")
	must(t, err)
	alpha := b.lim.In("tenant-alpha")
	must(t, admin.New(alpha).Limits.Set(ctx, admin.Scope{}, weir.PerMinute("rpm", 7)))
	must(t, admin.New(alpha).Limits.Set(ctx, admin.Scope{Entity: "team", Resource: "gpt-4"}, weir.PerMinute("rpm", 7)))
	before := b.live("tenant-alpha")
	pr := properties(t, first)
	id := wants(t, b.send(b.event("Create", "1", pr)), "FAILED", "system exists and no manifest manages it: remove it from the manifest, or set the property Adopt: true to adopt such records; entity team on gpt-4 exists")
	if got := b.live("tenant-alpha"); got != before {
		t.Errorf("live\n%s", got)
	}
	ev := b.event("Delete", "2", pr)
	ev.PhysicalResourceID = id
	wants(t, b.send(ev), "SUCCESS", "")
	if got := b.live("tenant-alpha"); got != before {
		t.Errorf("the rollback left\n%s", got)
	}
	pr["Adopt"] = "perhaps"
	wants(t, b.send(b.event("Create", "3", pr)), "FAILED", "perhaps is neither true nor false")
	pr["Adopt"] = "true"
	id = wants(t, b.send(b.event("Create", "4", pr)), "SUCCESS", "")

	// An entity whose child was added by hand stays, and everything else is deleted.
	must(t, admin.New(alpha).Entities.Create(ctx, admin.Entity{ID: "bob", Parent: "ann"}))
	ev = b.event("Delete", "5", pr)
	ev.PhysicalResourceID = id
	wants(t, b.send(ev), "FAILED", "bob")
	must(t, admin.New(alpha).Entities.Delete(ctx, "bob", admin.DeleteOptions{}))
	wants(t, b.send(ev), "SUCCESS", "")
}

// A reason too long for CloudFormation is cut and names the place of the rest.
func TestLongReason(t *testing.T) {
	t.Parallel()
	b := setup(t)
	limits := make(map[string]any)
	for i := range 300 {
		limits[fmt.Sprintf("limit-%03d", i)] = map[string]any{"capacity": "<none> \u4e00"}
	}
	resp := b.send(b.event("Create", "1", map[string]any{"Manifest": map[string]any{"namespace": "x", "system": map[string]any{"limits": limits}}}))
	wants(t, resp, "FAILED", "the full text is in the function's log")
	if n := len(resp["Reason"].(string)); n < 3000 {
		t.Errorf("cut to %d bytes", n)
	}
}

// An event delivered twice, even concurrently, gets the same response, and an old event undoes nothing.
func TestDeliveredTwice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	create := b.event("Create", "1", properties(t, first))
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if _, err := b.Handle(t.Context(), create.encode(t)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, resp := range b.responses {
		if id := wants(t, resp, "SUCCESS", ""); id != "weir/limits/tenant-alpha/default" {
			t.Errorf("id %q", id)
		}
	}
	ev := b.event("Update", "2", properties(t, second))
	ev.PhysicalResourceID = "weir/limits/tenant-alpha/default"
	wants(t, b.send(ev), "SUCCESS", "")
	live := b.live("tenant-alpha")
	wants(t, b.send(create), "SUCCESS", "")
	if got := b.live("tenant-alpha"); got != live {
		t.Errorf("an old event made it\n%s", got)
	}
	ev = b.event("Delete", "3", nil)
	ev.PhysicalResourceID = "weir/limits/tenant-alpha/default"
	wants(t, b.send(ev), "SUCCESS", "")
	wants(t, b.send(b.event("Create", "4", properties(t, second))), "SUCCESS", "")
	wants(t, b.send(ev), "SUCCESS", "")
	if got := b.live("tenant-alpha"); got != live {
		t.Errorf("an old delete left\n%s", got)
	}
}

// Two resources cannot own one manifest. If one takes it over, deleting the other deletes nothing.
func TestTwoOwners(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := wants(t, b.send(b.event("Create", "1", properties(t, first))), "SUCCESS", "")
	live := b.live("tenant-alpha")
	other := b.event("Create", "2", properties(t, second))
	other.LogicalResourceID = "Others"
	nothing := wants(t, b.send(other), "FAILED", `manifest "default" of namespace "tenant-alpha" was applied by cloudformation:`)
	rollback := b.event("Delete", "3", other.ResourceProperties)
	rollback.LogicalResourceID, rollback.PhysicalResourceID = "Others", nothing
	wants(t, b.send(rollback), "SUCCESS", "")
	if got := b.live("tenant-alpha"); got != live {
		t.Errorf("live\n%s", got)
	}
	other.RequestID = "Create 4"
	other.ResourceProperties["Adopt"] = "true"
	wants(t, b.send(other), "SUCCESS", "")
	live = b.live("tenant-alpha")
	ev := b.event("Delete", "5", nil)
	ev.PhysicalResourceID = id
	wants(t, b.send(ev), "SUCCESS", "")
	if got := b.live("tenant-alpha"); got != live {
		t.Errorf("the former owner left\n%s", got)
	}
}

// Every event is answered before the function's time is up, whatever happens.
func TestAlwaysAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, alwaysAnswers)
}

func alwaysAnswers(t *testing.T) {
	b := setup(t)
	for name, open := range map[string]func(context.Context) (*weir.Limiter, error){
		"panic: no": func(context.Context) (*weir.Limiter, error) { panic("no") },
		"the function ran out of time": func(ctx context.Context) (*weir.Limiter, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"ran out of time: changes": func(context.Context) (*weir.Limiter, error) { // and does not notice that the time is up
			<-t.Context().Done()
			return nil, t.Context().Err()
		},
		"no table": func(context.Context) (*weir.Limiter, error) { return nil, fmt.Errorf("no table") },
	} {
		p := *b.Provisioner
		p.Open = open
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		ev, err := json.Marshal(map[string]any{
			"RequestType": "Create", "ResponseURL": b.url, "RequestId": name, "StackId": "s", "LogicalResourceId": "l",
			"ResourceProperties": properties(t, first),
		})
		must(t, err)
		if _, err := p.Handle(ctx, ev); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if ctx.Err() != nil {
			t.Errorf("%s: too late", name)
		}
		cancel()
		b.mu.Lock()
		if n := len(b.responses); n == 0 || b.responses[n-1]["RequestId"] != name || b.responses[n-1]["Status"] != "FAILED" || !strings.Contains(b.responses[n-1]["Reason"].(string), name) {
			t.Errorf("%s: answers %v", name, b.responses)
		}
		b.mu.Unlock()
	}
}

// A response that does not arrive is sent again. A response that is refused is an error, which does not reveal the address.
func TestAnswerAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.status = []int{http.StatusServiceUnavailable, http.StatusTooManyRequests}
	wants(t, b.send(b.event("Create", "1", properties(t, first))), "SUCCESS", "")
	b.mu.Lock()
	b.status = []int{http.StatusForbidden}
	b.mu.Unlock()
	ev, err := json.Marshal(map[string]any{"RequestType": "Delete", "ResponseURL": b.url})
	must(t, err)
	if _, err := b.Handle(t.Context(), ev); err == nil || !strings.Contains(err.Error(), "403") || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
}
