// Package accesstest_test tries every route and call, over HTTP, gRPC and Envoy's service, with tokens of all kinds.
package accesstest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/web"
)

// accessTable states who may use each route and call. A route or call without a row fails TestAccess.
//
//	role   anyone; any: any valid token; a role
//	where  namespace: in the namespace that it names; all: in all namespaces; manifest, lease: in that of its content
//	about  what a token that is bound to entities or resources must name: an entity, a resource, or the prefix of
//	       entities. Without that, the answer concerns the whole namespace, and a bound token is refused.
//
// A request that brings limits (acquire, batch, Envoy) also needs the permission override, and Envoy's needs envoy. An
// adjustment of an entity needs adjust, and one that gives back also return.
const accessTable = `
GET    /healthz                                  anyone
GET    /readyz                                   anyone
GET    /v1/openapi.json                          anyone
GET    /v1/manifests/schema                      anyone
GET    /v1/whoami                                any
GET    /metrics                                  read     all

POST   /v1/acquire                               acquire  namespace  entity,resource
POST   /v1/acquire/batch                         acquire  namespace  entity,resource
POST   /v1/adjust                                acquire  namespace  entity,resource
POST   /v1/leases/{id}/adjust                    acquire  lease      entity,resource
POST   /v1/leases/{id}/commit                    acquire  lease      entity,resource
POST   /v1/leases/{id}/rollback                  acquire  lease      entity,resource
POST   /v1/leases/{id}/renew                     acquire  lease      entity,resource
GET    /v1/available                             read     namespace  entity,resource
GET    /v1/watch                                 read     namespace  entity,resource
GET    /v1/explain                               read     namespace  entity,resource

GET    /v1/entities                              read     namespace  prefix
GET    /v1/entities/{id}                         read     namespace  entity
GET    /v1/entities/{id}/children                read     namespace
POST   /v1/entities                              admin    namespace
PATCH  /v1/entities/{id}                         admin    namespace
DELETE /v1/entities/{id}                         admin    namespace
GET    /v1/limits                                read     namespace  entity,resource
PUT    /v1/limits                                admin    namespace
DELETE /v1/limits                                admin    namespace
GET    /v1/limits/list                           read     namespace  entity,resource
GET    /v1/resources                             read     namespace
GET    /v1/plans                                 read     namespace
DELETE /v1/plans/{id}                            admin    namespace
GET    /v1/system                                read     namespace
PUT    /v1/system                                admin    namespace

GET    /v1/buckets                               read     namespace  entity,resource
GET    /v1/buckets/{entity}/{resource}           read     namespace  entity,resource
POST   /v1/buckets/{entity}/{resource}/reset     admin    namespace
POST   /v1/buckets/{entity}/{resource}/forgive   admin    namespace
GET    /v1/entities/{entity}/balances            read     namespace  entity,resource
POST   /v1/entities/{entity}/balances/{limit}    credit   namespace  entity,resource
GET    /v1/entities/{entity}/balances/{limit}/history  read  namespace  entity,resource
GET    /v1/usage                                 read     namespace  entity,resource
GET    /v1/usage?by=store                        read     all
GET    /v1/usage/summary                         read     namespace  entity,resource
GET    /v1/usage/summary?by=store                read     all
GET    /v1/usage/stream                          read     namespace  entity,resource
GET    /v1/usage/stream?by=store                 read     all
GET    /v1/usage/top                             read     namespace  resource
GET    /v1/usage/top?by=store                    read     all
GET    /v1/overview                              read     namespace
GET    /v1/audit                                 read     namespace
GET    /v1/audit?subject=namespace:green         read     all
GET    /v1/audit?subject=secret:lease            read     all

GET    /v1/manifests                             read     namespace
GET    /v1/manifests/export                      read     namespace
GET    /v1/manifests/{name}/history              read     namespace
GET    /v1/manifests/{name}/history/{revision}   read     namespace
POST   /v1/manifests/{name}/rollback             admin    namespace
POST   /v1/manifests/validate                    read     manifest
POST   /v1/manifests/plan                        read     manifest
POST   /v1/manifests/diff                        read     manifest
POST   /v1/manifests/apply                       admin    manifest

GET    /v1/namespaces                            read     all
GET    /v1/namespaces/{name}                     read     all
POST   /v1/namespaces                            admin    all
PATCH  /v1/namespaces/{name}                     admin    all
DELETE /v1/namespaces/{name}                     admin    all
POST   /v1/namespaces/{name}/recover             admin    all
POST   /v1/namespaces/{name}/purge               admin    all
POST   /v1/refresh                               admin    all

CALL   weir.v1.Limiter/Acquire                   acquire  namespace  entity,resource
CALL   weir.v1.Limiter/AcquireBatch              acquire  namespace  entity,resource
CALL   weir.v1.Limiter/Adjust                    acquire  lease      entity,resource
CALL   weir.v1.Limiter/AdjustEntity              acquire  namespace  entity,resource
CALL   weir.v1.Limiter/AddCredits                credit   namespace  entity,resource
CALL   weir.v1.Limiter/ListBalances              read     namespace  entity,resource
CALL   weir.v1.Limiter/Commit                    acquire  lease      entity,resource
CALL   weir.v1.Limiter/Rollback                  acquire  lease      entity,resource
CALL   weir.v1.Limiter/Renew                     acquire  lease      entity,resource
CALL   weir.v1.Limiter/Available                 read     namespace  entity,resource
CALL   weir.v1.Limiter/Watch                     read     namespace  entity,resource
CALL   envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit  acquire  namespace  entity,resource
CALL   grpc.health.v1.Health/Check               anyone
CALL   grpc.health.v1.Health/List                anyone
CALL   grpc.health.v1.Health/Watch               anyone
CALL   grpc.reflection.v1.ServerReflection/ServerReflectionInfo       any
CALL   grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo  any
`

