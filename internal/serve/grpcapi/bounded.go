package grpcapi

import (
	"net"
	"sync"
	"sync/atomic"
)

// bounded is a listener that closes connections beyond a maximum as soon as it has accepted them. A client whose connection
// is closed can go elsewhere; one left in the backlog cannot.
type bounded struct {
	net.Listener
	free atomic.Int64
}

func newBounded(ln net.Listener, most int) *bounded {
	b := &bounded{Listener: ln}
	b.free.Store(int64(most))
	return b
}

// Accept returns the next connection for which there is room.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if b.free.Add(-1) >= 0 {
			return &counted{Conn: c, by: b}, nil
		}
		b.free.Add(1)
		_ = c.Close() // the connection was never used
	}
}

type counted struct {
	net.Conn
	by   *bounded
	once sync.Once
}

// Close closes the connection and makes room for another.
func (c *counted) Close() error {
	c.once.Do(func() { c.by.free.Add(1) })
	return c.Conn.Close()
}
