package wire_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimits/weir/store/dynamodb/internal/wire"
)

// gate holds back the connections that are made through it.
type gate struct {
	open    chan struct{}
	dialed  atomic.Int64
	dialing atomic.Int64
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) hold(h *http.Transport) {
	h.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		g.dialed.Add(1)
		g.dialing.Add(1)
		defer g.dialing.Add(-1)
		select {
		case <-g.open:
			return new(net.Dialer).DialContext(ctx, network, addr)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// eventually waits until f is true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for began := time.Now(); !f(); time.Sleep(time.Millisecond) { // real time: other goroutines and sockets
		if time.Since(began) > patient {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// start makes a call that can be left, and returns how to leave it and its error.
func start(w *wire.Client) (leave func(), ended <-chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := w.UpdateItem(ctx, write(), once)
		done <- err
	}()
	return cancel, done
}

// TestSlowDial checks that a connection serves later calls if the call that it was made for has left, and that one such
// connection is made, and no more.
func TestSlowDial(t *testing.T) {
	t.Parallel()
	s, g := serve(t, always(says(200, well))), newGate()
	_, w := clients(t, options(s.url()), g.hold)
	for i := range 3 {
		leave, ended := start(w)
		eventually(t, "the call waits for a connection", func() bool { return g.dialed.Load() == int64(i+1) })
		leave()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		eventually(t, "no more than one connection is being made", func() bool { return g.dialing.Load() <= 1 })
	}
	close(g.open)
	eventually(t, "no connection is being made", func() bool { idle, open := w.Idle(); return idle == open })
	want(t, w)
	if n := g.dialed.Load(); n != 3 || s.conns.Load() != 1 {
		t.Errorf("%d connections begun, %d made", n, s.conns.Load())
	}
}

// TestNextInLine checks that a call that waits for a connection gets one that is put back sooner.
func TestNextInLine(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan bool, 2), make(chan bool, 2)
	s := serve(t, func(_ *request, w net.Conn) bool {
		asked <- true
		<-answer
		_, _ = io.WriteString(w, says(200, well))
		return false
	})
	first, g := atomic.Bool{}, newGate()
	first.Store(true)
	_, w := clients(t, options(s.url()), func(h *http.Transport) {
		g.hold(h)
		held := h.DialContext
		h.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if first.Swap(false) {
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
			return held(ctx, network, addr)
		}
	})
	_, one := start(w)
	<-asked
	_, two := start(w)
	eventually(t, "the second call waits for a connection", func() bool { return g.dialing.Load() == 1 })
	answer <- true
	answer <- true
	if err := errors.Join(<-one, <-two); err != nil || s.conns.Load() != 1 {
		t.Errorf("%v, over %d connections", err, s.conns.Load())
	}
	close(g.open)
	eventually(t, "the other connection is kept", func() bool { idle, _ := w.Idle(); return idle == 2 })
}

// TestMoved checks that an operation does not stay with the pool of an endpoint that another one has left.
func TestMoved(t *testing.T) {
	t.Parallel()
	s := serve(t, always(says(200, well)))
	_, w := clients(t, options(s.url()))
	want(t, w)
	w.Move("http://127.0.0.1:1")
	for range 4 {
		want(t, w)
	}
	if s.conns.Load() != 2 || w.Sent() != 5 {
		t.Errorf("%d connections, %d requests sent here", s.conns.Load(), w.Sent())
	}
}

// TestClockKnown checks that the first request is signed by the server's clock if the SDK knows it, and that no deadline of
// the request from which the others were learned is in them.
func TestClockKnown(t *testing.T) {
	t.Parallel()
	later := func() time.Time { return time.Now().Add(10 * time.Minute) }
	s := serve(t, func(r *request, w net.Conn) bool {
		at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		date := "Date: " + later().UTC().Format(http.TimeFormat)
		text := says(200, found, date)
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".UpdateItem") {
			text = says(200, well, date)
		}
		if attempt := r.Header.Get("Amz-Sdk-Request"); r.n > 2 && strings.Contains(attempt, "ttl") {
			t.Errorf("attempt %q", attempt)
		}
		if err != nil || at.Before(later().Add(-time.Minute)) {
			text = says(400, `{"__type":"com.amazon.coral.service#InvalidSignatureException","message":"Signature expired"}`, date)
		}
		_, _ = io.WriteString(w, text)
		return false
	})
	c, w := clients(t, options(s.url()))
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	_, _ = c.BatchGetItem(ctx, batch()) // refused, and the SDK learns the time
	if _, err := c.BatchGetItem(ctx, batch()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.BatchGetItem(ctx, batch()); err != nil {
		t.Error(err)
	}
	want(t, w)
	if w.Sent() != 2 || s.requests.Load() != 4 {
		t.Errorf("%d requests sent here, of %d", w.Sent(), s.requests.Load())
	}
}
