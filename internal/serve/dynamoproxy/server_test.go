package dynamoproxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/governor"
)

// pipes is a listener in memory, so that a server works in virtual time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

// Accept implements [net.Listener].
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

// Addr implements [net.Listener].
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// served serves a handler, and returns what connects to it.
func served(t *testing.T, h http.Handler) func() net.Conn {
	t.Helper()
	ln := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ln) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
	return func() net.Conn {
		ours, theirs := net.Pipe()
		ln.conns <- theirs
		return ours
	}
}

// get writes a request for an item, in two parts.
func get(conn net.Conn, between func()) error {
	body := `{"TableName":"t"}`
	_, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: proxy\r\nX-Amz-Target: DynamoDB_20120810.GetItem\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(body), body[:5])
	if err != nil {
		return err
	}
	between()
	_, err = io.WriteString(conn, body[5:])
	return err
}

// A request may wait for longer than it may take to receive it.
func TestWaitIsNotReceiving(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := govern(t, governor.Config{ReadUnits: 1, WriteUnits: 1})
		connect := served(t, proxy(t, g, always(200, `{"ConsumedCapacity":{"TableName":"t","CapacityUnits":60}}`)))
		for _, least := range []time.Duration{0, time.Minute} { // the first is free, and the second pays for both
			began, conn := time.Now(), connect()
			if err := get(conn, func() {}); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%+v, %v", resp, err)
			}
			if took := time.Since(began); took < least {
				t.Errorf("took %v", took)
			}
			_, _ = resp.Body.Close(), conn.Close()
		}
	})
}

func TestSlowBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		connect := served(t, proxy(t, govern(t, governor.Config{ReadUnits: 1, WriteUnits: 1}), always(200, `{}`)))
		conn := connect()
		defer conn.Close()
		read := make(chan string, 1)
		go func() {
			text, _ := io.ReadAll(conn)
			read <- string(text)
		}()
		err := get(conn, func() { time.Sleep(31 * time.Second) }) // of virtual time
		if text := <-read; err == nil || !strings.HasPrefix(text, "HTTP/1.1 408") || !strings.Contains(text, "RequestTimeout") {
			t.Errorf("%v\n%s", err, text)
		}
	})
}

// If a client disconnects while its request waits, the request is not sent.
func TestDisconnected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := govern(t, governor.Config{ReadUnits: 1, WriteUnits: 1})
		reached := 0
		p := proxy(t, g, func(*http.Request, string) (*http.Response, error) {
			reached++
			return answer(200, `{"ConsumedCapacity":{"TableName":"t","CapacityUnits":600}}`), nil
		})
		connect := served(t, p)
		first := connect()
		if err := get(first, func() {}); err != nil {
			t.Fatal(err)
		}
		if _, err := http.ReadResponse(bufio.NewReader(first), nil); err != nil { //nolint:bodyclose // the connection is
			t.Fatal(err)
		}
		_ = first.Close()
		second := connect()
		if err := get(second, func() {}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := g.Status().Budgets[0].Waiting; n != 1 {
			t.Errorf("%d wait", n)
		}
		_ = second.Close()
		synctest.Wait()
		if n := g.Status().Budgets[0].Waiting; n != 0 || reached != 1 || p.Counts().Failed != 1 {
			t.Errorf("%d wait, %d reached DynamoDB, %+v", n, reached, p.Counts())
		}
	})
}
