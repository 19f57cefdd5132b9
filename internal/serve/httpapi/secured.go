package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/weirlimits/weir/internal/serve/conns"
	"github.com/weirlimits/weir/internal/serve/ratelog"
)

// maxHeaderTime is how long a handshake, and then the headers and the body of a request, may take to arrive.
const maxHeaderTime = 20 * time.Second

// securedListener adds TLS to a listener.
type securedListener struct {
	net.Listener
	cfg *tls.Config
	log *slog.Logger
}

// newSecured adds TLS without HTTP/2, because an HTTP/2 connection could carry any number of concurrent requests.
func newSecured(ln net.Listener, cfg *tls.Config, log *slog.Logger) net.Listener {
	cfg = cfg.Clone()
	cfg.NextProtos = []string{"http/1.1"}
	return &securedListener{ln, cfg, ratelog.New(log)}
}

// Accept waits for a connection.
func (l *securedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &secured{tls.Server(c, l.cfg), conns.Of(c.RemoteAddr()), l.log}, nil
}

// secured is a connection with TLS whose headers are counted as those without.
type secured struct {
	*tls.Conn
	conn *conns.Conn
	log  *slog.Logger
}

// ConnectionState makes the handshake, within a time: a server calls it first.
func (c *secured) ConnectionState() tls.ConnectionState {
	ctx, cancel := context.WithTimeout(context.Background(), maxHeaderTime)
	defer cancel()
	if err := c.HandshakeContext(ctx); err != nil { // the first call of Read returns it, too
		c.log.Warn("a TLS handshake failed", slog.String("from", c.RemoteAddr().String()), slog.Any("error", err))
		if other := (tls.RecordHeaderError{}); errors.As(err, &other) && other.Conn != nil {
			_, _ = io.WriteString(other.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nthis server answers HTTPS\n")
		}
	}
	return c.Conn.ConnectionState()
}

// Read reads, and counts headers.
func (c *secured) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if full := c.conn.AddHeaders(p[:n]); full != nil {
		return 0, full
	}
	return n, err
}
