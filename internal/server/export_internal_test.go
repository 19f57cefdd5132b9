package server

import (
	"context"
	"net/http"
	"time"

	"github.com/weirlimits/weir"
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

func ParseAcquire(data []byte) (string, weir.Request, time.Duration, error) {
	a, err := parseAcquire(data)
	return a.namespace, a.request, a.wait, err
}

func SignLease(key []byte, namespace string, h weir.Held) string {
	return string(newSigner(key).append(nil, &ticket{namespace, h}))
}

func ParseLease(key []byte, id string) (string, weir.Held, bool) {
	return opened(newSigner(key).parse(id))
}

func ParsePayload(payload []byte) (string, weir.Held, bool) { return opened(parseTicket(payload)) }

func opened(t *ticket, ok bool) (string, weir.Held, bool) {
	if !ok {
		return "", weir.Held{}, false
	}
	return t.namespace, t.held, true
}

// Kinds lists the URIs of all kinds of problems.
func Kinds() (uris []string) {
	for _, k := range []*kind{
		kindInvalid, kindForeign, kindNotFound, kindMethod, kindExists, kindConflict, kindSettled, kindExpired,
		kindTooLarge, kindMedia, kindBurst, kindNoLimits, kindExceeded, kindInternal, kindUnavailable,
	} {
		uris = append(uris, k.uri)
	}
	return uris
}
