package grpcapi_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	_ "google.golang.org/grpc/encoding/gzip" // as the program has it, for traces
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimits/weir/api/weir/v1"
)

// target is what an attacker knows of a server.
type target struct {
	GRPC, HTTP    string // addresses
	Token, Second string // the attacker's; "" for none
}

// again runs n attacks at once, and each again a while after it ended, until ctx ends.
func again(ctx context.Context, n int, attack func(ctx context.Context, i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			timer := time.NewTicker(time.Second)
			defer timer.Stop()
			for ctx.Err() == nil {
				attack(ctx, i)
				select {
				case <-ctx.Done():
				case <-timer.C:
				}
			}
		})
	}
	wg.Wait()
}

// dial connects until ctx ends, or returns nil.
func dial(ctx context.Context, addr string) net.Conn {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil
	}
	context.AfterFunc(ctx, func() { c.Close() })
	return c
}

// attacker is an HTTP/2 connection on which each stream sends the same bytes.
type attacker struct {
	*http2.Framer
	block []byte // of the headers
	body  []byte
	ends  bool // whether a stream ends after the body

	window map[uint32]int // of the streams that have not sent all
	sent   map[uint32]int
	room   int    // the connection's window
	next   uint32 // stream
}

// withheld is a message of a mebibyte of which the last byte is missing.
var withheld = append([]byte{0, 0, 0x10, 0, 0}, make([]byte, 1<<20-1)...)

// attack opens streams for a method, each with a body, and reads all frames until the connection ends.
func (s *target) attack(ctx context.Context, method string, streams, window int, body []byte, ends bool, headers ...string) {
	c := dial(ctx, s.GRPC)
	if c == nil {
		return
	}
	defer c.Close()
	a := &attacker{
		Framer: http2.NewFramer(c, bufio.NewReader(c)), block: s.headers(method, headers...), body: body, ends: ends,
		window: make(map[uint32]int), sent: make(map[uint32]int), room: 65535, next: 1,
	}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return
	}
	if a.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(window)}) != nil {
		return
	}
	for range streams {
		if a.open() != nil {
			return
		}
	}
	for a.step() == nil {
	}
}

func (a *attacker) open() error {
	id := a.next
	a.next += 2
	a.window[id] = 65535
	err := a.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: a.block, EndHeaders: true})
	if err == nil {
		err = a.send(id)
	}
	return err
}

// send sends of a stream what the windows permit.
func (a *attacker) send(id uint32) error {
	for {
		rest := a.body[a.sent[id]:]
		n := min(len(rest), a.window[id], a.room, 16<<10)
		if n == 0 {
			return nil
		}
		a.sent[id] += n
		a.window[id] -= n
		a.room -= n
		last := n == len(rest)
		if err := a.WriteData(id, last && a.ends, rest[:n]); err != nil {
			return err
		}
		if last {
			delete(a.window, id)
		}
	}
}

// step reads a frame.
func (a *attacker) step() error {
	f, err := a.ReadFrame()
	if err != nil {
		return err
	}
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return a.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return a.WritePing(true, f.Data)
		}
	case *http2.WindowUpdateFrame:
		if f.StreamID > 0 {
			if _, open := a.window[f.StreamID]; open {
				a.window[f.StreamID] += int(f.Increment)
				return a.send(f.StreamID)
			}
			return nil
		}
		a.room += int(f.Increment)
		for id := range a.window {
			if err := a.send(id); err != nil || a.room == 0 {
				return err
			}
		}
	case *http2.HeadersFrame:
		if f.StreamEnded() {
			delete(a.window, f.StreamID)
		}
	case *http2.RSTStreamFrame:
		delete(a.window, f.StreamID)
	}
	return nil
}

// frames sends frames as fast as it can, which send writes for one stream after the other, until the connection ends.
func (s *target) frames(ctx context.Context, send func(fr *http2.Framer, id uint32) error) {
	c := dial(ctx, s.GRPC)
	if c == nil {
		return
	}
	defer c.Close()
	go func() { _, _ = io.Copy(io.Discard, c) }()
	out := bufio.NewWriterSize(c, 64<<10)
	fr := http2.NewFramer(out, nil)
	_, _ = out.WriteString(http2.ClientPreface)
	err := fr.WriteSettings()
	block := s.headers(batch)
	for id := uint32(1); err == nil; id += 2 {
		err = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
		if err == nil {
			err = send(fr, id)
		}
	}
}

