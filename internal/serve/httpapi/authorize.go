package httpapi

import (
	"context"
	"log/slog"
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
	role       auth.Role // "" requires no token
	known      bool      // with no role: requires any valid token
	everywhere bool      // requires the role in all namespaces, for things that belong to no namespace
	exempt     bool      // from the bounds on concurrent requests
}

var (
	anyone     = need{}
	known      = need{known: true}
	spends     = need{role: auth.Acquire}
	reads      = need{role: auth.Read}
	changes    = need{role: auth.Admin}
	readsAll   = need{role: auth.Read, everywhere: true}
	changesAll = need{role: auth.Admin, everywhere: true}
	scrapes    = need{role: auth.Read, everywhere: true, exempt: true}
)

// callerOf returns the caller of a request that passed admitted, or else one without any permission.
func callerOf(r *http.Request) *decide.Caller { return decide.CallerOf(r.Context()) }

// admitted passes a request to its handler if the principal has the required role in at least one namespace. The
// handler then checks the namespace that the request names, with [Server.in].
func (s *Server) admitted(n need, serve handler) handler {
	if n == anyone {
		return serve
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		p, ok := s.cfg.Book.Authenticate(auth.Bearer(r.Header["Authorization"]))
		if !ok {
			s.refused(r, "no valid token")
			return decide.ErrUnauthenticated
		}
		c := &decide.Caller{Principal: p, Role: n.role}
		defer c.End()
		r = r.WithContext(decide.With(r.Context(), c))
		switch {
		case !n.known && (n.everywhere && !p.Everywhere(n.role) || !p.Has(n.role)):
			s.refused(r, "not the role")
			return decide.ErrForbidden
		case n.exempt:
			return serve(w, r)
		}
		return s.bounded(c, w, r, serve)
	}
}

// in returns the limiter of the namespace that a request names; "" means that it names none. For a namespace that the
// principal may not use, the error does not reveal whether it exists.
func (s *Server) in(r *http.Request, namespace string) (*weir.Limiter, error) {
	c := callerOf(r)
	lim, err := s.decide.In(c, c.Role, namespace)
	if err != nil {
		s.refused(r, "not the namespace")
	}
	return lim, err
}

// mayAll checks, like in, the namespaces that manifests name.
func (s *Server) mayAll(r *http.Request, ms []*manifest.Manifest) error {
	c := callerOf(r)
	for _, m := range ms {
		if !c.May(c.Role, m.Namespace) {
			s.refused(r, "not the namespace")
			return decide.ErrForbidden
		}
	}
	return nil
}

// refused logs an unauthorized request, at most once a second.
func (s *Server) refused(r *http.Request, why string) {
	s.decide.Refused(r.Context(), why, slog.String("route", r.Pattern), slog.String("from", r.RemoteAddr))
}

// needs are the permissions of operations.
var needs = map[api.Need]need{api.Read: reads, api.Admin: changes, api.ReadAll: readsAll, api.AdminAll: changesAll}

// atHome refuses requests for hosts that are not allowed. Probes are exempt: they use an address as host, and reveal
// nothing.
func (s *Server) atHome(next http.Handler) http.Handler {
	if len(s.cfg.AllowedHosts) == 0 {
		return next
	}
	refuse := s.handle(func(_ http.ResponseWriter, r *http.Request) error {
		s.refused(r, "the host "+r.Host)
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
		defer body.forget()
		r.Body = body
	}
	return serve(w, r)
}

// query reads the parameters of a URL and selects the namespace that they name.
func (s *Server) query(r *http.Request, names ...string) (query, error) {
	q, err := parameters(r, names...)
	if err != nil {
		return q, err
	}
	q.lim, err = s.in(r, q.Get("namespace"))
	return q, err
}

func (s *Server) principal(r *http.Request) context.Context {
	return admin.WithPrincipal(r.Context(), callerOf(r).Audit("http"))
}
