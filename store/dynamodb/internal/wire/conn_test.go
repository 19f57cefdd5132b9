package wire_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/weirlimits/weir/store/dynamodb/internal/wire"
)

// TestNeverTwice checks that a request that got no complete answer is not sent again, and that its connection is not used
// again.
func TestNeverTwice(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]string{
		"no answer": "", "half a head": "HTTP/1.1 200 OK\r\nDate", "half a body": says(200, well)[:len(says(200, well))-9],
		"no HTTP": "what?\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(r *request, w net.Conn) bool {
				if r.n == 2 {
					_, _ = io.WriteString(w, part)
					return true
				}
				_, _ = io.WriteString(w, says(200, well))
				return false
			})
			_, w := clients(t, options(s.url()))
			want(t, w) // the connection works
			_, err := call(t, w)
			if err == nil || s.requests.Load() != 2 {
				t.Fatalf("error %v, %d requests", err, s.requests.Load())
			}
			var api smithy.APIError
			if errors.As(err, &api) {
				t.Errorf("an error of DynamoDB: %v", err)
			}
			want(t, w)
			if s.requests.Load() != 3 || s.conns.Load() != 2 {
				t.Errorf("%d requests on %d connections", s.requests.Load(), s.conns.Load())
			}
		})
	}
}

// TestDeadIsNoticed checks that a connection that the server closed, or sent data on without being asked, is not written
// to.
func TestDeadIsNoticed(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(net.Conn){
		"closed":  func(c net.Conn) { c.Close() },
		"written": func(c net.Conn) { _, _ = io.WriteString(c, says(200, `{"Attributes":{"wc":{"N":"8"}}}`)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := make(chan net.Conn, 2)
			s := serve(t, func(_ *request, w net.Conn) bool {
				_, _ = io.WriteString(w, says(200, well))
				conn <- w
				return false
			})
			_, w := clients(t, options(s.url()))
			want(t, w)
			after(<-conn)
			arrived(t, w)
			want(t, w)
			if s.requests.Load() != 2 || s.conns.Load() != 2 {
				t.Errorf("%d requests on %d connections", s.requests.Load(), s.conns.Load())
			}
			if _, open := w.Idle(); open != 1 {
				t.Errorf("%d connections are open", open)
			}
		})
	}
}

// arrived waits until the only idle connection is seen to be dead.
func arrived(t *testing.T, w *wire.Client) {
	t.Helper()
	for range 10_000 {
		if !w.Alive() {
			return
		}
		time.Sleep(time.Millisecond) // real time: the kernel's, until what was sent is there
	}
	t.Fatal("the connection is as good as new")
}

// TestOthersAnswer checks that what follows an answer never reaches the next caller.
func TestOthersAnswer(t *testing.T) {
	t.Parallel()
	other := says(200, `{"Attributes":{"wc":{"N":"8"},"s":{"S":"rpm"}}}`)
	s := serve(t, func(r *request, w net.Conn) bool {
		text := says(200, well)
		if r.n == 1 {
			text += other
		}
		_, _ = io.WriteString(w, text)
		return false
	})
	_, w := clients(t, options(s.url()))
	want(t, w)
	if idle, _ := w.Idle(); idle > 0 {
		arrived(t, w) // it arrived a little later
	}
	want(t, w)
	if s.conns.Load() != 2 {
		t.Errorf("%d connections", s.conns.Load())
	}
}

// TestTooLong checks that an answer that is too long is not read to its end.
func TestTooLong(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"a length": "HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", "no length": "HTTP/1.1 200 OK\r\n\r\n",
		"a header": "HTTP/1.1 200 OK\r\nX: ",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(_ *request, w net.Conn) bool {
				_, _ = io.WriteString(w, head+strings.Repeat(" ", wire.MaxAnswer))
				return true
			})
			_, w := clients(t, options(s.url()))
			if out, err := call(t, w); err == nil || !strings.Contains(err.Error(), "longer than") {
				t.Errorf("%v, error %v", out, err)
			}
			if _, open := w.Idle(); open != 0 {
				t.Errorf("%d connections are open", open)
			}
		})
	}
}

// TestDeadline checks that a call ends in time with an unknown outcome, and that an answer that arrives too late reaches
// no caller.
func TestDeadline(t *testing.T) {
	t.Parallel()
	for _, cancels := range []bool{false, true} {
		for name, part := range map[string]string{"no answer": "", "half an answer": says(200, well)[:150]} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				got := make(chan struct{}, 1)
				s := serve(t, func(r *request, w net.Conn) bool {
					if r.n != 2 {
						_, _ = io.WriteString(w, says(200, well))
						return false
					}
					_, _ = io.WriteString(w, part)
					got <- struct{}{}
					return false
				})
				_, w := clients(t, options(s.url()))
				want(t, w)
				ctx, cancel := context.WithCancel(t.Context())
				wantErr := context.Canceled
				if cancels {
					go func() { <-got; cancel() }()
				} else {
					cancel()
					ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond) // real time: a socket's deadline is
					wantErr = context.DeadlineExceeded
				}
				defer cancel()
				_, err := w.UpdateItem(ctx, write(), once)
				var api smithy.APIError
				if !errors.Is(err, wantErr) || errors.As(err, &api) {
					t.Errorf("error %v", err)
				}
				want(t, w)
				if n := s.requests.Load(); n > 3 || s.conns.Load() < 2 {
					t.Errorf("%d requests on %d connections", n, s.conns.Load())
				}
			})
		}
	}
}