// row is a row of the table.
type row struct {
	method, path, query string
	role, where         string
	entity, resource    bool // whether it names one
	prefix              bool
}

func (r *row) is(part string) bool { return strings.Contains(r.path, part) }

// brings reports whether a request may bring limits, or give tokens back.
func (r *row) brings() bool {
	return r.is("/v1/acquire") || r.is("Acquire") || r.is("ShouldRateLimit") || r.adjusts()
}

// adjusts reports whether a request adjusts an entity.
func (r *row) adjusts() bool { return r.is("/v1/adjust") || r.is("AdjustEntity") }

func accessRows(t *testing.T) (rows []row) {
	t.Helper()
	for line := range strings.Lines(accessTable) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		f = append(f, "", "")
		r := row{method: f[0], role: f[2], where: f[3]}
		r.path, r.query, _ = strings.Cut(f[1], "?")
		for about := range strings.SplitSeq(f[4], ",") {
			r.entity, r.resource = r.entity || about == "entity", r.resource || about == "resource"
			r.prefix = r.prefix || about == "prefix"
		}
		rows = append(rows, r)
	}
	return rows
}

// asked is what a request names.
type asked struct {
	namespace        string // "": none
	entity, resource string // entity may be a prefix
	limits           bool   // it brings some, or gives tokens back
	lease            string
}

// holder is a token, and what it was made for.
type holder struct {
	auth.Entry
	token string
	valid bool
}

// may is the model of what a token may do.
func (h *holder) may(r *row, a *asked, own string) bool {
	all, bound := slices.Contains(h.Namespaces, "*"), len(h.Entities)+len(h.Resources) > 0
	has := func(p auth.Permission) bool { return slices.Contains(h.Permissions, p) }
	namespace := a.namespace
	if namespace == "" {
		if namespace = own; len(h.Namespaces) == 1 && !all && !r.is("ShouldRateLimit") {
			namespace = h.Namespaces[0]
		}
	}
	switch {
	case r.role == "anyone":
		return true
	case !h.valid:
		return false
	case r.role == "any":
		return true
	case !slices.Contains(h.Roles, auth.Role(r.role)) && !slices.Contains(h.Roles, auth.Admin):
		return false
	case r.where == "all":
		return all && !bound
	case r.where == "lease" && namespace == "nowhere": // forged
		return false
	case !all && !slices.Contains(h.Namespaces, namespace):
		return false
	case len(h.Entities) > 0 && !(r.entity || r.prefix):
		return false
	case len(h.Entities) > 0 && !strings.HasPrefix(a.entity, "team-a/"):
		return false
	case len(h.Resources) > 0 && (!r.resource || a.resource != "gpt-4"):
		return false
	case r.adjusts():
		return has(auth.Adjust) && (!a.limits || has(auth.Return))
	case a.limits && !has(auth.Override):
		return false
	}
	return !r.is("ShouldRateLimit") || has(auth.Envoy)
}

// asks returns what requests of a row may name.
func (g *matrix) asks(r *row) (all []asked) {
	namespaces, entities, resources, limits := []string{""}, []string{""}, []string{""}, []bool{false}
	if r.where == "namespace" || r.where == "manifest" || r.where == "lease" {
		namespaces = []string{"", "blue", "green", "nowhere"}
	}
	if r.where != "namespace" {
		namespaces = slices.DeleteFunc(namespaces, func(ns string) bool { return ns == "" && len(namespaces) > 1 })
	}
	if r.path == "/v1/overview" {
		namespaces = append(namespaces, "*")
	}
	optional := r.method == "GET" && !r.is("{") && !r.is("available") && !r.is("watch") && !r.is("explain")
	if r.entity {
		entities = []string{"team-a/alice", "team-b/bob"}
	}
	if r.prefix {
		entities = []string{"team-a/", "team-a/al", "team-", "team-a", "team-b/"}
	}
	if r.resource {
		resources = []string{"gpt-4", "gpt-5"}
	}
	if optional && (r.entity || r.prefix) {
		entities = append(entities, "")
	}
	if optional && r.resource {
		resources = append(resources, "")
	}
	if r.brings() {
		limits = append(limits, true)
	}
	for _, ns := range namespaces {
		for _, e := range entities {
			for _, res := range resources {
				for _, l := range limits {
					a := asked{ns, e, res, l, ""}
					if a.lease = g.leases[ns+" "+e+" "+res]; a.lease == "" {
						a.lease = "aGVsbG8"
					}
					all = append(all, a)
				}
			}
		}
	}
	return all
}

