package httpapi_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/store/memory"
)

// gate is a server with tokens: one of each role for blue, and root for all. In blue and green, alice has spent 300 of
// 1000 tpm on gpt-4; nowhere does not exist.
type gate struct {
	*fixture
	srv    *httpapi.Server
	tokens map[string]string
	lease  map[string]string // by namespace
	log    *bytes.Buffer
	file   string
}

// add adds a token to the file.
func (g *gate) add(t *testing.T, e auth.Entry) {
	t.Helper()
	token, e, err := auth.NewEntry(e)
	if err == nil {
		err = auth.Add(g.file, e)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.tokens[e.Name] = token
}

func newGate(t *testing.T) *gate {
	t.Helper()
	return newGateOf(t, decide.Config{})
}

func newGateOf(t *testing.T, cfg decide.Config) *gate {
	t.Helper()
	g := &gate{fixture: &fixture{lim: newLimiter(t)}, tokens: make(map[string]string), lease: make(map[string]string), log: new(bytes.Buffer)}
	g.file = filepath.Join(t.TempDir(), "tokens.yaml")
	add := func(name string, role auth.Role, namespaces ...string) {
		g.add(t, auth.Entry{Name: name, Roles: []auth.Role{role}, Namespaces: namespaces})
	}
	for _, role := range auth.Roles() {
		add(string(role), role, "blue")
	}
	add("two", auth.Admin, "blue", "default")
	add("root", auth.Admin, "*")
	log := slog.New(slog.NewTextHandler(g.log, nil))
	book, err := auth.Open(g.file, log)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Limiter, cfg.Book, cfg.Log = g.lim, book, log
	if g.srv, err = httpapi.New(httpapi.Config{Config: cfg}); err != nil {
		t.Fatal(err)
	}
	g.h = g.srv.Handler()
	for _, ns := range []string{"blue", "green"} {
		g.as(t, 201, "root", "POST /v1/namespaces", `{"name":"`+ns+`"}`)
		in := "?namespace=" + ns
		g.as(t, 200, "root", "PUT /v1/limits"+in+"&resource=gpt-4", `{"limits":["rpm:100/hour","tpm:1000/hour"]}`)
		g.as(t, 201, "root", "POST /v1/entities"+in, `{"id":"alice"}`)
		g.as(t, 201, "root", "POST /v1/entities"+in, `{"id":"bob"}`)
		for range 2 {
			a := g.as(t, 200, "root", "POST /v1/acquire", `{"entity":"alice","resource":"gpt-4","namespace":"`+ns+`","tokens":{"tpm":150}}`)
			g.lease[ns] = a.JSON["lease"].(string)
		}
		g.as(t, 200, "root", "POST /v1/acquire", `{"entity":"bob","resource":"gpt-4","namespace":"`+ns+`","tokens":{"tpm":1}}`)
		for _, m := range []string{"x", "y"} {
			g.as(t, 200, "root", "POST /v1/manifests/apply", `{"namespace":"`+ns+`","manifest":"`+m+`","resources":{"`+m+`":{"limits":{"rpm":{"capacity":1}}}}}`)
		}
	}
	g.lease["nowhere"] = "aGVsbG8"
	return g
}

// ask sends "METHOD TARGET" with the named token; "" means no token.
func (g *gate) ask(t *testing.T, name, to, body string) answer {
	t.Helper()
	method, target, _ := strings.Cut(to, " ")
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if name != "" {
		r.Header.Set("Authorization", "Bearer "+g.tokens[name])
	}
	return g.send(t, r)
}

func (g *gate) as(t *testing.T, status int, name, to, body string) answer {
	t.Helper()
	a := g.ask(t, name, to, body)
	if a.Code != status {
		t.Fatalf("%s: %s %s: got %d, want %d: %s", name, to, body, a.Code, status, a.Body)
	}
	return a
}

// left returns how much tpm alice has left in a namespace.
func (g *gate) left(t *testing.T, ns string) int64 {
	t.Helper()
	av, err := g.lim.In(ns).Available(t.Context(), "alice", "gpt-4")
	if err != nil {
		t.Fatal(err)
	}
	return av.Statuses[1].Available
}

// whole returns everything that a client sees of an answer.
func whole(a answer) string {
	h := a.Header().Clone()
	h.Del("Date")
	return fmt.Sprintf("%d %v %s", a.Code, h, a.Body)
}

// TestWhoami checks that a token learns what it may do, and nothing else.
func TestWhoami(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	for name, want := range map[string]string{
		"acquire": `{"principal":"token:acquire","roles":["acquire"],"permissions":[],"namespaces":["blue"],"namespace":"blue"}`,
		"read":    `{"principal":"token:read","roles":["read"],"permissions":[],"namespaces":["blue"],"namespace":"blue"}`,
		"admin":   `{"principal":"token:admin","roles":["acquire","read","credit","admin"],"permissions":[],"namespaces":["blue"],"namespace":"blue"}`,
		"two":     `{"principal":"token:two","roles":["acquire","read","credit","admin"],"permissions":[],"namespaces":["blue","default"],"namespace":"default"}`,
		"root":    `{"principal":"token:root","roles":["acquire","read","credit","admin"],"permissions":[],"namespaces":["*"],"namespace":"default"}`,
	} {
		if a := g.as(t, 200, name, "GET /v1/whoami", ""); strings.TrimSpace(a.Body.String()) != want {
			t.Errorf("%s: got %s, want %s", name, a.Body, want)
		}
	}
	g.as(t, 401, "", "GET /v1/whoami", "")
	g.as(t, 400, "read", "GET /v1/whoami?namespace=green", "")
}

// TestCursors uses cursors from green in the same lists of blue: they must be as invalid as any other text.
func TestCursors(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	for _, list := range []string{"/v1/entities?", "/v1/resources?", "/v1/audit?", "/v1/buckets?", "/v1/manifests?", "/v1/usage?window=hourly&by=entity&"} {
		to := "GET " + list + "max=1"
		a := g.as(t, 200, "root", to+"&namespace=green", "")
		next, _ := a.JSON["next"].(string)
		if next == "" {
			t.Errorf("%s has one page: %s", list, a.Body)
		}
		foreign := g.ask(t, "read", to+"&after="+url.QueryEscape(next), "")
		made := g.ask(t, "read", to+"&after=aGVsbG8", "")
		if whole(foreign) != whole(made) || foreign.Code != 400 {
			t.Errorf("%s: got %s, with any text %s", list, whole(foreign), whole(made))
		}
	}
}

// TestForgedCursors changes the position in cursors that a token bound to one entity has got: it must not see others.
func TestForgedCursors(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	g.add(t, auth.Entry{Name: "bob", Roles: []auth.Role{auth.Read}, Namespaces: []string{"blue"}, Entities: []string{"bob"}})
	book, err := auth.Open(g.file, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if g.srv, err = httpapi.New(httpapi.Config{Config: decide.Config{Limiter: g.lim, Book: book}}); err != nil {
		t.Fatal(err)
	}
	g.h = g.srv.Handler()
	g.as(t, 200, "root", "PUT /v1/limits?namespace=blue&resource=web", `{"limits":["rpm:100/hour"]}`)
	g.as(t, 200, "root", "POST /v1/acquire", `{"entity":"bob","resource":"web","namespace":"blue","tokens":{"rpm":1}}`)
	for _, list := range []string{"/v1/buckets?entity=bob", "/v1/usage?window=hourly&entity=bob"} {
		to := "GET " + list + "&max=1"
		next, _ := g.as(t, 200, "bob", to, "").JSON["next"].(string)
		raw, err := base64.RawURLEncoding.DecodeString(next)
		if err != nil || !bytes.Contains(raw, []byte("bob")) {
			t.Fatalf("%s: the cursor %q, error %v", list, raw, err)
		}
		for _, id := range []string{"alice", "", "bo", "abe", "zoe"} {
			forged := base64.RawURLEncoding.EncodeToString(bytes.ReplaceAll(raw, []byte("bob"), []byte(id)))
			g.as(t, 400, "bob", to+"&after="+forged, "")
		}
	}
}

// TestRegistry requests data kept outside namespaces, with a role in only some of them.
func TestRegistry(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	for _, to := range []string{
		"GET /v1/audit?subject=namespace:green", "GET /v1/audit?subject=namespace:nowhere", "GET /v1/audit?subject=namespace:",
		"GET /v1/audit?subject=secret:lease", "GET /v1/usage?by=store", "GET /v1/usage/summary?by=store", "GET /v1/usage/stream?by=store&max=1",
	} {
		for _, name := range []string{"read", "admin", "two"} {
			g.as(t, 403, name, to, "")
		}
		if a := g.ask(t, "root", to, ""); a.Code == 403 {
			t.Errorf("root: %s: got %s", to, a.Body)
		}
	}
}

func TestOwnNamespace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		lease := g.as(t, 200, "acquire", "POST /v1/acquire", `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":100}}`).JSON["lease"].(string)
		if got := g.left(t, "blue"); got != 600 {
			t.Errorf("%d are left in blue, want 600", got)
		}
		g.as(t, 403, "acquire", "POST /v1/acquire", `{"entity":"alice","resource":"gpt-4","namespace":"green"}`)
		g.as(t, 204, "acquire", "POST /v1/leases/"+lease+"/rollback", "")
		// A token for several namespaces, or for all, uses the server's namespace unless the request names one.
		g.as(t, 422, "two", "POST /v1/acquire", `{"entity":"alice","resource":"gpt-4"}`)
		g.as(t, 422, "root", "POST /v1/acquire", `{"entity":"alice","resource":"gpt-4"}`)
	})
}

