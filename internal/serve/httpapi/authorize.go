package httpapi

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// need is the permission that a route requires.
type need struct {
	role          auth.Role // "" requires no token
	authenticated bool      // with no role: requires any valid token
	everywhere    bool      // requires the role in all namespaces, for things that belong to no namespace
	exempt        bool      // from the bounds on concurrent requests
}

var (
	anyone        = need{}
	authenticated = need{authenticated: true}
	spends        = need{role: auth.Acquire}
	reads         = need{role: auth.Read}
	changes       = need{role: auth.Admin}
	credits       = need{role: auth.Credit}
	readsAll      = need{role: auth.Read, everywhere: true}
	changesAll    = need{role: auth.Admin, everywhere: true}
	scrapes       = need{role: auth.Read, everywhere: true, exempt: true}
)

// callerOf returns the caller of a request; without any permission, unless it passed admitted.
func callerOf(r *http.Request) *decide.Caller { return decide.CallerOf(r.Context()) }

// admitted passes a request to its handler if the principal has the required role in at least one namespace. The
// handler then checks the namespace that the request names, with [Server.in].
func (s *Server) admitted(n need, serve handler) handler {
	if n == anyone {
		return serve
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		p, ok := s.cfg.Book.Authenticate(auth.Bearer(r.Header["Authorization"]), r.TLS)
		if !ok {
			return &decide.RefusalError{Answer: decide.ErrUnauthenticated, Reason: auth.NoToken}
		}
		c := callerOf(r)
		if c.Principal, c.Role = p, n.role; !c.Conn.Authenticate(p.Name) {
			w.Header().Set("Connection", "close")
			return decide.ErrConnections
		}
		switch {
		case n.everywhere && !p.May(auth.Access{Role: n.role, Namespace: auth.All}),
			!n.authenticated && !p.Has(n.role):
			return decide.Refused(p, auth.NoRole, n.role, n.everywhere)
		case n.exempt:
			return serve(w, r)
		}
		return s.bounded(c, w, r, serve)
	}
}

// in returns the limiter for a request, if the caller may access it so, in the role of the route; see
// [decide.Decider.In].
func (s *Server) in(r *http.Request, a auth.Access) (*weir.Limiter, error) {
	c := callerOf(r)
	a.Role = c.Role
	return s.decide.In(c, a)
}

// mayAll checks, like in, the namespaces that manifests name.
func (s *Server) mayAll(r *http.Request, ms []*manifest.Manifest) error {
	for _, m := range ms {
		if _, err := s.in(r, auth.Access{Namespace: m.Namespace}); err != nil {
			return err
		}
	}
	return nil
}

// needs are the permissions of operations.
var needs = map[api.Need]need{
	api.Read: reads, api.Admin: changes, api.Credit: credits, api.ReadAll: readsAll, api.AdminAll: changesAll,
}

// checkHost refuses requests for hosts that are not allowed. Probes are exempt: they use an address as host, and reveal
// nothing.
func (s *Server) checkHost(next http.Handler) http.Handler {
	if len(s.cfg.AllowedHosts) == 0 {
		return next
	}
	refuse := s.handle(func(_ http.ResponseWriter, r *http.Request) error {
		s.decide.Refusals.Add(r.Context(), auth.NoHost, r.RemoteAddr, nil, slog.String("host", r.Host))
		return errHost
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if named(s.cfg.AllowedHosts, r.Host) || r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
			next.ServeHTTP(w, r)
			return
		}
		refuse.ServeHTTP(w, r)
	})
}

// bounded gives a request a slot or refuses it. A request with a body takes its slot only once the body has arrived, so
// that slow senders do not block others.
func (s *Server) bounded(c *decide.Caller, w http.ResponseWriter, r *http.Request, serve handler) error {
	if r.ContentLength == 0 || r.Method == http.MethodGet || r.Method == http.MethodHead ||
		r.Method == http.MethodDelete {
		if err := s.decide.Begin(r.Context(), c); err != nil {
			return err
		}
	} else {
		body := &incoming{ReadCloser: r.Body, ctx: r.Context(), s: s, caller: c}
		if err := body.hold(int(min(r.ContentLength, maxManifest))); err != nil { // before it is read
			return err
		}
		c.Conn.Receive()
		r.Body = body
	}
	return serve(w, r)
}

// query reads the parameters of a URL and selects the namespace that they name, for their entity on their resource.
func (s *Server) query(r *http.Request, names ...string) (query, error) {
	q, err := parameters(r, names...)
	if err != nil {
		return q, err
	}
	q.lim, err = s.in(r, auth.Access{
		Namespace: q.Get("namespace"), Entity: q.Get("entity"), Resource: q.Get("resource"),
	})
	return q, err
}

func (s *Server) principal(r *http.Request) context.Context {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return admin.WithSource(admin.WithPrincipal(r.Context(), callerOf(r).Audit("http")), host)
}
