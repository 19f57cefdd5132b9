package conns

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// What an HTTP/2 stream and a frame of it hold in addition to their bytes, about: a goroutine, a context, the answer.
const (
	perStream = 8 << 10
	perFrame  = 256
	// perMessage is what precedes each message of an answer, perSetting what a setting takes, in bytes.
	perMessage, perSetting = 5, 6
)

const (
	// freeAuthenticated are the bytes of unfinished requests on an authenticated connection that are not counted.
	freeAuthenticated = 16 << 10
	// maxUnauthenticated are the bytes of unfinished requests on an unauthenticated connection.
	maxUnauthenticated = 64 << 10
	// patience is how long a connection is not read while the budget is used up.
	patience = 10 * time.Second
	// maxUseless is how many useless frames a connection may receive in a second: requests that are refused and, before
	// it is authenticated, any. What no honest client does often counts for perRare: a request that is reset before its
	// message was received, and a setting, for which the server may look at all requests of the connection.
	maxUseless, perRare = 2000, 10
	// maxQueued is how long an answer waits while the budget is used up.
	maxQueued = 100 * time.Millisecond
)

// MaxStreams is how many unfinished requests an HTTP/2 connection may carry.
const MaxStreams = 1000

var (
	errAbusive         = errors.New("too many requests at once, refused, or reset before their messages were received")
	errUnauthenticated = errors.New("an unauthenticated connection sends too much")
	errHeld            = errors.New("unfinished requests take too much memory")
)

// HTTP2 is the server's side of an HTTP/2 connection, in plain text, whose frames are counted. It counts what its
// unfinished requests hold in memory, from their headers until their answers are written. While the budget is used up,
// it is not read. It ends with an error if it is unauthenticated and holds more than a few health checks need; if it
// sends requests only to reset or have them refused, or more than [MaxStreams] at once; or if what it holds does not
// end.
//
// google.golang.org/grpc bounds neither: a message is received before any handler or interceptor is called.
type HTTP2 struct {
	net.Conn

	conn    *Conn
	in, out scanner
	hold    Hold
	open    context.Context //nolint:containedctx // ends when the connection is closed
	close   context.CancelFunc

	mu        sync.Mutex
	streams   map[uint32]stream
	unwritten int   // bytes of answers that are counted; see AddAnswer
	small     int   // bytes of other answers that are not written
	second    int64 // in which useless frames were counted
	useless   int
}

// stream is an unfinished request.
type stream struct {
	size  int
	whole bool // its message was received
}

// NewHTTP2 returns an HTTP/2 connection over that of a [Listener], perhaps with TLS between them.
func NewHTTP2(c net.Conn, budget *Budget) *HTTP2 {
	f := &HTTP2{
		Conn: c, conn: Of(c.RemoteAddr()), in: scanner{left: len(http2.ClientPreface)},
		hold: Hold{Budget: budget, Free: freeAuthenticated}, streams: make(map[uint32]stream),
	}
	f.open, f.close = context.WithCancel(context.Background())
	f.conn.http2.Store(f)
	f.conn.head.Reset() // a handshake
	return f
}

// scanner finds the headers of frames in a connection's bytes.
type scanner struct {
	head [9]byte
	n    int // bytes of head
	left int // bytes before the next header
}

type frame struct {
	length int
	kind   http2.FrameType
	flags  http2.Flags
	stream uint32
}

// next returns the next frame's header and the bytes after it, or false if there is none in p.
func (s *scanner) next(p []byte) (f frame, rest []byte, ok bool) {
	skip := min(s.left, len(p))
	s.left -= skip
	p = p[skip:]
	n := copy(s.head[s.n:], p)
	p = p[n:]
	if s.n += n; s.n < len(s.head) {
		return f, nil, false
	}
	s.n = 0
	s.left = int(s.head[0])<<16 | int(s.head[1])<<8 | int(s.head[2])
	return frame{
		s.left, http2.FrameType(s.head[3]), http2.Flags(s.head[4]), binary.BigEndian.Uint32(s.head[5:]) & (1<<31 - 1),
	}, p, true
}

