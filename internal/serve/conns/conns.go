// Package conns bounds the connections of a server, and what unfinished requests hold in memory.
package conns

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/serve/admission"
)

// DefaultUnauthenticated is the default number of connections that have not made an authenticated request yet.
const DefaultUnauthenticated = 1024

// MaxAge is how long requests are begun on a connection, give or take a tenth: what was true of the client when it
// connected, such as that its certificate is valid, counts no longer.
const MaxAge = 15 * time.Minute

// Bounds are those of a [Listener].
type Bounds struct {
	// Authenticated bounds the connections on which an authenticated request was made.
	Authenticated int
	// Unauthenticated bounds all others. Defaults to [DefaultUnauthenticated].
	Unauthenticated int
	// Headers bounds what the headers of unfinished HTTP/1 requests hold. Defaults to no bound.
	Headers *Budget
	// Evicted is called when a connection is closed because there are too many. Defaults to nothing.
	Evicted func()
}

// Listener accepts every connection. Each begins unauthenticated, until [Conn.Authenticate]. If there is no room for
// one more, the connection that has been idle longest is evicted, among those of the holder with most: an address while
// unauthenticated, then a principal. If all of a holder are busy, it is the one that has received its body longest. So
// whoever opens many connections closes their own. A holder may have three authenticated connections for each that is
// free or can be evicted: three quarters of all if it is alone, so it keeps nobody out. One more takes the place of its
// own. If several holders together keep all busy, a holder with fewer than its share, which is the same for each, takes
// the place of one that is busy: of those of the holder with most, the one that was idle longest ago.
type Listener struct {
	net.Listener

	headers *Budget
	evicted func()
	turns   *admission.Slots
	clock   atomic.Int64 // counts what makes connections idle
	began   time.Time

	mu                             sync.Mutex
	unauthenticated, authenticated pool
}

// Listen returns a listener with bounds. Closing it closes ln.
func Listen(ln net.Listener, b Bounds) *Listener {
	b.Unauthenticated = cmp.Or(b.Unauthenticated, DefaultUnauthenticated)
	if b.Evicted == nil {
		b.Evicted = func() {}
	}
	return &Listener{
		Listener: ln, headers: b.Headers, evicted: b.Evicted, turns: newTurns(), began: time.Now(),
		unauthenticated: pool{most: b.Unauthenticated, anybody: true, holders: make(map[string][]*Conn)},
		authenticated:   pool{most: b.Authenticated, holders: make(map[string][]*Conn)},
	}
}

// Accept waits for a connection, which is a [Conn].
func (l *Listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: inner, l: l}
	c.remote = &address{inner.RemoteAddr(), c}
	c.holder.Store(new(source(c.remote)))
	c.head = Hold{Budget: l.headers, Free: freeHeaders}
	c.since.Store(l.clock.Add(1))
	c.old = time.Now().Add(MaxAge - MaxAge/10 + rand.N(MaxAge/5))
	l.mu.Lock()
	out, _ := l.unauthenticated.enter(c)
	l.mu.Unlock()
	l.evict(out)
	return c, nil
}

func (l *Listener) evict(out *Conn) {
	if out != nil {
		_ = out.Close()
		l.evicted()
	}
}

// source returns what stands for who connects from an address: an IPv4 address, or the /64 network of an IPv6 address.
func source(a net.Addr) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a.String()
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is6() {
		p, _ := ip.Prefix(64)
		return p.String()
	}
	return ip.String()
}

// pool has a bounded number of connections, by their holders. [Listener.mu] guards it.
type pool struct {
	most, size int
	anybody    bool // any connection may be evicted, and a holder may have all
	holders    map[string][]*Conn
}

// perFree is how many authenticated connections a holder may have for each that is left.
const perFree = 3

// enter adds a connection, and returns the one that it evicted. It reports false if there is no room and none can.
func (p *pool) enter(c *Conn) (out *Conn, ok bool) {
	who := c.who()
	own := len(p.holders[who])
	enough := !p.anybody && own >= perFree*(p.most-p.size) && own >= perFree*p.left(who)
	if enough || p.size >= p.most {
		among := p.holders
		if enough {
			among = map[string][]*Conn{who: p.holders[who]}
		}
		if out = p.oldest(among); out == nil && p.size >= p.most {
			out = p.surplus(who)
		}
		if out == nil {
			return nil, false
		}
		out.leave()
	}
	c.pool, c.at = p, len(p.holders[who])
	p.holders[who] = append(p.holders[who], c)
	p.size++
	return out, true
}