func TestAuditedToken(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	g.as(t, 201, "admin", "POST /v1/entities", `{"id":"carol"}`)
	a := g.as(t, 200, "read", "GET /v1/audit?subject=entity:carol", "")
	if event := a.JSON["items"].([]any)[0].(map[string]any); event["principal"] != "token:admin" {
		t.Errorf("got %v", event)
	}
	a = g.as(t, 200, "root", "GET /v1/audit?subject=namespace:green", "")
	if event := a.JSON["items"].([]any)[0].(map[string]any); event["principal"] != "token:root" {
		t.Errorf("got %v", event)
	}
}

// TestRolledBackElsewhere checks that rolling back a revision whose text names another namespace needs a role there.
func TestRolledBackElsewhere(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	lim := g.lim.In("blue")
	lock, err := admin.New(lim).Manifests.Lock(t.Context(), "x", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	_, err = lock.Record(t.Context(), admin.Revision{Hash: "h"}, []byte(`{"namespace":"green"}`))
	if err != nil {
		t.Fatal(err)
	}
	g.as(t, 403, "admin", "POST /v1/manifests/x/rollback?revision=2", "")
}

func TestBearer(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	token := g.tokens["read"]
	for header, want := range map[string]int{
		"Bearer " + token: 200, "bearer  " + token: 200,
		"": 401, token: 401, "Basic " + token: 401, "Bearer": 401, "Bearer " + token + ",": 401, "Bearer " + strings.Repeat("x", 10_000): 401,
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/entities", http.NoBody)
		r.Header.Set("Authorization", header)
		if a := g.send(t, r); a.Code != want {
			t.Errorf("%.40q: got %d, want %d", header, a.Code, want)
		}
		r.Header.Add("Authorization", "Bearer "+token)
		if a := g.send(t, r); a.Code != 401 {
			t.Errorf("%.40q and a second one: got %d", header, a.Code)
		}
	}
}

// TestRefusalsLogged checks that a flood of bad tokens is logged once a second, without the token.
func TestRefusalsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		g.tokens["wrong"] = "weir_wrong"
		for range 10 {
			time.Sleep(200 * time.Millisecond)
			g.as(t, 401, "wrong", "GET /v1/entities", "")
		}
		if n := strings.Count(g.log.String(), "\n"); n != 2 || strings.Contains(g.log.String(), "weir_wrong") {
			t.Errorf("%d lines: %s", n, g.log)
		}
	})
}

