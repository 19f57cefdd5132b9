package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// pool holds the connections to one endpoint.
type pool struct {
	addr   string
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	tls    *tls.Config // nil: no TLS
	shakes time.Duration
	most   int           // open at once; 0: any number
	kept   int           // idle at once
	keep   time.Duration // how long idle ones are kept; 0: forever

	mu      sync.Mutex
	idle    []*conn // the most recent last
	open    int
	dialing int         // connections that are being made
	waiting []chan made // calls that wait for a connection, the oldest first
	closed  bool        // no connection is kept any more
	timer   *time.Timer
}

// errFull reports that as many connections are open as allowed.
var errFull = errors.New("too many connections")

func newPool(t *http.Transport, addr, host string, secure bool) *pool {
	p := &pool{addr: addr, dial: t.DialContext, most: t.MaxConnsPerHost, kept: t.MaxIdleConnsPerHost, keep: t.IdleConnTimeout, shakes: t.TLSHandshakeTimeout}
	if p.dial == nil {
		p.dial = new(net.Dialer).DialContext
	}
	if p.kept == 0 {
		p.kept = http.DefaultMaxIdleConnsPerHost
	}
	if secure {
		p.tls = t.TLSClientConfig.Clone()
		if p.tls == nil {
			p.tls = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		p.tls.NextProtos = []string{"http/1.1"}
		if p.tls.ServerName == "" {
			p.tls.ServerName = host
		}
	}
	return p
}

// get returns a connection that is alive as far as can be told: the one that was used last, or a new one. Its deadline is
// the context's.
func (p *pool) get(ctx context.Context) (*conn, error) {
	deadline, _ := ctx.Deadline()
	if c := p.ready(deadline); c != nil {
		return c, nil
	}
	p.mu.Lock()
	full := p.most > 0 && p.open >= p.most
	if !full {
		p.open++
	}
	p.mu.Unlock()
	if full {
		return nil, errFull
	}
	c, err := p.await(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.limit(deadline); err != nil {
		p.drop(c)
		return nil, err
	}
	if c.used && !c.alive() {
		p.drop(c)
		return p.get(ctx)
	}
	return c, nil
}

// ready returns the connection that was used last and is alive as far as can be told, or nil.
func (p *pool) ready(deadline time.Time) *conn {
	for {
		c := p.pop()
		// The deadline of the connection's last call may have passed, and would keep alive from inspecting it.
		if c == nil || c.limit(deadline) == nil && (p.keep == 0 || time.Since(c.idle) < p.keep) && c.alive() {
			return c
		}
		p.drop(c)
	}
}

// made is the result of waiting for a connection.
type made struct {
	c   *conn
	err error
}

// await makes a connection, and returns it, or any other that is put back sooner. If ctx ends first, the connection is for
// the next call: otherwise calls that have less time than connecting takes would never get one.
func (p *pool) await(ctx context.Context) (*conn, error) {
	got := make(chan made, 1)
	dialing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.mu.Lock()
	p.waiting = append(p.waiting, got)
	p.dialing++
	p.mu.Unlock()
	go func() {
		defer cancel()
		c, err := p.connect(dialing)
		p.mu.Lock()
		p.dialing--
		waits := p.leave(got)
		if err != nil {
			p.open--
		}
		p.mu.Unlock()
		switch {
		case waits:
			got <- made{c, err}
		case err == nil:
			p.put(c, true)
		}
	}()
	select {
	case m := <-got:
		return m.c, m.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	waited := p.leave(got)
	if p.dialing > len(p.waiting)+1 { // one more than all that wait is enough
		cancel()
	}
	p.mu.Unlock()
	if !waited {
		if m := <-got; m.err == nil {
			p.put(m.c, true)
		}
	}
	return nil, ctx.Err()
}

// leave ends the waiting of a call, and reports whether it was still waiting.
func (p *pool) leave(got chan made) bool {
	i := slices.Index(p.waiting, got)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
	return i >= 0
}

func (p *pool) connect(ctx context.Context) (*conn, error) {
	socket, err := p.dial(ctx, "tcp", p.addr)
	if err != nil {
		return nil, err
	}
	socket = direct(socket)
	if p.tls == nil {
		return newConn(socket, socket), nil
	}
	secured, err := shake(ctx, socket, p.tls, p.shakes)
	if err != nil {
		return nil, err
	}
	return newConn(secured, socket), nil
}

func (p *pool) pop() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle) - 1
	if n < 0 {
		return nil
	}
	c := p.idle[n]
	p.idle[n], p.idle = nil, p.idle[:n]
	return c
}

// put takes a connection back. It closes the connection if it is not whole.
func (p *pool) put(c *conn, whole bool) {
	if cap(c.answer.body) > keptBody {
		c.answer.body = nil
	}
	c.idle = time.Now()
	p.mu.Lock()
	if whole && c.raw != nil && len(p.waiting) > 0 {
		p.waiting[0] <- made{c: c}
		p.waiting = slices.Delete(p.waiting, 0, 1)
		p.mu.Unlock()
		return
	}
	whole = whole && c.raw != nil && !p.closed && len(p.idle) < p.kept
	if whole {
		p.idle = append(p.idle, c)
		if p.timer == nil && p.keep > 0 {
			p.timer = time.AfterFunc(p.keep, p.prune)
		}
	}
	p.mu.Unlock()
	if !whole {
		p.drop(c)
	}
}

// drop closes a connection that is not idle.
func (p *pool) drop(c *conn) {
	p.mu.Lock()
	p.open--
	p.mu.Unlock()
	_ = c.Close()
}

// prune closes the connections that have been idle for too long.
func (p *pool) prune() {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.idle) && time.Since(p.idle[n].idle) >= p.keep {
		_ = p.idle[n].Close()
		n++
	}
	p.open -= n
	p.idle = append(p.idle[:0:0], p.idle[n:]...)
	p.timer = nil
	if len(p.idle) > 0 {
		p.timer = time.AfterFunc(p.keep-time.Since(p.idle[0].idle), p.prune)
	}
}

// close closes the idle connections. Those in use are closed when they are put back.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		_ = c.Close()
	}
	p.open -= len(p.idle)
	p.idle, p.closed = nil, true
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}