// left returns how many connections a holder does not have and others do not need now.
func (p *pool) left(who string) int {
	n := p.most - len(p.holders[who])
	for name, all := range p.holders {
		for _, c := range all {
			if name != who && p.state(c) == working {
				n--
			}
		}
	}
	return n
}

// oldest returns the connection to evict, or nil.
func (p *pool) oldest(among map[string][]*Conn) (out *Conn) {
	most := 0
	for _, all := range among {
		if len(all) < most {
			continue
		}
		for _, c := range all {
			if p.state(c) == working {
				continue
			}
			if out == nil || len(all) > most || cmp.Or(cmp.Compare(p.state(c), p.state(out)),
				cmp.Compare(c.since.Load(), out.since.Load())) < 0 {
				out, most = c, len(all)
			}
		}
	}
	return out
}

// surplus returns the connection to evict for a holder with fewer than its share, even if it is busy, or nil.
func (p *pool) surplus(who string) *Conn {
	own, holders := len(p.holders[who]), len(p.holders)
	if own == 0 {
		holders++
	}
	if own >= p.most/holders {
		return nil
	}
	if out := p.oldest(p.holders); out != nil {
		return out
	}
	var largest []*Conn
	for _, all := range p.holders {
		if len(all) > len(largest) {
			largest = all
		}
	}
	return slices.MinFunc(largest, func(a, b *Conn) int { return cmp.Compare(a.since.Load(), b.since.Load()) })
}

// What a connection does, in the order in which they are evicted.
const (
	idle = iota
	receiving
	working // is evicted only by surplus
)

func (p *pool) state(c *Conn) int {
	switch {
	case p.anybody || c.busy.Load() == 0:
		return idle
	case c.receiving.Load():
		return receiving
	}
	return working
}

// freeHeaders are the bytes of a request's headers that are not counted, perLine what a line holds beside its own.
const freeHeaders, perLine = 16 << 10, 128

// Conn is a connection of a [Listener]. The methods of a nil Conn do nothing.
type Conn struct {
	net.Conn

	l             *Listener
	remote        net.Addr
	old           time.Time
	http2         atomic.Pointer[HTTP2]  // nil: not HTTP/2
	authenticated atomic.Bool            // see Authenticate
	holder        atomic.Pointer[string] // the listener's mu is held to change it
	busy          atomic.Int32           // requests in progress
	receiving     atomic.Bool            // see Receive
	since         atomic.Int64           // when it became idle or began to receive, by the listener's clock
	refused       refused
	head          Hold
	turn          turn

	// guarded by the listener's mu
	pool *pool // nil: closed
	at   int   // index among those of the holder
}

// refused is what was refused on a connection.
type refused struct {
	requests atomic.Int64 // since the last call of Read; see Refuse
	until    atomic.Int64 // when Authenticate looks for room again, in ns since the listener began
}

// who returns the holder.
func (c *Conn) who() string { return *c.holder.Load() }

// Old reports whether the connection has reached [MaxAge].
func (c *Conn) Old() bool { return c != nil && time.Now().After(c.old) }

// leave removes the connection from its pool.
func (c *Conn) leave() {
	p := c.pool
	if p == nil {
		return
	}
	all := p.holders[c.who()]
	last := len(all) - 1
	all[c.at] = all[last]
	all[c.at].at = c.at
	all[last] = nil
	if p.holders[c.who()] = all[:last]; last == 0 {
		delete(p.holders, c.who())
	}
	p.size--
	c.pool = nil
}