// Read reads, and counts what was read.
func (c *HTTP2) Read(p []byte) (int, error) {
	// A client may send much at once before its first request is authenticated: that is judged at the next call.
	authenticated := c.conn.authenticated.Load()
	if !authenticated && c.hold.bytes() > maxUnauthenticated {
		return 0, errUnauthenticated
	}
	n, err := c.Conn.Read(p)
	held, useless := 0, int(c.conn.refused.requests.Swap(0))
	c.mu.Lock()
	for f, rest, ok := c.in.next(p[:n]); ok; f, rest, ok = c.in.next(rest) {
		more, rare := c.received(f)
		held += more
		useless += perRare * rare
		if !authenticated {
			useless++
		}
	}
	abusive := c.abusive(useless) || len(c.streams) > MaxStreams
	c.mu.Unlock()
	if abusive { // it does not wait for memory
		return 0, errAbusive
	}
	switch {
	case held < 0 || !authenticated: // what is held without authentication does not count yet
		c.hold.Sub(-held)
	case held > 0 && !c.hold.add(c.open, c.conn.who(), held, patience, c.conn.endTurn):
		return 0, errHeld
	}
	return n, err
}

// received counts a frame. It returns what it adds to what is held, and how often it does what is rare; see perRare.
func (c *HTTP2) received(f frame) (held, rare int) {
	s, open := c.streams[f.stream]
	switch f.kind {
	case http2.FrameHeaders:
		if !open {
			held = perStream
		}
	case http2.FrameContinuation:
	case http2.FrameData:
		if !open {
			return 0, 0 // it was answered already
		}
	case http2.FrameRSTStream:
		delete(c.streams, f.stream)
		if open && !s.whole {
			rare = 1
		}
		return -s.size, rare
	case http2.FrameSettings:
		return 0, (f.length + perSetting - 1) / perSetting // none acknowledges the server's
	default:
		return 0, 0
	}
	held += perFrame + f.length
	s.size += held
	s.whole = s.whole || f.kind != http2.FrameContinuation && f.flags.Has(http2.FlagDataEndStream)
	c.streams[f.stream] = s
	return held, 0
}

// abusive counts useless frames, and reports whether there are too many.
func (c *HTTP2) abusive(n int) bool {
	if now := time.Now().Unix(); now != c.second {
		c.second, c.useless = now, 0
	}
	c.useless += n
	return c.useless > maxUseless
}

// Write writes, and counts what was written. A client that has received the end of a stream may open another at once,
// so the stream ends before.
func (c *HTTP2) Write(p []byte) (int, error) {
	done := 0
	c.mu.Lock()
	for f, rest, ok := c.out.next(p); ok; f, rest, ok = c.out.next(rest) {
		ends := f.kind == http2.FrameRSTStream ||
			f.kind == http2.FrameHeaders && f.flags.Has(http2.FlagHeadersEndStream)
		if f.kind == http2.FrameData {
			small := min(c.small, f.length) // no more was written of what is counted
			written := min(c.unwritten, f.length-small)
			c.small -= small
			c.unwritten -= written
			done += written
		}
		if ends {
			done += c.streams[f.stream].size
			delete(c.streams, f.stream)
		}
	}
	if len(c.streams) == 0 { // the answers to streams that were reset are not written
		done += c.unwritten
		c.unwritten, c.small = 0, 0
	}
	c.mu.Unlock()
	n, err := c.Conn.Write(p)
	if done > 0 {
		c.hold.Sub(done)
	}
	return n, err
}

// AddAnswer counts a message of an answer, of a number of bytes, until it is written. It must be called for each: which
// of those that were added is being written is not known, so small ones are taken to be written first. It reports false
// if there is no room, even after a moment: the message must not be sent.
func (c *Conn) AddAnswer(ctx context.Context, size int) bool {
	if c == nil || ctx.Err() != nil { // nobody waits for the answer
		return true
	}
	f := c.http2.Load()
	if f == nil {
		return true
	}
	size += perMessage
	f.mu.Lock()
	defer f.mu.Unlock()
	if size <= perStream && f.small+size <= perStream*len(f.streams) { // included in what the streams hold
		f.small += size
		return true
	}
	f.mu.Unlock()
	ok := f.hold.Add(ctx, c.who(), size, maxQueued)
	f.mu.Lock()
	if ok {
		f.unwritten += size
	} else {
		f.hold.Sub(size)
	}
	return ok
}

// Close closes the connection.
func (c *HTTP2) Close() error {
	c.close()
	c.hold.Close()
	return c.Conn.Close()
}
