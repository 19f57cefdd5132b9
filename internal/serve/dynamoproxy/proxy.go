// Package dynamoproxy puts a governor behind an endpoint: whoever can set the endpoint of their DynamoDB client keeps
// within the governor's budgets, in any language.
package dynamoproxy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"
	"github.com/go-json-experiment/json"

	"github.com/weirlimits/weir/governor"
)

// Config configures a proxy.
type Config struct {
	Governor *governor.Governor
	// Endpoint is DynamoDB's, in the Region.
	Endpoint *url.URL
	Region   string
	// Credentials are what requests are signed with.
	Credentials aws.CredentialsProvider
	// Client is the key that clients must sign with. Defaults to none: then any signature is accepted.
	Client aws.Credentials
	Log    *slog.Logger
	// LogRequests logs every request that is answered.
	LogRequests bool
	// Transport sends requests to DynamoDB. Defaults to one of its own.
	Transport http.RoundTripper
}

// Proxy passes requests to DynamoDB when the governor's budgets allow it. It is an [http.Handler].
type Proxy struct {
	cfg     Config
	signer  *v4.Signer
	reverse httputil.ReverseProxy

	passed, refused, failed atomic.Uint64
}

// New returns a proxy.
func New(cfg Config) (*Proxy, error) {
	if cfg.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // net/http documents its type
		t.Proxy, t.DisableCompression = http.ProxyFromEnvironment, true
		t.MaxIdleConnsPerHost, t.ResponseHeaderTimeout = maxIdle, time.Minute
		cfg.Transport = t
	}
	p := &Proxy{cfg: cfg, signer: v4.NewSigner()}
	p.reverse = httputil.ReverseProxy{
		Rewrite: p.rewrite, Transport: roundTripper(p.roundTrip), ErrorHandler: p.fail,
		ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn),
	}
	_, err := p.govern()
	return p, err
}

// govern returns what governs one request: the governor's own middleware, between serialization and exchange of the
// proxy's. As for clients of the SDK, it cannot be shared by requests, which change the stack's steps.
func (p *Proxy) govern() (middleware.Handler, error) {
	stack := middleware.NewStack("proxy", func() any { return nil })
	err := errors.Join(
		p.cfg.Governor.Middleware()(stack),
		stack.Serialize.Add(middleware.SerializeMiddlewareFunc("Report", report), middleware.After),
		stack.Finalize.Add(middleware.FinalizeMiddlewareFunc("Sign", p.finalize), middleware.After),
		stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("Exchange", p.exchange), middleware.After),
	)
	return middleware.DecorateHandler(nil, stack), err // the exchange is the last step, and calls no other
}

const (
	maxIdle = 256
	// maxRequest is above what DynamoDB accepts: 16 MB of items, of which binary values are larger in JSON.
	maxRequest = 32 << 20
	// maxAnswer is above what DynamoDB sends: 16 MB of items.
	maxAnswer = 64 << 20
	// maxReceive is how long it may take to receive a request.
	maxReceive = 30 * time.Second

	target = "DynamoDB_20120810."
)

// Counts are numbers of requests since the proxy was created.
type Counts struct {
	Passed  uint64 // answered by DynamoDB
	Refused uint64 // invalid, not authenticated, or not allowed in time by the budgets
	Failed  uint64 // not answered by DynamoDB, or given up by the client
}

// Counts returns the numbers of requests.
func (p *Proxy) Counts() Counts { return Counts{p.passed.Load(), p.refused.Load(), p.failed.Load()} }

// call is a request on its way through the proxy.
type call struct {
	op    string
	body  []byte
	input any // nil if the operation is not governed
	began time.Time

	requested, level types.ReturnConsumedCapacity // what the client wants reported, and what the governor does
	r                *http.Request                // to DynamoDB; signed before it is sent
	answer           *http.Response
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// ServeHTTP implements [http.Handler].
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && r.URL.Path == "/" { // as DynamoDB answers probes
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte("healthy: " + p.cfg.Endpoint.Host + "\n"))
		return
	}
	c, err := p.receive(w, r)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	p.reverse.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
}

// receive reads a request, and refuses it if DynamoDB would, or if the client may not use the proxy.
func (p *Proxy) receive(w http.ResponseWriter, r *http.Request) (*call, error) {
	op, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), target)
	if r.Method != http.MethodPost || r.URL.Path != "/" || !ok {
		return nil, unknownOperation()
	}
	signed, err := p.signatureOf(r)
	if err != nil {
		return nil, err
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(maxReceive)) // a recorder has none
	body, err := read(http.MaxBytesReader(w, r.Body, maxRequest), r.ContentLength)
	if err != nil {
		return nil, unread(err)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if err := p.verify(signed, r, body); err != nil {
		return nil, err
	}
	c := &call{op: op, body: body, began: time.Now()}
	o, governed := operations[op]
	if !governed {
		return c, nil
	}
	c.input = o.input()
	if err := json.Unmarshal(body, c.input, requests); err != nil {
		return nil, malformed(err)
	}
	c.requested = reported(c.input)
	return c, nil
}

// forwarded are the headers that reach DynamoDB, beside those that the signature adds. All are signed but two.
var forwarded = []string{
	"Accept-Encoding", "Amz-Sdk-Invocation-Id", "Amz-Sdk-Request", "Content-Type", "User-Agent", "X-Amzn-Trace-Id",
}

func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	c := callOf(r.In.Context())
	r.Out.Header = http.Header{"X-Amz-Target": {target + c.op}}
	for _, name := range forwarded {
		if v := r.In.Header.Get(name); v != "" {
			r.Out.Header.Set(name, v)
		}
	}
	at := *p.cfg.Endpoint
	at.Path = cmp.Or(at.Path, "/")
	r.Out.URL, r.Out.Host = &at, at.Host
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// roundTrip waits for the budgets and sends the request. An error of DynamoDB's is an answer.
func (p *Proxy) roundTrip(r *http.Request) (_ *http.Response, err error) {
	c := callOf(r.Context())
	c.r = r
	if c.input == nil {
		if err = p.sign(r.Context(), c, c.body); err == nil {
			c.answer, err = p.cfg.Transport.RoundTrip(c.r)
		}
	} else if h, bad := p.govern(); bad == nil {
		_, _, err = h.Handle(r.Context(), c.input)
	} else {
		err = bad
	}
	if c.answer == nil {
		return nil, err
	}
	p.passed.Add(1)
	if p.cfg.LogRequests {
		p.cfg.Log.Info("request", slog.String("operation", c.op), slog.Int("status", c.answer.StatusCode),
			slog.Duration("took", time.Since(c.began)))
	}
	return c.answer, nil
}

// report records the level in which the governor wants the consumption reported.
func report(
	ctx context.Context, in middleware.SerializeInput, next middleware.SerializeHandler,
) (middleware.SerializeOutput, middleware.Metadata, error) {
	callOf(ctx).level = reported(in.Parameters)
	return next.HandleSerialize(ctx, in)
}

// fail answers a request that DynamoDB did not answer.
func (p *Proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := faultOf(err)
	level := slog.LevelDebug
	switch {
	case errors.Is(err, context.Canceled):
		p.failed.Add(1) // the client has gone
	case f.status >= http.StatusInternalServerError:
		p.failed.Add(1)
		level = slog.LevelWarn
	default:
		p.refused.Add(1)
		if p.cfg.LogRequests {
			level = slog.LevelInfo
		}
	}
	p.cfg.Log.Log(r.Context(), level, "request not answered by DynamoDB",
		slog.String("target", r.Header.Get("X-Amz-Target")), slog.String("answer", f.code), slog.Any("error", err))
	f.write(w)
}
