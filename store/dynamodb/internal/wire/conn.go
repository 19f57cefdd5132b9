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
	// maxAnswer bounds an answer. The items of a batch are at most 16 MB, and values are a third longer in base64.
	maxAnswer = 24 << 20
	// maxPlain bounds an answer for which there is room at once.
	maxPlain = 4 << 20
	// keptBody is the largest buffer for an answer that a connection keeps.
	keptBody = 64 << 10
)

var errShake = errors.New("the TLS handshake took too long")

var errTooLong = errors.New("the answer is longer than 24 MiB, which no items are")

// conn is a connection. One call at a time uses it.
type conn struct {
	net.Conn

	raw    syscall.RawConn // of the socket; nil: it cannot be inspected, so the connection serves only one call
	in     *bufio.Reader
	left   io.LimitedReader // what in reads: the connection, up to maxAnswer
	answer answer           // the last answer
	parsed bool             // the answer was parsed as far as it had arrived
	plain  bool             // the answer has a plain head; otherwise net/http reads it
	failed error            // why no answer came
	idle   time.Time        // since when the connection is idle
	until  time.Time        // the deadline
	look   func(uintptr) bool
	peek   peek
	used   bool // something was sent
	tls    bool // TLS may have read more from the socket than it has passed on
	spare  [1]byte
}

func newConn(c net.Conn, socket net.Conn) *conn {
	k := &conn{Conn: c, tls: c != socket}
	if s, ok := socket.(syscall.Conn); ok {
		k.raw, _ = s.SyscallConn()
	}
	k.left.R = c
	k.in = bufio.NewReader(&k.left)
	k.peek = newPeek(socket)
	k.look = k.peek.look
	return k
}

// alive reports whether the server has neither closed the connection nor sent anything unrequested.
func (c *conn) alive() bool {
	return c.raw.Read(c.look) == nil && c.peek.nothing
}

// limit sets the deadline of the next exchange.
func (c *conn) limit(deadline time.Time) error {
	c.until = deadline
	return c.SetDeadline(deadline)
}

// exchange sends a request and reads the answer, which is valid until the next exchange. If there is no answer, exchange
// returns an error. An answer itself says whether it broke off.
func (c *conn) exchange(ctx context.Context, request []byte) (a *answer, err error) {
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(past) })
		defer func() {
			if !stop() && err == nil {
				a.last = true // its deadline is about to be changed
			}
		}()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := c.send(request); err != nil {
		return nil, cause(ctx, err)
	}
	return c.receive(ctx)
}

// past is a deadline for calls that must not wait.
var past = time.Unix(1, 0)

func (c *conn) send(request []byte) error {
	c.left.N, c.used = maxAnswer, true
	a := &c.answer
	*a = answer{date: a.date, head: a.head[:0], body: a.body[:0]}
	c.parsed, c.plain, c.failed = false, false, nil
	_, err := c.Write(request)
	return err
}

// await waits until receive does not have to, and reports whether that is so. It is not if ctx ends earlier, or if the
// answer arrives in pieces.
func (c *conn) await(ctx context.Context) bool {
	if ctx.Done() != nil {
		done := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(done)
			_ = c.SetReadDeadline(past)
		})
		defer func() {
			if !stop() {
				<-done
				_ = c.SetReadDeadline(c.until)
			}
		}()
	}
	if err := c.parse(); err != nil {
		if ctx.Err() != nil {
			return false
		}
		c.failed = err // a connection tells why it broke only once
		return true
	}
	return c.plain && c.in.Buffered() >= len(c.answer.body)
}

// parse waits for an answer to begin, and reads its head if that is plain.
func (c *conn) parse() error {
	if c.parsed || c.failed != nil {
		return c.failed
	}
	if _, err := c.in.Peek(1); err != nil {
		return err
	}
	head, _ := c.in.Peek(c.in.Buffered())
	if c.plain = c.answer.read(head); c.plain {
		_, _ = c.in.Discard(len(c.answer.head))
	}
	c.parsed = true
	return nil
}

// receive reads the answer to what was sent.
func (c *conn) receive(ctx context.Context) (*answer, error) {
	if err := c.parse(); err != nil {
		return nil, c.cause(ctx, err)
	}
	a := &c.answer
	if c.plain {
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
		a.last = true // the next caller must not see anything that is left
	}
	return a, nil
}

// withholds reports whether the connection holds more than what was read from it, which an inspection of the socket does
// not show. After that, the connection cannot be read until its deadline is set.
func (c *conn) withholds() bool {
	if !c.tls {
		return false
	}
	if c.SetReadDeadline(past) != nil { // so that only what is there already is read
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

// cause returns why an exchange failed: the context's error if the context ended it.
func cause(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return context.DeadlineExceeded // the context itself ends a moment later
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

// shake turns a connection into one with TLS.
func shake(ctx context.Context, socket net.Conn, cfg *tls.Config, timeout time.Duration) (net.Conn, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	t := tls.Client(socket, cfg)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = socket.Close()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, errShake // no call's time is up
		}
		return nil, err
	}
	return t, nil
}
