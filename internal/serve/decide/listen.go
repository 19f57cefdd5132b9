package decide

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"time"
)

// spareFor is how long a spare connection may last. Anyone can open one, so each has a short life.
const spareFor = 2 * time.Second

// Bounded returns a listener that keeps at most [Config.MaxConnections] connections open, and as many spare ones for
// short requests, see [Spare]. It closes others at once: if they waited to be accepted instead, so would the probes of
// load balancers that could send the clients elsewhere.
func (d *Decider) Bounded(ln net.Listener, spares int) net.Listener {
	return &boundedListener{ln, d, make(chan struct{}, d.MaxConnections), make(chan struct{}, spares)}
}

type boundedListener struct {
	net.Listener
	d             *Decider
	slots, spares chan struct{}
}

// Accept waits for a connection for which there is room.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &boundedConn{Conn: c, free: sync.OnceFunc(func() { <-l.slots })}, nil
		default:
		}
		l.d.overloads.Warn("too many connections: new ones are refused", slog.Int("max", l.d.MaxConnections))
		select {
		case l.spares <- struct{}{}:
			return &boundedConn{Conn: c, free: sync.OnceFunc(func() { <-l.spares }), end: time.Now().Add(spareFor)}, nil
		default:
			_ = c.Close()
		}
	}
}

type boundedConn struct {
	net.Conn
	free func()
	end  time.Time // of a spare connection; zero for others
}

// Close closes the connection and makes room for another.
func (c *boundedConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}

// SetDeadline sets a deadline no later than the connection's end, as do the next two methods.
func (c *boundedConn) SetDeadline(t time.Time) error { return c.Conn.SetDeadline(c.bounded(t)) }

// SetReadDeadline implements [net.Conn].
func (c *boundedConn) SetReadDeadline(t time.Time) error { return c.Conn.SetReadDeadline(c.bounded(t)) }

// SetWriteDeadline implements [net.Conn].
func (c *boundedConn) SetWriteDeadline(t time.Time) error {
	return c.Conn.SetWriteDeadline(c.bounded(t))
}

func (c *boundedConn) bounded(t time.Time) time.Time {
	if !c.end.IsZero() && (t.IsZero() || t.After(c.end)) {
		return c.end
	}
	return t
}

type spareKey struct{}

// MarkSpare marks the context of a spare connection, for [Spare]. It is a ConnContext of net/http.
func MarkSpare(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if b, ok := c.(*boundedConn); ok && !b.end.IsZero() {
		return context.WithValue(ctx, spareKey{}, true)
	}
	return ctx
}

// Spare reports whether a request came on a spare connection, which is for probes.
func Spare(ctx context.Context) bool { return ctx.Value(spareKey{}) != nil }
