package accesstest_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/envoy"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/internal/serve/metrics"
	"github.com/weirlimits/weir/store/memory"
)

// matrix is a server over HTTP and gRPC, with tokens of all kinds.
type matrix struct {
	lim     *weir.Limiter
	handler http.Handler
	conn    *grpc.ClientConn
	calls   []string
	holders []*holder
	leases  map[string]string // by "namespace entity resource"
}

// tokens makes tokens of all kinds, and three that are not valid.
func (g *matrix) tokens(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "tokens.yaml")
	add := func(valid bool, e auth.Entry) {
		e.Name = fmt.Sprintf("t%d", len(g.holders))
		token, made, err := auth.NewEntry(e)
		if err == nil {
			err = auth.Add(path, made)
		}
		if err != nil {
			t.Fatal(err)
		}
		g.holders = append(g.holders, &holder{made, token, valid})
	}
	none, some := []auth.Permission{}, auth.Permissions()
	each := [][]auth.Permission{none, {auth.Override}, {auth.Adjust}, {auth.Return}, {auth.Envoy}, some}
	for _, kind := range []struct {
		roles       []auth.Role
		permissions [][]auth.Permission
	}{
		{[]auth.Role{auth.Acquire}, each},
		{[]auth.Role{auth.Read}, [][]auth.Permission{none, some}},
		{[]auth.Role{auth.Acquire, auth.Read}, [][]auth.Permission{none}},
		{[]auth.Role{auth.Credit}, [][]auth.Permission{none}},
		{[]auth.Role{auth.Admin}, each},
	} {
		for _, namespaces := range [][]string{{"blue"}, {"blue", "default"}, {"*"}} {
			for _, permissions := range kind.permissions {
				e := auth.Entry{Roles: kind.roles, Namespaces: namespaces, Permissions: permissions}
				add(true, e)
				if e.Roles[0] == auth.Admin {
					continue // cannot be bound
				}
				e.Entities = []string{"team-x", "team-a/*"}
				add(true, e)
				e.Resources = []string{"gpt-4"}
				add(true, e)
				e.Entities = nil
				add(true, e)
			}
		}
	}
	add(false, auth.Entry{Roles: auth.Roles(), Namespaces: []string{"*"}, Permissions: some, Expires: time.Now().Add(time.Second)})
	add(false, auth.Entry{Roles: auth.Roles(), Namespaces: []string{"*"}, Permissions: some})
	if err := auth.Revoke(path, g.holders[len(g.holders)-1].Name); err != nil {
		t.Fatal(err)
	}
	g.holders = append(g.holders, &holder{}, &holder{token: "weir_wrong"})
	return path
}

func newMatrix(t *testing.T) *matrix {
	t.Helper()
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lim.Close() })
	counts, err := metrics.New(metrics.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(counts.Close)
	g := &matrix{lim: lim, leases: make(map[string]string)}
	book, err := auth.Open(g.tokens(t), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	cfg := decide.Config{Limiter: g.lim, Book: book}
	srv, err := httpapi.New(httpapi.Config{Config: cfg, Metrics: counts})
	if err != nil {
		t.Fatal(err)
	}
	g.handler = srv.Handler()
	g.serveCalls(t, cfg)
	d, err := decide.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{"blue", "green"} {
		if _, err := admin.New(g.lim).Namespaces.Create(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
		lim := g.lim.In(ns)
		if err := admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerHour("rpm", 1_000_000)); err != nil {
			t.Fatal(err)
		}
		for _, entity := range []string{"team-a/alice", "team-b/bob"} {
			if err := admin.New(lim).Entities.Create(t.Context(), admin.Entity{ID: entity}); err != nil {
				t.Fatal(err)
			}
			for _, resource := range []string{"gpt-4", "gpt-5"} {
				if err := admin.New(lim).Limits.Set(t.Context(), admin.Scope{Resource: resource},
					weir.PerHour("rpm", 1_000_000), weir.Limit{Name: "credits", Balance: true}); err != nil {
					t.Fatal(err)
				}
				lease, err := lim.Acquire(t.Context(), weir.Request{Entity: entity, Resource: resource, Tokens: weir.Tokens{"rpm": 1000}})
				if err != nil {
					t.Fatal(err)
				}
				held := d.Hold(lim, lease)
				g.leases[ns+" "+entity+" "+resource] = string(held.AppendID(nil))
			}
		}
	}
	return g
}

// serveCalls serves gRPC, and Envoy with a domain for each namespace.
func (g *matrix) serveCalls(t *testing.T, cfg decide.Config) {
	t.Helper()
	m, err := envoy.ReadMapping(strictyaml.Source{Name: "mapping", Text: []byte(`domains:
  own: {builtin: true}
  blue: {namespace: blue, builtin: true}
  green: {namespace: green, builtin: true}
  nowhere: {namespace: nowhere, builtin: true}`)})
	if err != nil {
		t.Fatal(err)
	}
	rls, err := envoy.New(envoy.Config{
		Limiter: g.lim, Mapping: func() *envoy.Mapping { return m },
		May: func(ctx context.Context, a auth.Access) bool { return decide.CallerOf(ctx).May(a) },
	})
	if err != nil {
		t.Fatal(err)
	}
	var served *grpc.Server
	s, err := grpcapi.New(grpcapi.Config{Config: cfg, Services: []func(grpc.ServiceRegistrar){
		rls.Register, func(r grpc.ServiceRegistrar) { served = r.(*grpc.Server) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, service := range served.GetServiceInfo() {
		for _, method := range service.Methods {
			g.calls = append(g.calls, "CALL "+name+"/"+method.Name)
		}
	}
	ln := bufconn.Listen(256 << 10)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, ln) }()
	g.conn, err = grpc.NewClient("passthrough:///weir", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.conn.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		rls.Close()
	})
}
