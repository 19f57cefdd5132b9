package httpapi_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/serve/auth"
)

// TestAcquireKeepsLimits tries with role acquire all that might get around a limit: nothing admits more than the limit
// allows, net of what the token's own leases gave back.
func TestAcquireKeepsLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		acquire := func(rest string) string { return `{"entity":"alice","resource":"gpt-4",` + rest + `}` }
		lease := g.as(t, 200, "acquire", "POST /v1/acquire", acquire(`"tokens":{"tpm":100}`)).JSON["lease"].(string)
		g.as(t, 200, "acquire", "POST /v1/acquire", acquire(`"tokens":{"tpm":600}`)) // nothing is left
		settle := "POST /v1/leases/" + lease
		for _, tt := range []struct {
			status   int
			to, body string
			left     int64
		}{
			{429, "POST /v1/acquire", acquire(`"tokens":{"tpm":1}`), 0},
			{429, "POST /v1/acquire", acquire(`"tokens":{"tpm":1},"on_unavailable":"allow"`), 0},
			{403, "POST /v1/acquire", acquire(`"tokens":{"tpm":1},"limits":["tpm:1000/hour"]`), 0},
			{403, "POST /v1/acquire", acquire(`"tokens":{"tpm":1},"limits":["tpm:1000/hour"],"on_unavailable":"allow"`), 0},
			{400, "POST /v1/acquire", acquire(`"tokens":{"tpm":-1}`), 0},
			{400, settle + "/adjust", `{"tokens":{"tpm":-101}}`, 0},
			{404, "POST /v1/leases/" + g.lease["green"] + "/rollback", "", 0},
			{404, "POST /v1/leases/" + lease[:len(lease)-2] + "AA/rollback", "", 0},
			{403, "POST /v1/buckets/alice/gpt-4/forgive", "", 0},
			{403, "POST /v1/buckets/alice/gpt-4/reset", "", 0},
			{403, "DELETE /v1/limits?resource=gpt-4", "", 0},
			{200, settle + "/adjust", `{"tokens":{"tpm":-40}}`, 40},
			{409, settle + "/adjust", `{"tokens":{"tpm":-40}}`, 40},
			{409, settle + "/rollback", "", 40},
			{429, "POST /v1/acquire", acquire(`"tokens":{"tpm":41}`), 40},
			{200, "POST /v1/acquire", acquire(`"tokens":{"tpm":40}`), 0},
		} {
			g.as(t, tt.status, "acquire", tt.to, tt.body)
			if got := g.left(t, "blue"); got != tt.left {
				t.Errorf("%s %s: %d are left, want %d", tt.to, tt.body, got, tt.left)
			}
		}
		// Tokens that are used beyond the limit are debited, up to max_debt: ten times the burst.
		mine := g.lease["blue"]
		g.as(t, 422, "acquire", "POST /v1/leases/"+mine+"/adjust", `{"tokens":{"tpm":1000000000000}}`)
		if got := g.left(t, "blue"); got != -10_000 {
			t.Errorf("%d are left, want a debt of ten bursts", got)
		}
	})
}

// TestBoundLists reads lists with a token that is bound to team-a/*, with its own cursors and those of others: it sees
// nothing of team-b.
func TestBoundLists(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		g.add(t, auth.Entry{Name: "bound", Roles: []auth.Role{auth.Read}, Namespaces: []string{"blue"}, Entities: []string{"team-a/*"}})
		time.Sleep(time.Second) // until the server reads the file again
		const in = "?namespace=blue"
		for _, team := range []string{"team-a", "team-b"} {
			for i := range 3 {
				id := fmt.Sprintf("%s/%d", team, i)
				g.as(t, 201, "root", "POST /v1/entities"+in, `{"id":"`+id+`","parent":"bob"}`)
				for _, resource := range []string{"gpt-4", "gpt-5"} {
					g.as(t, 200, "root", "PUT /v1/limits"+in+"&entity="+id+"&resource="+resource, `{"limits":["tpm:1000/hour"]}`)
					g.as(t, 200, "root", "POST /v1/acquire", `{"entity":"`+id+`","resource":"`+resource+`","namespace":"blue","tokens":{"tpm":1}}`)
				}
			}
		}
		for _, tt := range []struct{ list, mine, theirs string }{
			{"/v1/entities?", "prefix=team-a/", "prefix=team-b/"},
			{"/v1/limits/list?", "entity=team-a/1", "entity=team-b/1"},
			{"/v1/buckets?", "entity=team-a/1", "entity=team-b/1"},
			{"/v1/usage?window=hourly&", "entity=team-a/1", "entity=team-b/1"},
		} {
			to := "GET " + tt.list
			g.as(t, 403, "bound", to, "")
			g.as(t, 403, "bound", to+tt.theirs, "")
			cursors := []string{""}
			for _, query := range []string{tt.mine, tt.theirs, ""} {
				a := g.as(t, 200, "root", to+query+"&namespace=blue&max=1", "")
				next, _ := a.JSON["next"].(string)
				if next == "" {
					t.Errorf("%s%s has one page: %s", tt.list, query, a.Body)
				}
				cursors = append(cursors, next)
			}
			for i, after := range cursors {
				query := tt.mine
				if after != "" {
					query += "&after=" + url.QueryEscape(after)
				}
				a := g.ask(t, "bound", to+query, "")
				switch {
				case i < 2 && (a.Code != 200 || !strings.Contains(a.Body.String(), "team-a/")):
					t.Errorf("%s%s: got %s", tt.list, query, whole(a))
				case strings.Contains(a.Body.String(), "team-b"):
					t.Errorf("%s%s shows another team: %s", tt.list, query, a.Body)
				}
			}
		}
		// A decision shows the parents' limits, to which the token is not bound.
		if a := g.as(t, 200, "bound", "GET /v1/explain?entity=team-a/1&resource=gpt-4", ""); !strings.Contains(a.Body.String(), `"bob"`) {
			t.Errorf("got %s", a.Body)
		}
		g.as(t, 403, "bound", "GET /v1/explain?entity=bob&resource=gpt-4", "")
	})
}
