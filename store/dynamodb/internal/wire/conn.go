package wire

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

const (
	// maxAnswer bounds an answer. An item is at most 400 KB.
	maxAnswer = 4 << 20
	// keptBody is up to which size a connection keeps the space for an answer.
	keptBody = 64 << 10
)

var errTooLong = errors.New("the answer is longer than any of an item")

// conn is a connection, which one call at a time uses.
type conn struct {
	net.Conn

	raw    syscall.RawConn // of the socket; nil: nobody can look whether it is dead, and it serves one call
	in     *bufio.Reader
	left   io.LimitedReader // what in reads: the connection, up to the bound
	answer answer           // the last
	idle   time.Time        // since when
	look   func(uintptr) bool
	peek   peek
	tls    bool // it may have read more from the socket than it has given out
	spare  [1]byte
}

func newConn(c net.Conn, socket net.Conn) *conn {
	k := &conn{Conn: c, tls: c != socket}
	if s, ok := socket.(syscall.Conn); ok {
		k.raw, _ = s.SyscallConn()
	}
	k.left.R = c
	k.in = bufio.NewReader(&k.left)
	k.look = k.peek.look
	return k
}

// alive reports whether the server has neither closed the connection nor sent anything that nobody asked for.
func (c *conn) alive() bool {
	return c.raw.Read(c.look) == nil && c.peek.nothing
}

// exchange sends a request and reads the answer to it, which is good until the next. Without an answer there is an error;
// with one it says itself whether it broke off.
func (c *conn) exchange(ctx context.Context, request []byte) (a *answer, err error) {
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
		defer func() {
			if !stop() && err == nil {
				a.last = true // its deadline is about to be changed
			}
		}()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.left.N = maxAnswer
	if _, err := c.Write(request); err != nil {
		return nil, cause(ctx, err)
	}
	a = &c.answer
	*a = answer{date: a.date, head: a.head[:0], body: a.body[:0]}
	if _, err := c.in.Peek(1); err != nil {
		return nil, c.cause(ctx, err)
	}
	if head, _ := c.in.Peek(c.in.Buffered()); a.read(head) {
		_, _ = c.in.Discard(len(a.head))
		if _, a.err = io.ReadFull(c.in, a.body); a.err != nil {
			a.body = a.body[:0]
		}
	} else if err := a.readAny(c.in); err != nil {
		return nil, c.cause(ctx, err)
	}
	if a.err != nil || c.left.N <= 0 {
		a.err = c.cause(ctx, a.err)
	}
	if a.err != nil || c.in.Buffered() > 0 || c.withholds() {
		a.last = true // of whatever is there the next caller is to see nothing
	}
	return a, nil
}

// withholds reports whether there is more in the connection than what was read of it, which a look at the socket does not
// find. Nobody can read from it after that until its deadline is set.
func (c *conn) withholds() bool {
	if !c.tls {
		return false
	}
	if c.SetReadDeadline(time.Unix(1, 0)) != nil { // only what is there already
		return true
	}
	_, err := c.Read(c.spare[:])
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

func (c *conn) cause(ctx context.Context, err error) error {
	if c.left.N <= 0 {
		return errTooLong
	}
	return cause(ctx, err)
}

// cause is why an exchange failed: the context's error if that ended it.
func cause(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return context.DeadlineExceeded // which the context itself will find a moment later
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

// shake makes a connection one with TLS.
func shake(ctx context.Context, socket net.Conn, cfg *tls.Config, timeout time.Duration) (net.Conn, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	t := tls.Client(socket, cfg)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = socket.Close()
		return nil, err
	}
	return t, nil
}