func TestHosts(t *testing.T) {
	t.Parallel()
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lim.Close() })
	s, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: lim}, AllowedHosts: []string{"localhost", "127.0.0.1", "::1", "Limits.example"}})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{lim: lim, h: s.Handler()}
	plain := &fixture{h: httpapi.OnlyHosts(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), []string{"localhost"})}
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:8080": 200, "127.0.0.1:1": 200, "[::1]:8080": 200, "[::1]": 200, "localhost.:80": 200, "limits.example": 200,
		"attacker.example": 421, "attacker.example:8080": 421, "localhost.attacker.example": 421, "127.0.0.1.attacker.example": 421, "10.0.0.1": 421, "": 421,
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/entities", http.NoBody)
		r.Host = host
		if a := f.send(t, r); a.Code != want {
			t.Errorf("%q: got %d, want %d: %s", host, a.Code, want, a.Body)
		}
		if strings.HasPrefix(strings.ToLower(host), "localhost") || want == 421 {
			w := httptest.NewRecorder()
			plain.h.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%q, plain: got %d, want %d", host, w.Code, want)
			}
		}
		r = httptest.NewRequestWithContext(t.Context(), "GET", "/healthz", http.NoBody)
		r.Host = host
		if a := f.send(t, r); a.Code != 200 {
			t.Errorf("%q: a probe got %d", host, a.Code)
		}
	}
}

// TestDocumentedAccess checks that openapi.json requires a token where the server does, and documents the answers without
// one.
func TestDocumentedAccess(t *testing.T) {
	t.Parallel()
	doc, g := readDocument(t), newGate(t)
	for _, route := range g.srv.Routes() {
		method, path, _ := strings.Cut(route, " ")
		item, ok := doc.object("paths")[path].(map[string]any)
		if !ok {
			continue // TestDocument reports it
		}
		op := item[strings.ToLower(method)].(map[string]any)
		role, _ := g.srv.Need(route)
		open, _ := op["security"].([]any)
		if public := op["security"] != nil && len(open) == 0; public != (role == "") {
			t.Errorf("%s: documented as public: %v, but demands %q", route, public, role)
		}
		for _, status := range []string{"401", "403", "503"} {
			if op["responses"].(map[string]any)[status] == nil && role != "" {
				t.Errorf("%s: does not document %s", route, status)
			}
		}
	}
}