// opened opens streams without headers in a single write, after a request that is answered.
func (s *target) opened(ctx context.Context, streams int) {
	c := dial(ctx, s.GRPC)
	if c == nil {
		return
	}
	defer c.Close()
	var out bytes.Buffer
	fr := http2.NewFramer(&out, c)
	out.WriteString(http2.ClientPreface)
	_ = fr.WriteSettings()
	block := s.headers("/grpc.health.v1.Health/Check")
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true})
	_ = fr.WriteData(1, true, make([]byte, 5))
	_, err := out.WriteTo(c)
	for ended := false; err == nil && !ended; {
		var f http2.Frame
		f, err = fr.ReadFrame()
		h, ok := f.(*http2.HeadersFrame)
		ended = ok && h.StreamEnded()
	}
	for id := uint32(3); streams > 0; streams-- {
		_ = fr.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, id, nil)
		id += 2
	}
	if err == nil {
		_, err = out.WriteTo(c)
	}
	if err == nil {
		_, _ = io.Copy(io.Discard, c)
	}
}

// headers returns the block of a request's headers, the same for each stream.
func (s *target) headers(method string, more ...string) []byte {
	fields := []string{":method", "POST", ":scheme", "http", ":path", method, ":authority", "x", "content-type", "application/grpc", "te", "trailers"}
	if s.Token != "" {
		fields = append(fields, "authorization", "Bearer "+s.Token)
	}
	fields = append(fields, more...)
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	for i := 0; i < len(fields); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1], Sensitive: true})
	}
	return b.Bytes()
}

// request sends the beginning of an HTTP/1 request and waits until the connection ends.
func (s *target) request(ctx context.Context, head string, rest []byte) {
	c := dial(ctx, s.HTTP)
	if c == nil {
		return
	}
	defer c.Close()
	if _, err := io.WriteString(c, head); err != nil {
		return
	}
	if _, err := c.Write(rest); err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c)
}

// withhold sends a request without the last byte of its body.
func (s *target) withhold(ctx context.Context) {
	s.request(ctx, "POST /v1/acquire HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer "+s.Token+
		"\r\nContent-Length: 1048576\r\n\r\n", spaces)
}

// message returns a gRPC message with its prefix.
func message(m proto.Message) []byte {
	b, _ := proto.Marshal(m)
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

var names atomic.Int64 // how many were invented

// invented returns a batch of requests for entities that nobody knows, others each time.
func invented(n int) *weirv1.AcquireBatchRequest {
	in := &weirv1.AcquireBatchRequest{}
	for range n {
		in.Requests = append(in.Requests, &weirv1.AcquireRequest{
			Entity: fmt.Sprint("invented-", names.Add(1)), Resource: "api", Tokens: map[string]int64{"rps": 1},
		})
	}
	return in
}

// negative returns a request of Envoy that gives back what was never taken.
func negative(domain string) *rlsv3.RateLimitRequest {
	in := &rlsv3.RateLimitRequest{Domain: domain}
	for i := range 10 {
		in.Descriptors = append(in.Descriptors, &ratelimitv3.RateLimitDescriptor{
			Entries:        []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "user", Value: fmt.Sprint("u", i)}},
			IsNegativeHits: true,
		})
	}
	return in
}

var spaces = bytes.Repeat([]byte{' '}, 1<<20-1)

// empties is a batch of half a million empty requests; compressed is the same, as a kilobyte.
var (
	empties    = append([]byte{0, 0, 0x0f, 0xff, 0xf0}, bytes.Repeat([]byte{10, 0}, 0xffff0/2)...)
	compressed = func() []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(empties[5:])
		_ = w.Close()
		return append(binary.BigEndian.AppendUint32([]byte{1}, uint32(b.Len())), b.Bytes()...)
	}()
)

const (
	batch  = "/weir.v1.Limiter/AcquireBatch"
	envoys = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
)

