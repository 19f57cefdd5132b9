package server

import (
	"context"
	"net/http"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/auth"
)

// HTTPServer is what Serve serves with.
func (s *Server) HTTPServer(ctx context.Context, h http.Handler) *http.Server {
	return s.httpServer(ctx, h)
}

// Drain is what Serve does first when it is to end.
func (s *Server) Drain() { s.drain() }

// Routes lists what the server routes, as "GET /path".
func (s *Server) Routes() (list []string) {
	for _, r := range s.routes() {
		list = append(list, r.method+" "+r.path)
	}
	return list
}

// AnyRole is what a route demands that is for every token.
const AnyRole auth.Role = "any"

// Need is what a route, as Routes lists it, demands.
func (s *Server) Need(of string) (role auth.Role, everywhere bool) {
	for _, r := range s.routes() {
		if of == r.method+" "+r.path {
			if r.need.known {
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

// Kinds lists the URIs of all kinds of problems.
func Kinds() (uris []string) {
	for _, k := range []*kind{
		kindInvalid, kindNoToken, kindForbidden, kindHost, kindForeign, kindNotFound, kindMethod, kindExists, kindConflict, kindStale, kindSettled, kindExpired,
		kindTooLarge, kindMedia, kindBurst, kindNoLimits, kindExceeded, kindInternal, kindOverloaded, kindUnavailable,
	} {
		uris = append(uris, k.URI)
	}
	return uris
}

// Keep has n bytes of bodies count as under way, and returns how many there are.
func (s *Server) Keep(n int64) int64 { return s.bodies.Add(n) }

// Declare takes a place of those who work on manifests; false if there is none.
func (s *Server) Declare() bool { return s.declaring.Try("") }

// Spares is how many connections there may be for probes, beyond all others.
const Spares = spares

// MaxBodies is how many bytes of bodies may be under way.
const MaxBodies = maxBodies
