package wire_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store/dynamodb/internal/wire"
)

// cached are options with credentials that are available at once, as most users have them.
func cached(url string) dynamodb.Options {
	o := options(url)
	o.Credentials = aws.NewCredentialsCache(o.Credentials)
	return o
}

// begin sends a call, which must be possible at once.
func begin(t *testing.T, w *wire.Client) *wire.Call {
	t.Helper()
	c := w.BeginInput(write(), time.Now().Add(patient), once)
	if c == nil {
		t.Fatal("nothing was sent")
	}
	return c
}

// answered checks that a call gets a good answer.
func answered(t *testing.T, c *wire.Call) {
	t.Helper()
	out, err := c.Answer()
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := out.Attributes["wc"].(*types.AttributeValueMemberN); !ok || n.Value != "7" {
		t.Errorf("attributes %v", out.Attributes)
	}
}

// TestCall checks that a call that was begun is answered like any other, even with a refusal, and that its connection is
// used again.
func TestCall(t *testing.T) {
	t.Parallel()
	failed := `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"no","Item":{"wc":{"N":"7"}}}`
	s := serve(t, func(r *request, w net.Conn) bool {
		text := says(200, well)
		if r.n == 3 {
			text = says(400, failed)
		}
		_, _ = io.WriteString(w, text)
		return false
	})
	_, w := clients(t, cached(s.url()))
	want(t, w)
	c := begin(t, w)
	if !c.Wait(t.Context()) {
		t.Error("an answer in one piece is not there")
	}
	answered(t, c)
	var refused *types.ConditionalCheckFailedException
	if _, err := begin(t, w).Answer(); !errors.As(err, &refused) || len(refused.Item) != 1 {
		t.Errorf("error %v", err)
	}
	if s.requests.Load() != 3 || s.conns.Load() != 1 || w.Sent() != 3 || w.Judged() != 0 {
		t.Errorf("%d requests on %d connections, %d sent, %d judged", s.requests.Load(), s.conns.Load(), w.Sent(), w.Judged())
	}
}

// TestCallLeft checks that a waiting caller may leave at any time, and that the answer is there for the next one that
// waits. The connection stays as good as before.
func TestCallLeft(t *testing.T) {
	t.Parallel()
	plain := func(t *testing.T, answer func(*request, net.Conn) bool) (*server, dynamodb.Options, func(*http.Transport)) {
		t.Helper()
		s := serve(t, answer)
		return s, cached(s.url()), func(*http.Transport) {}
	}
	secure := func(t *testing.T, answer func(*request, net.Conn) bool) (*server, dynamodb.Options, func(*http.Transport)) {
		t.Helper()
		ca := httptest.NewTLSServer(http.NotFoundHandler())
		t.Cleanup(ca.Close)
		roots := x509.NewCertPool()
		roots.AddCert(ca.Certificate())
		s := serveOver(t, func(c net.Conn) (net.Conn, *corked) { return tls.Server(c, ca.TLS.Clone()), nil },
			func(r *request, w net.Conn, _ *corked) { answer(r, w) })
		return s, cached(strings.Replace(s.url(), "http:", "https:", 1)), func(h *http.Transport) {
			h.TLSClientConfig = &tls.Config{RootCAs: roots} //nolint:gosec // httptest's is 1.3
		}
	}
	for name, server := range map[string]func(*testing.T, func(*request, net.Conn) bool) (*server, dynamodb.Options, func(*http.Transport)){
		"plain": plain, "TLS": secure,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pieces := make(chan string)
			s, o, change := server(t, func(r *request, w net.Conn) bool {
				if r.n == 1 || r.n == 5 {
					_, _ = io.WriteString(w, says(200, well))
					return false
				}
				for piece := range pieces {
					if piece == "" {
						break
					}
					_, _ = io.WriteString(w, piece)
				}
				return false
			})
			t.Cleanup(func() { close(pieces) })
			_, w := clients(t, o, change)
			want(t, w)
			leave := func(c *wire.Call) {
				t.Helper()
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Millisecond, cancel) // real time: a socket's
				if c.Wait(ctx) {
					t.Error("an answer is there")
				}
			}
			text := says(200, well)
			// Leave before anything has arrived; then everything arrives.
			c := begin(t, w)
			leave(c)
			leave(c)
			pieces <- text
			pieces <- ""
			if !c.Wait(t.Context()) {
				t.Error("an answer in one piece is not there")
			}
			answered(t, c)
			// Leave after the head; the next that waits reads the rest.
			for _, cut := range []int{20, len(text) - 9} {
				c = begin(t, w)
				pieces <- text[:cut]
				leave(c)
				go func() {
					pieces <- text[cut:]
					pieces <- ""
				}()
				answered(t, c)
			}
			want(t, w)
			if s.conns.Load() != 1 || s.requests.Load() != 5 {
				t.Errorf("%d requests on %d connections", s.requests.Load(), s.conns.Load())
			}
		})
	}
}