// TestUnsent checks that a request that could not be sent is known not to have been sent.
func TestUnsent(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, w := clients(t, options("http://"+l.Addr().String()))
	_, err = call(t, w)
	var op *net.OpError
	var send *url.Error
	if !errors.As(err, &op) || op.Op != "dial" || !errors.As(err, &send) || w.Sent() != 0 {
		t.Errorf("%d sent: %v", w.Sent(), err)
	}
}

// TestTLS checks that the transport's authorities are trusted, and no others.
func TestTLS(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 {
			w.WriteHeader(http.StatusHTTPVersionNotSupported)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, well)
	}))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	_, w := clients(t, options(s.URL), func(h *http.Transport) { h.TLSClientConfig = &tls.Config{RootCAs: roots} }) //nolint:gosec // httptest's is 1.3
	for range 3 {
		want(t, w)
	}
	if idle, open := w.Idle(); idle != 1 || open != 1 || w.Sent() != 3 {
		t.Errorf("%d idle of %d connections, %d sent", idle, open, w.Sent())
	}
	s.CloseClientConnections()
	arrived(t, w)
	want(t, w)

	_, w = clients(t, options(s.URL))
	var cert *tls.CertificateVerificationError
	if _, err := call(t, w); !errors.As(err, &cert) || w.Sent() != 0 {
		t.Errorf("%d sent: %v", w.Sent(), err)
	}
}

// TestCredentials checks that each request is signed with the provider's current credentials. An account's own endpoint
// changes with them.
func TestCredentials(t *testing.T) {
	t.Parallel()
	got := make(chan *request, 1)
	s := serve(t, func(r *request, w net.Conn) bool {
		got <- r
		_, _ = io.WriteString(w, says(200, well))
		return false
	})
	o := options(s.url())
	k := someKeys()
	o.Credentials = k
	_, w := clients(t, o)
	for _, c := range []aws.Credentials{*k.current.Load(), {AccessKeyID: "OTHER", SecretAccessKey: "x"}, {AccessKeyID: "AKID", SecretAccessKey: "y", SessionToken: "new"}} {
		k.current.Store(&c)
		want(t, w)
		r := <-got
		if !strings.Contains(r.Header.Get("Authorization"), "Credential="+c.AccessKeyID+"/") || r.Header.Get("X-Amz-Security-Token") != c.SessionToken {
			t.Errorf("headers %v", r.Header)
		}
		// Compare with the SDK's signature for that time.
		at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if err != nil {
			t.Fatal(err)
		}
		if head := wire.HeadAs(c, "eu-central-1", r.Host, r.Header, r.body, at); !strings.Contains(head, r.Header.Get("Authorization")) {
			t.Errorf("signed otherwise: %s", head)
		}
	}
	if w.Sent() != 3 || s.conns.Load() != 1 {
		t.Errorf("%d sent on %d connections", w.Sent(), s.conns.Load())
	}
}

// TestClock checks that requests are signed by the server's clock.
func TestClock(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	later := time.Now().Add(time.Hour)
	s := serve(t, func(r *request, w net.Conn) bool {
		got <- r.Header.Get("X-Amz-Date")
		_, _ = io.WriteString(w, says(200, well, "Date: "+later.UTC().Format(http.TimeFormat)))
		return false
	})
	for _, disabled := range []bool{false, true} {
		o := options(s.url())
		o.DisableClockSkewCorrection = disabled
		_, w := clients(t, o)
		want(t, w)
		<-got
		want(t, w)
		at, err := time.Parse("20060102T150405Z", <-got)
		if err != nil || disabled != at.Before(later.Add(-time.Minute)) {
			t.Errorf("disabled %v: signed at %v", disabled, at)
		}
	}
}

// TestMany checks that many concurrent callers each get their own answer.
func TestMany(t *testing.T) {
	t.Parallel()
	s := serve(t, func(r *request, w net.Conn) bool {
		_, name, _ := strings.Cut(string(r.body), `"TableName":"`)
		name, _, _ = strings.Cut(name, `"`)
		_, _ = io.WriteString(w, says(200, `{"Attributes":{"a":{"S":"`+name+`"}}}`))
		return false
	})
	o := options(s.url())
	_, w := clients(t, o, func(h *http.Transport) { h.MaxConnsPerHost = 5 })
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 30 {
				in := write()
				in.TableName = aws.String(strings.Repeat("x", i+1))
				out, err := w.UpdateItem(t.Context(), in, once)
				if err != nil {
					t.Error(err)
					return
				}
				if got := text(out.Attributes["a"]); got != *in.TableName {
					t.Errorf("the answer of %q went to %q", got, *in.TableName)
				}
			}
		})
	}
	wg.Wait()
	if _, open := w.Idle(); open > 5 || w.Sent() == 0 {
		t.Errorf("%d connections, %d sent here", open, w.Sent())
	}
}

