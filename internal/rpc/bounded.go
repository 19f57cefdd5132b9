package rpc

import (
	"net"
	"sync"
	"sync/atomic"
)

// bounded is a listener that closes at once what it accepts beyond a number of connections: a client that hears so can
// go elsewhere, one that is left in the backlog can not.
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
		_ = c.Close() // it was never of use
	}
}

// crowd is how many of something there are at once.
type crowd struct {
	n    atomic.Int64
	most int64
}

// enter reports whether there was room for one more, who is to leave then.
func (c *crowd) enter() bool {
	if c.n.Add(1) <= c.most {
		return true
	}
	c.leave()
	return false
}

func (c *crowd) leave() { c.n.Add(-1) }

type counted struct {
	net.Conn
	by   *bounded
	once sync.Once
}

// Close closes the connection and makes room.
func (c *counted) Close() error {
	c.once.Do(func() { c.by.free.Add(1) })
	return c.Conn.Close()
}
