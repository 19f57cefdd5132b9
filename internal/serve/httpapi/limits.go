package httpapi

import (
	"context"
	"io"
	"net/http"

	"github.com/weirlimits/weir/internal/serve/decide"
)

// maxManifests bounds the concurrent requests with manifests: each can keep a processor busy for seconds.
const maxManifests = 4

// Unfinished bodies may take up only a bounded amount of memory. Each is small, but a client that sends slowly can have
// one in progress on every connection.
const (
	smallBody = 64 << 10  // bytes; smaller bodies are not counted
	maxBodies = 256 << 20 // bytes of all other bodies together
)

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

// declares adds a request to those that work on manifests. It keeps the slot that it has.
func (s *Server) declares(r *http.Request) error { return callerOf(r).Join(r.Context(), s.declaring) }

// incoming is a body. When it has been read to its end, the request takes its slot.
type incoming struct {
	io.ReadCloser
	ctx    context.Context //nolint:containedctx // of the request, like the body
	s      *Server
	caller *decide.Caller

	size, counted int64 // counted is the part of size that is in the server's total
}

func (b *incoming) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.size += int64(n); b.size > smallBody {
		more := b.size - b.counted
		b.counted = b.size
		if b.s.bodies.Add(more) > maxBodies {
			return n, decide.ErrOverloaded
		}
	}
	if err == io.EOF {
		if refused := b.s.decide.Begin(b.ctx, b.caller); refused != nil {
			return n, refused
		}
	}
	return n, err
}

// forget removes the body from the server's total.
func (b *incoming) forget() {
	if b.counted > 0 {
		b.s.bodies.Add(-b.counted)
	}
}
