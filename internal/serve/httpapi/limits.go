package httpapi

import (
	"context"
	"io"

	"github.com/weirlimits/weir/internal/serve/decide"
)

// incoming is a body. Its connection may give way to others until it has been read to its end; the request then takes
// its slot. What it is read into is counted, however little of that has arrived.
type incoming struct {
	io.ReadCloser
	ctx    context.Context //nolint:containedctx // of the request, like the body
	s      *Server
	caller *decide.Caller
	ahead  int // bytes that are held, but were not read
}

// hold holds n bytes more than were read.
func (b *incoming) hold(n int) error {
	if more := n - b.ahead; more > 0 {
		if !b.s.decide.Reserve(b.ctx, b.caller, more, 0) {
			return decide.ErrOverloaded
		}
		b.ahead = n
	}
	return nil
}

func (b *incoming) Read(p []byte) (int, error) {
	if err := b.hold(len(p)); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	b.ahead -= n
	if err == io.EOF {
		b.caller.Conn.Received()
		if refused := b.s.decide.Begin(b.ctx, b.caller); refused != nil {
			return n, refused
		}
	}
	return n, err
}
