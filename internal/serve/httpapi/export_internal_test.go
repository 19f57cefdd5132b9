package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/auth"
)

// HTTPServer returns the server that Serve uses.
func (s *Server) HTTPServer(ctx context.Context, h http.Handler) *http.Server {
	return s.httpServer(ctx, h)
}

// Drain is the first step of Serve's shutdown.
func (s *Server) Drain() { s.decide.Drain() }

// Routes lists the server's routes as "GET /path".
func (s *Server) Routes() (list []string) {
	for _, r := range s.routes() {
		list = append(list, r.method+" "+r.path)
	}
	return list
}

// AnyRole is what Need returns for a route that is open to every token.
const AnyRole auth.Role = "any"

// Need returns what a route, in the form that Routes lists, requires.
func (s *Server) Need(of string) (role auth.Role, everywhere bool) {
	for _, r := range s.routes() {
		if of == r.method+" "+r.path {
			if r.need.authenticated {
				return AnyRole, false
			}
			return r.need.role, r.need.everywhere
		}
	}
	return "", false
}

func ParseAcquire(data []byte) (string, weir.Request, time.Duration, error) {
	a, err := parseAcquire(data)
	return a.namespace, a.request, a.wait, err
}

// Kinds lists the URIs of all problem types.
func Kinds() (uris []string) {
	for _, k := range []*kind{
		kindInvalid, kindNoToken, kindForbidden, kindHost, kindForeign, kindNotFound, kindNoUsage, kindMethod, kindExists, kindConflict, kindStale, kindSettled, kindExpired,
		kindTooLarge, kindMedia, kindBurst, kindNoLimits, kindExceeded, kindInternal, kindOverloaded, kindUnavailable,
	} {
		uris = append(uris, k.URI)
	}
	return uris
}

// Decode takes the place of a large manifest that is decoded, and returns a function that ends that.
func (s *Server) Decode() (end func()) {
	s.decoding.many.Force("x")
	return func() { s.decoding.many.Free("x") }
}

// Declare takes a place for work on manifests; false if there is none.
func (s *Server) Declare() bool { return s.declaring.Try("") }
