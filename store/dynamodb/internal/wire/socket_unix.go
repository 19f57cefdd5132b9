//go:build unix

package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// peeks says whether it can be detected that a server has closed a connection.
const peeks = true

// peek inspects a socket between two calls.
type peek struct {
	read    func(fd uintptr, b []byte) (int, error)
	nothing bool
	space   [1]byte
}

// newPeek returns a peek at a connection. Only a [socket] is known not to block.
func newPeek(c net.Conn) peek {
	if _, ok := c.(*socket); ok {
		return peek{read: readNow}
	}
	return peek{read: func(fd uintptr, b []byte) (int, error) { return syscall.Read(int(fd), b) }}
}

// look determines whether there is nothing to read, not even the end. What it does read is lost, but then the connection
// is not used again.
func (p *peek) look(fd uintptr) bool {
	_, err := p.read(fd, p.space[:])
	p.nothing = errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EWOULDBLOCK)
	return true
}

// socket is a TCP connection that is read and written with [readNow] and [writeNow]. One goroutine at a time may read, and
// one write.
type socket struct {
	*net.TCPConn

	raw     syscall.RawConn
	in, out transfer
	reads   func(fd uintptr) bool
	writes  func(fd uintptr) bool
}

// transfer is a read or write under way.
type transfer struct {
	b   []byte
	n   int
	err error
}

// direct returns what a connection is used through. That is c itself if it is not plain TCP, for instance because it is
// wrapped to count or delay what passes.
func direct(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return c
	}
	// A dialer that has called File and Fd, to set an option, has made the socket block.
	var blocks error
	if raw.Control(func(fd uintptr) { blocks = syscall.SetNonblock(int(fd), true) }) != nil || blocks != nil {
		return c
	}
	s := &socket{TCPConn: tcp, raw: raw}
	s.reads = func(fd uintptr) bool { return s.in.try(readNow, fd) }
	s.writes = func(fd uintptr) bool { return s.out.try(writeNow, fd) }
	return s
}

// try makes a system call, and reports whether it had a result. If not, the poller waits until it can have one.
func (t *transfer) try(call func(fd uintptr, b []byte) (int, error), fd uintptr) bool {
	for {
		switch t.n, t.err = call(fd, t.b); {
		case errors.Is(t.err, syscall.EINTR):
		case errors.Is(t.err, syscall.EAGAIN), errors.Is(t.err, syscall.EWOULDBLOCK):
			return false
		default:
			return true
		}
	}
}

// ended returns the result of the transfer. poll is the poller's error. Errors are as those of a [net.TCPConn].
func (s *socket) ended(op string, t *transfer, poll error) (int, error) {
	n, err := t.n, t.err
	*t = transfer{}
	if err != nil {
		n, err = 0, os.NewSyscallError(op, err)
	}
	if poll != nil {
		n, err = 0, poll
		if wrapped := (*net.OpError)(nil); errors.As(poll, &wrapped) {
			err = wrapped.Err
		}
	}
	if err != nil {
		err = &net.OpError{Op: op, Net: "tcp", Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: err}
	}
	return n, err
}

// Read implements [net.Conn].
func (s *socket) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	s.in.b = b
	n, err := s.ended("read", &s.in, s.raw.Read(s.reads))
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// Write implements [net.Conn].
func (s *socket) Write(b []byte) (done int, err error) {
	for done < len(b) && err == nil {
		var n int
		s.out.b = b[done:]
		n, err = s.ended("write", &s.out, s.raw.Write(s.writes))
		done += n
	}
	return done, err
}