// Authenticate records that the connection has made an authenticated request, for a principal; "" means that nobody is
// authenticated, and the address counts. The first principal counts for all later ones. It reports false if there is no
// room: as many of the principal's are busy as it may have. It then does so for a second without looking again.
func (c *Conn) Authenticate(principal string) bool {
	if c == nil || c.authenticated.Load() {
		return true
	}
	l := c.l
	now := time.Since(l.began)
	if int64(now) < c.refused.until.Load() {
		return false
	}
	l.mu.Lock()
	if c.pool != &l.unauthenticated {
		open := c.pool != nil
		l.mu.Unlock()
		return open
	}
	address := c.holder.Load()
	c.leave()
	if principal != "" {
		c.holder.Store(new(principal))
	}
	out, ok := l.authenticated.enter(c)
	if ok {
		c.authenticated.Store(true)
	} else {
		c.holder.Store(address)
		c.refused.until.Store(int64(now + time.Second))
		_, _ = l.unauthenticated.enter(c) // there is room: it just left
	}
	l.mu.Unlock()
	l.evict(out)
	return ok
}

// Full reports whether no authenticated connection of a new holder can be added: all are busy, each for another.
func (l *Listener) Full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.authenticated
	return p.size >= p.most && len(p.holders) >= p.most && p.left("") <= 0
}

// Begin begins a request. A connection with requests in progress is not evicted once it is authenticated, except
// between Receive and Received.
func (c *Conn) Begin() {
	if c == nil {
		return
	}
	c.busy.Add(1)
	if c.http2.Load() == nil {
		c.endTurn()
	}
}

// Receive records that the body of the only request in progress is yet to be received.
func (c *Conn) Receive() {
	if c != nil {
		c.since.Store(c.l.clock.Add(1))
		c.receiving.Store(true)
	}
}

// Received records that the body was received.
func (c *Conn) Received() {
	if c != nil {
		c.receiving.Store(false)
		if c.http2.Load() == nil {
			c.endTurn()
		}
	}
}

// End ends a request.
func (c *Conn) End() {
	if c != nil && c.busy.Add(-1) == 0 {
		c.receiving.Store(false)
		c.since.Store(c.l.clock.Add(1))
	}
}

// Idle records that an HTTP/1 connection keeps nothing of its last request: its body may have been read after its end.
func (c *Conn) Idle() {
	if c != nil {
		c.head.Reset()
	}
}

// Refuse records that a request was refused for lack of a token, or of room for the connection. A connection with many
// of them is closed, see [HTTP2].
func (c *Conn) Refuse() {
	if c != nil {
		c.refused.requests.Add(1)
	}
}

var errHeaders = errors.New("the headers of unfinished requests take too much memory")

// Read reads, and counts what belongs to headers of HTTP/1: whatever comes while no request is in progress. It returns
// in the connection's turn, which ends with the next call, and at the latest when the headers or body that were read
// are complete.
func (c *Conn) Read(p []byte) (int, error) {
	c.endTurn()
	n, err := c.Conn.Read(p)
	if n == 0 {
		return n, err
	}
	idle, http2 := c.busy.Load() == 0, c.http2.Load() != nil
	if idle || http2 || c.receiving.Load() {
		c.takeTurn()
	}
	if idle && !http2 && !c.addHead(n+lines(p[:n])) {
		return 0, errHeaders
	}
	return n, err
}

func (c *Conn) addHead(bytes int) bool {
	return c.head.Budget == nil || c.head.Add(context.Background(), c.who(), bytes, 0)
}

// lines returns what the lines of headers hold. Of what is encrypted, it counts hardly any.
func lines(p []byte) int { return perLine * bytes.Count(p, []byte{'\n'}) }

// AddHeaders counts what was read of a secured HTTP/1 connection, decrypted. It returns an error like Read.
func (c *Conn) AddHeaders(p []byte) error {
	if c != nil && c.busy.Load() == 0 && !c.addHead(lines(p)) {
		return errHeaders
	}
	return nil
}

// Close closes the connection and makes room for another. A read that waits until requests may hold more memory ends.
func (c *Conn) Close() error {
	c.l.mu.Lock()
	c.leave()
	c.l.mu.Unlock()
	if f := c.http2.Load(); f != nil {
		f.close()
	}
	c.endTurn()
	c.head.Close()
	return c.Conn.Close()
}

// RemoteAddr returns the peer's address, from which [Of] gets the connection.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

type address struct {
	net.Addr

	c *Conn
}

// Of returns the connection with a remote address, even if TLS is between them, or nil.
func Of(remote net.Addr) *Conn {
	if a, ok := remote.(*address); ok {
		return a.c
	}
	return nil
}