// state returns all that the namespaces hold.
func (g *matrix) state(t *testing.T) string {
	t.Helper()
	var all []any
	add := func(v any, err error) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	add(admin.New(g.lim).Namespaces.List(t.Context(), admin.NamespaceQuery{Deleted: true}))
	for _, ns := range []string{"default", "blue", "green"} {
		a := admin.New(g.lim.In(ns))
		add(a.Buckets.List(t.Context(), admin.BucketQuery{}))
		add(a.Audit.List(t.Context(), admin.AuditQuery{}))
	}
	return fmt.Sprintf("%+v", all)
}

// role is what a refusal names that is not the same for all requests: what the kind of request needs.
var role = regexp.MustCompile(`needs the role (\w+)( in all namespaces)?`)

// TestAccess makes every request of the table with tokens of all kinds. It must be answered if, and only if, the token
// may make it; those that may not change nothing, and get the same answer whatever exists, which names the role that is
// lacking.
func TestAccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newMatrix(t)
		time.Sleep(2 * time.Second) // one token has expired, and the server knows of one that was revoked
		rows := accessRows(t)
		g.complete(t, rows)
		before := g.state(t)
		denied, allowed, wrong := 0, 0, 0
		refusals := make(map[string]bool)
		for _, permitted := range []bool{false, true} { // first those that must not have an effect
			for i := range rows {
				r := &rows[i]
				for _, a := range g.asks(r) {
					for _, h := range g.holders {
						if h.may(r, &a, "default") != permitted {
							continue
						}
						refusal := g.try(t, r, &a, h)
						if refused := refusal != ""; refused == permitted {
							t.Errorf("%s %s %+v as %+v: permitted %t, got %q", r.method, r.path, a, h.Entry, permitted, refusal)
							if wrong++; wrong == 10 {
								t.FailNow()
							}
						}
						if permitted {
							allowed++
							continue
						}
						denied++
						if named := role.FindStringSubmatch(refusal); len(named) == 2 && named[1] != r.role {
							t.Errorf("%s %s needs the role %s, and the refusal names %s", r.method, r.path, r.role, named[1])
						}
						refusals[role.ReplaceAllString(refusal, "needs a role")] = true
					}
				}
			}
			if !permitted && g.state(t) != before {
				t.Error("requests that were refused have had an effect")
			}
		}
		if len(refusals) != 8 { // over HTTP and gRPC: no token, no role, no access, no such lease
			t.Errorf("there are %d different refusals: %q", len(refusals), slices.Sorted(maps.Keys(refusals)))
		}
		t.Logf("%d rows, %d tokens: %d requests denied, %d allowed, %d wrongly", len(rows), len(g.holders), denied, allowed, wrong)
	})
}

// routes returns the routes of the server, by its OpenAPI document; a test of httpapi checks that it has them all.
func (g *matrix) routes(t *testing.T) (routes []string) {
	t.Helper()
	w := httptest.NewRecorder()
	g.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/v1/openapi.json", http.NoBody))
	var document struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	for path, methods := range document.Paths {
		for method := range methods {
			if method != "parameters" {
				routes = append(routes, strings.ToUpper(method)+" "+path)
			}
		}
	}
	return routes
}

// complete checks that the table has exactly the routes and calls of the servers.
func (g *matrix) complete(t *testing.T, rows []row) {
	t.Helper()
	listed := make(map[string]bool)
	for i := range rows {
		listed[rows[i].method+" "+rows[i].path] = true
	}
	served := append(g.routes(t), g.calls...)
	for _, route := range served {
		if !listed[route] {
			t.Errorf("the table of access has no row for %s", route)
		}
		delete(listed, route)
	}
	if len(listed) > 0 {
		t.Errorf("the table of access has rows that are not served: %v", listed)
	}
	for _, pattern := range web.Patterns() { // the dashboard's files are open to everyone
		method, path, _ := strings.Cut(pattern, " ")
		if method != "GET" || strings.HasPrefix(path, "/v1") {
			t.Errorf("the dashboard serves %s", pattern)
		}
	}
}
