package httpapi

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// A few spare connections beyond the maximum are for probes, so that a busy server is not taken for a dead one and
// restarted. Anyone can open a spare connection, so each has a short life.
const (
	spares   = 32
	spareFor = 2 * time.Second
)

// limitedListener closes connections beyond a maximum. If they waited to be accepted instead, so would the probes of load
// balancers that could send the clients elsewhere.
type limitedListener struct {
	net.Listener
	slots, spare chan struct{}
	full         func()
}

// Accept waits for a connection for which there is room.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &limitedConn{Conn: c, free: sync.OnceFunc(func() { <-l.slots })}, nil
		default:
		}
		l.full()
		select {
		case l.spare <- struct{}{}:
			return &limitedConn{Conn: c, free: sync.OnceFunc(func() { <-l.spare }), end: time.Now().Add(spareFor)}, nil
		default:
			_ = c.Close()
		}
	}
}

type limitedConn struct {
	net.Conn
	free func()
	end  time.Time // of a spare connection; zero for others
}

// Close closes the connection and makes room for another.
func (c *limitedConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}

// SetDeadline sets a deadline no later than the connection's end, as do the next two methods.
func (c *limitedConn) SetDeadline(t time.Time) error { return c.Conn.SetDeadline(c.bounded(t)) }

// SetReadDeadline implements [net.Conn].
func (c *limitedConn) SetReadDeadline(t time.Time) error { return c.Conn.SetReadDeadline(c.bounded(t)) }

// SetWriteDeadline implements [net.Conn].
func (c *limitedConn) SetWriteDeadline(t time.Time) error {
	return c.Conn.SetWriteDeadline(c.bounded(t))
}

func (c *limitedConn) bounded(t time.Time) time.Time {
	if !c.end.IsZero() && (t.IsZero() || t.After(c.end)) {
		return c.end
	}
	return t
}

type spareKey struct{}

// onSpare marks the context of a spare connection.
func onSpare(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if l, ok := c.(*limitedConn); ok && !l.end.IsZero() {
		return context.WithValue(ctx, spareKey{}, true)
	}
	return ctx
}

// probesAlone answers only probes on spare connections.
func (s *Server) probesAlone(next http.Handler) http.Handler {
	refuse := s.handle(func(http.ResponseWriter, *http.Request) error { return errCrowded })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(spareKey{}) == nil {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Connection", "close")
		if r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
			next.ServeHTTP(w, r)
			return
		}
		refuse.ServeHTTP(w, r)
	})
}
