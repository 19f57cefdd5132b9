package wire_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
)

// TestBlockingDialer checks that a socket that a dialer has made block is used without blocking: File and Fd, by which options
// were once set, do so.
func TestBlockingDialer(t *testing.T) {
	t.Parallel()
	s := serve(t, always(says(200, well)))
	_, w := clients(t, cached(s.url()), func(h *http.Transport) {
		h.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			f, err := c.(*net.TCPConn).File()
			if err != nil {
				return nil, err
			}
			_ = f.Fd()
			return c, f.Close()
		}
	})
	for range 3 {
		want(t, w) // each looks at the connection first, on which there is nothing to read
	}
	answered(t, begin(t, w))
	if s.conns.Load() != 1 {
		t.Errorf("%d connections", s.conns.Load())
	}
}

// TestResetIsTold checks that the error of a connection that the server reset says so, and names its ends, however it is
// waited for.
func TestResetIsTold(t *testing.T) {
	t.Parallel()
	s := serve(t, func(r *request, w net.Conn) bool {
		if r.n%2 == 1 {
			_, _ = io.WriteString(w, says(200, well))
			return false
		}
		_ = w.(*net.TCPConn).SetLinger(0)
		return true
	})
	_, w := clients(t, cached(s.url()))
	for name, ask := range map[string]func() error{
		"called": func() error { _, err := call(t, w); return err },
		"begun": func() error {
			c := begin(t, w)
			if !c.Wait(t.Context()) {
				t.Error("it is still to be waited for")
			}
			_, err := c.Answer()
			return err
		},
	} {
		want(t, w)
		err := ask()
		var op *net.OpError
		if !errors.Is(err, syscall.ECONNRESET) || !errors.As(err, &op) || op.Op != "read" || op.Addr == nil || op.Source == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
