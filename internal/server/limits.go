package server

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/weirlimits/weir/internal/places"
)

// The defaults of what a server takes on at once.
const (
	DefaultConnections = 10_000
	DefaultInflight    = 4096
)

// maxQueued is how long a request waits for its turn. A burst is over by then; of a server that cannot keep up, a
// client had better hear at once.
const maxQueued = 100 * time.Millisecond

// maxManifests is how many requests with manifests are worked on at once: one can take a processor for seconds.
const maxManifests = 4

// What is kept of bodies that have not come to their end is bounded: each is small, but who sends slowly can have one
// under way on every connection.
const (
	smallBody = 64 << 10  // is not counted
	maxBodies = 256 << 20 // bytes of the others
)

// turn is a request's place. It has none before its body has come: who sends slowly keeps nobody out.
type turn struct {
	who        string // whose token came with the request
	held, also *places.Places
}

func (t *turn) take(ctx context.Context, p *places.Places) error {
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

// move gives the place back and takes another: a request that waits, or a stream that stays open, is no work.
func (t *turn) move(to *places.Places) error {
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

// bounded gives a request its turn, or refuses it.
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

// waits says that a request is about to wait for tokens.
func (s *Server) waits(r *http.Request) error { return visitOf(r).turn.move(s.waiting) }

// streams says that a request is about to become a stream of events. It must not have been answered yet.
func (s *Server) streams(r *http.Request) error { return visitOf(r).turn.move(s.streaming) }

// declares says that a request is about to work on manifests.
func (s *Server) declares(r *http.Request) error {
	t := &visitOf(r).turn
	if !s.declaring.Take(r.Context(), t.who, maxQueued) {
		return errOverloaded
	}
	t.also = s.declaring
	return nil
}

// incoming is a body at whose end the request takes its turn.
type incoming struct {
	io.ReadCloser
	ctx  context.Context //nolint:containedctx // the request's, as the body is
	s    *Server
	turn *turn

	size, counted int64 // counted are those of size that are in the server's sum
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

// forget takes the body out of the server's sum.
func (b *incoming) forget() {
	if b.counted > 0 {
		b.s.bodies.Add(-b.counted)
	}
}
