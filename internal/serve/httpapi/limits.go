package httpapi

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/weirlimits/weir/internal/serve/admission"
)

// The default bounds on a server's concurrent load.
const (
	DefaultConnections = 10_000
	DefaultInflight    = 4096
)

// maxQueued is how long a request waits for its turn. By then a burst is over; if the server cannot keep up, the client
// should be told at once.
const maxQueued = 100 * time.Millisecond

// maxManifests bounds the concurrent requests with manifests: each can keep a processor busy for seconds.
const maxManifests = 4

// Unfinished bodies may take up only a bounded amount of memory. Each is small, but a client that sends slowly can have one
// in progress on every connection.
const (
	smallBody = 64 << 10  // bytes; smaller bodies are not counted
	maxBodies = 256 << 20 // bytes of all other bodies together
)

// turn is a request's place. A request takes it only once its body has arrived, so that slow senders do not block others.
type turn struct {
	who        string // the principal of the request's token
	held, also *admission.Slots
}

func (t *turn) take(ctx context.Context, p *admission.Slots) error {
	if t.held != nil {
		return nil
	}
	if !p.Take(ctx, t.who, maxQueued) {
		return errOverloaded
	}
	t.held = p
	return nil
}

func (t *turn) end() {
	if t.held != nil {
		t.held.Free(t.who)
		t.held = nil
	}
	if t.also != nil {
		t.also.Free(t.who)
		t.also = nil
	}
}

// move exchanges the place for one elsewhere, because waiting requests and open streams do not count as work.
func (t *turn) move(to *admission.Slots) error {
	if t.held == to {
		return nil
	}
	if !to.Try(t.who) {
		return errOverloaded
	}
	t.end()
	t.held = to
	return nil
}

// bounded gives a request its turn or refuses it.
func (s *Server) bounded(v *visit, w http.ResponseWriter, r *http.Request, serve handler) error {
	defer v.turn.end()
	v.turn.who = v.Name
	if v.need.exempt {
		return serve(w, r)
	}
	if r.ContentLength == 0 || r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodDelete {
		if err := v.turn.take(r.Context(), s.working); err != nil {
			return err
		}
	} else {
		body := &incoming{ReadCloser: r.Body, ctx: r.Context(), s: s, turn: &v.turn}
		defer body.forget()
		r.Body = body
	}
	return serve(w, r)
}

// waits moves a request to those that wait for tokens.
func (s *Server) waits(r *http.Request) error { return visitOf(r).turn.move(s.waiting) }

// streams moves a request to the event streams. Call it before the response is started.
func (s *Server) streams(r *http.Request) error { return visitOf(r).turn.move(s.streaming) }

// declares adds a request to those that work on manifests. It keeps the place that it has.
func (s *Server) declares(r *http.Request) error {
	t := &visitOf(r).turn
	if !s.declaring.Take(r.Context(), t.who, maxQueued) {
		return errOverloaded
	}
	t.also = s.declaring
	return nil
}

// incoming is a body. When it has been read to its end, the request takes its turn.
type incoming struct {
	io.ReadCloser
	ctx  context.Context //nolint:containedctx // of the request, like the body
	s    *Server
	turn *turn

	size, counted int64 // counted is the part of size that is in the server's total
}

func (b *incoming) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.size += int64(n); b.size > smallBody {
		more := b.size - b.counted
		b.counted = b.size
		if b.s.bodies.Add(more) > maxBodies {
			return n, errOverloaded
		}
	}
	if err == io.EOF {
		if refused := b.turn.take(b.ctx, b.s.working); refused != nil {
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