// attacks are what a hostile tenant does, on at most n connections, until ctx ends.
var attacks = []struct {
	name string
	run  func(s *target, ctx context.Context, n int)
}{
	{"streams", func(s *target, ctx context.Context, n int) {
		again(ctx, n, func(ctx context.Context, _ int) { s.attack(ctx, batch, 1000, 65535, withheld, false) })
	}},
	{"health-streams", func(s *target, ctx context.Context, n int) {
		again(ctx, n, func(ctx context.Context, _ int) {
			s.attack(ctx, "/grpc.health.v1.Health/Check", 1000, 65535, withheld, false)
		})
	}},
	{"many-fields", func(s *target, ctx context.Context, n int) {
		var fields []string
		for i := range 190 {
			fields = append(fields, fmt.Sprintf("%c%c", 'a'+i/26, 'a'+i%26), "")
		}
		again(ctx, n, func(ctx context.Context, _ int) {
			s.attack(ctx, "/grpc.health.v1.Health/Check", 1000, 65535, withheld[:100], false, fields...)
		})
	}},
	{"tiny-frames", func(s *target, ctx context.Context, n int) {
		again(ctx, n, func(ctx context.Context, _ int) {
			s.frames(ctx, func(fr *http2.Framer, id uint32) (err error) {
				for i := 0; i < 20_000 && err == nil; i++ {
					err = fr.WriteData(id, false, withheld[i:i+1])
				}
				return err
			})
		})
	}},
	{"continuations", func(s *target, ctx context.Context, n int) {
		again(ctx, (n+9)/10, func(ctx context.Context, _ int) {
			s.frames(ctx, func(fr *http2.Framer, id uint32) (err error) {
				err = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id + 2})
				for err == nil {
					err = fr.WriteContinuation(id+2, false, withheld[:1])
				}
				return err
			})
		})
	}},
	{"many-parts", func(s *target, ctx context.Context, n int) {
		again(ctx, n, func(ctx context.Context, _ int) { s.attack(ctx, batch, 3, 1<<20, empties, true) })
	}},
	{"compressed", func(s *target, ctx context.Context, n int) {
		again(ctx, n, func(ctx context.Context, _ int) {
			s.attack(ctx, batch, 200, 1<<20, compressed, true, "grpc-encoding", "gzip")
		})
	}},
	{"rapid-reset", func(s *target, ctx context.Context, n int) {
		again(ctx, (n+9)/10, func(ctx context.Context, _ int) {
			s.frames(ctx, func(fr *http2.Framer, id uint32) error { return fr.WriteRSTStream(id, http2.ErrCodeCancel) })
		})
	}},
	{"unread-answers", func(s *target, ctx context.Context, n int) {
		again(ctx, (n+9)/10, func(ctx context.Context, _ int) {
			s.attack(ctx, batch, 200, 0, message(invented(100)), true)
		})
	}},
	{"streams-at-once", func(s *target, ctx context.Context, n int) { // beside bodies that hold all that a token may
		second := *s
		second.Token = s.Second
		go again(ctx, n, func(ctx context.Context, i int) { second.opened(ctx, []int{990, 1800}[i%2]) })
		again(ctx, 48, func(ctx context.Context, _ int) { s.withhold(ctx) })
	}},
	{"batches", func(s *target, ctx context.Context, _ int) {
		again(ctx, 2, func(ctx context.Context, _ int) { s.attack(ctx, batch, 5, 1<<20, message(invented(500)), true) })
	}},
	{"negative-hits", func(s *target, ctx context.Context, n int) {
		again(ctx, (n+9)/10, func(ctx context.Context, _ int) { s.attack(ctx, envoys, 500, 1<<20, message(negative("noisy")), true) })
	}},
	{"forbidden-hits", func(s *target, ctx context.Context, n int) {
		again(ctx, (n+9)/10, func(ctx context.Context, _ int) { s.attack(ctx, envoys, 500, 1<<20, message(negative("quiet")), true) })
	}},
	{"slow-bodies", func(s *target, ctx context.Context, n int) {
		again(ctx, 5*n, func(ctx context.Context, _ int) { s.withhold(ctx) })
	}},
	{"slow-headers", func(s *target, ctx context.Context, n int) {
		again(ctx, 5*n, func(ctx context.Context, _ int) {
			s.request(ctx, "POST /v1/leases/", spaces[:250<<10])
		})
	}},
	{"many-lines", func(s *target, ctx context.Context, n int) { // headers without an end
		var lines []byte
		for i := range 40_000 {
			lines = fmt.Appendf(lines, "%c%c%c:\n", 'a'+i%26, 'a'+i/26%26, '0'+i/676)
		}
		again(ctx, 5*n, func(ctx context.Context, i int) {
			s.request(ctx, "GET / HTTP/1.1\n", lines[:len(lines)/(1+31*(i%2))])
		})
	}},
	{"big-leases", func(s *target, ctx context.Context, n int) {
		lease := bytes.Repeat([]byte{'x'}, 250<<10)
		lease = fmt.Appendf(lease, "/adjust HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\n{", s.Token)
		again(ctx, 5*n, func(ctx context.Context, _ int) {
			s.request(ctx, "POST /v1/leases/", lease)
		})
	}},
	{"idle-connections", func(s *target, ctx context.Context, n int) {
		again(ctx, 10*n, func(ctx context.Context, i int) {
			if i%2 == 0 {
				s.request(ctx, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", nil)
			} else {
				s.attack(ctx, batch, 0, 0, nil, false)
			}
		})
	}},
}
