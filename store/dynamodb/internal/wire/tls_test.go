package wire_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// corked is a connection that, while corked, holds back what is written and then sends it in one piece.
type corked struct {
	net.Conn

	hold bool
	held bytes.Buffer
}

func (c *corked) Write(b []byte) (int, error) {
	if c.hold {
		return c.held.Write(b)
	}
	return c.Conn.Write(b)
}

// TestOthersAnswerTLS checks that what follows an answer, and was decrypted or read along with it, never reaches the next
// caller.
func TestOthersAnswerTLS(t *testing.T) {
	t.Parallel()
	long := says(200, strings.TrimSuffix(well, "}}")+`,"x":{"S":"`+strings.Repeat("x", 9000)+`"}}}`)
	other := says(200, `{"Attributes":{"wc":{"N":"8"}}}`)
	ca := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(ca.Close)
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate())
	for name, texts := range map[string][]string{
		"in the same record": {long + other}, "in a record of its own": {says(200, well), other},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := ca.TLS.Clone()
			cfg.DynamicRecordSizingDisabled = true
			s := serveOver(t, func(c net.Conn) (net.Conn, *corked) {
				k := &corked{Conn: c}
				return tls.Server(k, cfg), k
			}, func(r *request, w net.Conn, k *corked) {
				if r.conn > 1 {
					_, _ = io.WriteString(w, says(200, well))
					return
				}
				k.hold = true
				for _, text := range texts {
					_, _ = io.WriteString(w, text)
				}
				k.hold = false
				_, _ = k.held.WriteTo(k.Conn)
			})
			o := options(strings.Replace(s.url(), "http:", "https:", 1))
			_, w := clients(t, o, func(h *http.Transport) { h.TLSClientConfig = &tls.Config{RootCAs: roots} }) //nolint:gosec // httptest's is 1.3
			want(t, w)
			want(t, w)
			want(t, w)
			if s.conns.Load() != 2 || s.requests.Load() != 3 {
				t.Errorf("%d requests on %d connections", s.requests.Load(), s.conns.Load())
			}
		})
	}
}

// serveOver is serve over connections of another kind.
func serveOver(t *testing.T, over func(net.Conn) (net.Conn, *corked), answer func(r *request, w net.Conn, k *corked)) *server {
	t.Helper()
	return accept(t, func(s *server, c net.Conn, n int64) {
		w, k := over(c)
		s.answer(w, n, func(r *request, w net.Conn) bool { answer(r, w, k); return false })
	})
}