// TestCallUnanswered checks that a call without an answer ends by its deadline, whoever waits for it, and that its
// outcome is unknown.
func TestCallUnanswered(t *testing.T) {
	t.Parallel()
	for name, closes := range map[string]bool{"silent": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(r *request, w net.Conn) bool {
				if r.n == 2 {
					return closes
				}
				_, _ = io.WriteString(w, says(200, well))
				return false
			})
			_, w := clients(t, cached(s.url()))
			want(t, w)
			c := w.BeginInput(write(), time.Now().Add(50*time.Millisecond), once) // real time: a socket's
			if c == nil {
				t.Fatal("nothing was sent")
			}
			if !c.Wait(t.Context()) {
				t.Error("it is still to be waited for")
			}
			wantErr := context.DeadlineExceeded
			if closes {
				wantErr = io.ErrUnexpectedEOF
			}
			if _, err := c.Answer(); !errors.Is(err, wantErr) {
				t.Errorf("error %v, want %v", err, wantErr)
			}
			want(t, w)
			if s.conns.Load() != 2 {
				t.Errorf("%d connections", s.conns.Load())
			}
		})
	}
}

// TestNotAtOnce checks that a call that would have to wait for something is not begun.
func TestNotAtOnce(t *testing.T) {
	t.Parallel()
	s := serve(t, always(says(200, well)))
	sent := func(w *wire.Client, n int64, why string) {
		t.Helper()
		if c := w.BeginInput(write(), time.Now().Add(patient), once); c != nil {
			t.Errorf("%s: it was begun", why)
			_, _ = c.Answer()
		}
		if w.Sent() != n {
			t.Errorf("%s: %d sent", why, w.Sent())
		}
	}
	_, w := clients(t, options(s.url()))
	want(t, w)
	sent(w, 1, "credentials of which nobody knows whether they are there")

	block := make(chan struct{})
	var blocks atomic.Bool
	cache := aws.NewCredentialsCache(aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		if blocks.Load() {
			<-block
		}
		return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "x"}, nil
	}))
	o := options(s.url())
	o.Credentials = cache
	_, w = clients(t, o)
	want(t, w)
	blocks.Store(true)
	cache.Invalidate()
	sent(w, 1, "credentials that have to be fetched")
	close(block)

	_, w = clients(t, cached(s.url()))
	sent(w, 0, "no connection")
	want(t, w)
	s.drop()
	arrived(t, w)
	sent(w, 1, "a dead connection")
	want(t, w)
	in := write()
	in.ConditionExpression = aws.String(strings.Repeat("x", 9000))
	if c := w.BeginInput(in, time.Now().Add(patient), once); c != nil || w.Sent() != 2 {
		t.Errorf("a long request was begun")
	}
	in = write()
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	if c := w.BeginInput(in, time.Now().Add(patient), once); c != nil || w.Sent() != 2 {
		t.Errorf("one for the SDK was begun")
	}
	answered(t, begin(t, w))
}
