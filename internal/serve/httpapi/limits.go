package httpapi

import (
	"context"
	"io"

	"github.com/weirlimits/weir/internal/serve/decide"
)

// Unfinished bodies may take up only a bounded amount of memory. Each is small, but a client that sends slowly can have
// one in progress on every connection.
const (
	smallBody = 64 << 10  // bytes; smaller bodies are not counted
	maxBodies = 256 << 20 // bytes of all other bodies together
)

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
