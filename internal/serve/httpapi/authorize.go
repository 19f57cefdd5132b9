package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/serve/auth"
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

// visit is the principal of a request, and the permission that its route requires.
type visit struct {
	*auth.Principal
	need need
	turn turn
}

type visitKey struct{}

// visitOf returns the visit of a request that passed admitted, or else a visit without any permission.
func visitOf(r *http.Request) *visit {
	if v, ok := r.Context().Value(visitKey{}).(*visit); ok {
		return v
	}
	return &visit{}
}

// admitted passes a request to its handler if the principal has the required role in at least one namespace. The handler
// then checks the namespace that the request names, with [Server.in].
func (s *Server) admitted(n need, serve handler) handler {
	if n == anyone {
		return serve
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		p, ok := s.cfg.Book.Authenticate(auth.Bearer(r.Header["Authorization"]))
		if !ok {
			s.refused(r, "no valid token")
			return errUnauthenticated
		}
		v := &visit{Principal: p, need: n}
		r = r.WithContext(context.WithValue(auth.With(r.Context(), p), visitKey{}, v))
		if !n.known && (n.everywhere && !p.Everywhere(n.role) || !p.Has(n.role)) {
			s.refused(r, "not the role")
			return errForbidden
		}
		return s.bounded(v, w, r, serve)
	}
}

// in returns the limiter of the namespace that a request names; "" means that it names none. For a namespace that the
// principal may not use, the error does not reveal whether it exists.
func (s *Server) in(r *http.Request, namespace string) (*weir.Limiter, error) {
	v, own := visitOf(r), s.cfg.Limiter.Namespace()
	if namespace == "" {
		namespace = v.Namespace(own)
	}
	switch {
	case !v.May(v.need.role, namespace):
		s.refused(r, "not the namespace")
		return nil, errForbidden
	case namespace == own:
		return s.cfg.Limiter, nil
	}
	return s.cfg.Limiter.In(namespace), nil
}

// mayAll checks, like in, the namespaces that manifests name.
func (s *Server) mayAll(r *http.Request, ms []*manifest.Manifest) error {
	v := visitOf(r)
	for _, m := range ms {
		if !v.May(v.need.role, m.Namespace) {
			s.refused(r, "not the namespace")
			return errForbidden
		}
	}
	return nil
}

// refused logs an unauthorized request, at most once a second.
func (s *Server) refused(r *http.Request, why string) {
	if s.refusals.due() {
		s.cfg.Log.LogAttrs(r.Context(), slog.LevelWarn, "a request was refused", slog.String("why", why),
			slog.String("route", r.Pattern), slog.String("from", r.RemoteAddr), slog.String("principal", visitOf(r).Audit("")))
	}
}

// seldom permits something at most once a second.
type seldom struct{ last atomic.Int64 }

func (s *seldom) due() bool {
	now := time.Now().UnixNano()
	last := s.last.Load()
	return now-last >= int64(time.Second) && s.last.CompareAndSwap(last, now)
}