// TestIdleAge checks that a connection that was idle for too long is closed, and not used.
func TestIdleAge(t *testing.T) {
	t.Parallel()
	s := serve(t, always(says(200, well)))
	_, w := clients(t, options(s.url()), func(h *http.Transport) { h.IdleConnTimeout = time.Millisecond }) // real time: the minimum
	want(t, w)
	for range 10_000 {
		if _, open := w.Idle(); open == 0 {
			return
		}
		time.Sleep(time.Millisecond) // real time: as above
	}
	t.Error("the connection is still open")
}

// TestNotForUs checks that calls with which anything must be done besides signing and sending are left to the SDK.
func TestNotForUs(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*dynamodb.Options){
		"middleware": func(o *dynamodb.Options) {
			o.APIOptions = append(o.APIOptions, func(*middleware.Stack) error { return nil })
		},
		"interceptor": func(o *dynamodb.Options) {
			o.Interceptors.BeforeTransmit = append(o.Interceptors.BeforeTransmit, nil)
		},
		"logs":        func(o *dynamodb.Options) { o.ClientLogMode = aws.LogRequest },
		"gzip":        func(o *dynamodb.Options) { o.EnableAcceptEncodingGzip = true },
		"resolver":    func(o *dynamodb.Options) { o.EndpointResolverV2 = resolver{} },
		"old":         func(o *dynamodb.Options) { o.EndpointResolver = dynamodb.EndpointResolverFromURL("http://x") }, //nolint:staticcheck // some still do
		"discovery":   func(o *dynamodb.Options) { o.EndpointDiscovery.EnableEndpointDiscovery = aws.EndpointDiscoveryEnabled },
		"signer":      func(o *dynamodb.Options) { o.HTTPSignerV4 = mySigner{} },
		"anonymous":   func(o *dynamodb.Options) { o.Credentials = nil },
		"preferences": func(o *dynamodb.Options) { o.AuthSchemePreference = []string{"sigv4a"} },
	} {
		o := options("http://127.0.0.1:1")
		change(&o)
		if wire.New(dynamodb.New(o), awshttp.NewBuildableClient()) != nil {
			t.Errorf("%s: passed over", name)
		}
	}
	c := dynamodb.New(options("http://127.0.0.1:1"))
	for name, h := range map[string]*awshttp.BuildableClient{
		"timeout":      awshttp.NewBuildableClient().WithTimeout(time.Hour),
		"read timeout": awshttp.NewBuildableClient().WithReadTimeout(time.Hour),
		"dial TLS": awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			t.DialTLSContext = func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
		}),
		"no keep-alives": awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { t.DisableKeepAlives = true }),
	} {
		if wire.New(c, h) != nil {
			t.Errorf("%s: passed over", name)
		}
	}
}

// TestNoSmuggling checks that a value that would end a header is not sent, as net/http does not send it.
func TestNoSmuggling(t *testing.T) {
	t.Parallel()
	s := serve(t, always(says(200, well)))
	for _, text := range []string{"AKID\n", "AKID\nX: y", "AKID\r\nX: y", "AK\x00ID"} {
		for name, c := range map[string]aws.Credentials{
			"key": {AccessKeyID: text, SecretAccessKey: "x"}, "token": {AccessKeyID: "AKID", SecretAccessKey: "x", SessionToken: text},
		} {
			o := options(s.url())
			k := someKeys()
			k.current.Store(&c)
			o.Credentials = k
			_, w := clients(t, o)
			if _, err := call(t, w); err == nil || w.Sent() != 0 {
				t.Errorf("%s %q: %d sent, error %v", name, text, w.Sent(), err)
			}
		}
	}
	if n := s.requests.Load(); n != 0 {
		t.Errorf("%d requests came", n)
	}
}

// TestNotThisWay checks the reasons for leaving calls to the SDK that show only in a request.
func TestNotThisWay(t *testing.T) {
	t.Parallel()
	s := serve(t, always(says(200, well)))
	for name, change := range map[string]func(*dynamodb.Options, *http.Transport){
		"proxy": func(_ *dynamodb.Options, h *http.Transport) {
			h.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: s.Addr().String()})
		},
		"path": func(o *dynamodb.Options, _ *http.Transport) { *o.BaseEndpoint += "/path" },
		"anonymous": func(o *dynamodb.Options, _ *http.Transport) {
			o.Credentials = aws.AnonymousCredentials{}
		},
	} {
		h := awshttp.NewBuildableClient()
		o := options(s.url())
		h = h.WithTransportOptions(func(t *http.Transport) { change(&o, t) })
		frozen := h.Freeze().(*http.Client)
		o.HTTPClient = frozen
		t.Cleanup(frozen.CloseIdleConnections)
		if w := wire.New(dynamodb.New(o), h); w != nil {
			want(t, w)
			if w.Sent() != 0 {
				t.Errorf("%s: passed over", name)
			}
		}
	}
}
