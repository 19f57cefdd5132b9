package wire

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// body is a request as far as its body tells it.
type body interface {
	// AppendBody appends the body that the SDK would make, except for the order of its members, and reports whether it can.
	AppendBody(b []byte) ([]byte, bool)
}

// operation is one of the operations that a [Client] makes itself, with requests of the type R and outputs of the type O.
type operation[R body, O any] struct {
	client *Client
	name   string
	sdk    func(context.Context, R, ...func(*dynamodb.Options)) (*O, error)
	parse  func(body []byte) (out *O, meta *middleware.Metadata, ok bool) // reads a good answer
	failed func(body []byte) (err error, ok bool)                         // reads a refusal; nil: the SDK does

	route    atomic.Pointer[route]
	learning sync.Mutex
}

// call makes a request, and one attempt. A request is never sent again once a byte of it may have been sent.
func (o *operation[R, O]) call(ctx context.Context, req R, opts []func(*dynamodb.Options)) (*O, error) {
	buf := buffers.Get().(*buffer)
	defer buffers.Put(buf)
	r, trace := o.prepare(ctx, buf, req, opts)
	if r == nil {
		return o.sdk(ctx, req, opts...)
	}
	conn, err := r.pool.get(ctx)
	if errors.Is(err, errFull) {
		return o.sdk(ctx, req, opts...)
	}
	if err != nil {
		return nil, o.unanswered(ctx, r, err)
	}
	a, err := conn.exchange(ctx, o.client.request(r, buf, trace))
	return o.outcome(ctx, req, opts, r, conn, a, err)
}

// prepare makes a request's body, and returns the route to send it on and the trace header that the SDK would add on
// Lambda. If r is nil, the SDK must make the call.
func (o *operation[R, O]) prepare(ctx context.Context, buf *buffer, req R, opts []func(*dynamodb.Options)) (r *route, trace string) {
	var plain bool
	if buf.body, plain = req.AppendBody(buf.body[:0]); !plain {
		return nil, ""
	}
	if o.client.lambda {
		if trace = os.Getenv(lambdaTrace); !visible(trace) {
			return nil, ""
		}
	}
	return o.way(ctx, req, buf.body, opts), trace
}

// way returns the route on which to send a request, or nil if the SDK must make the call.
func (o *operation[R, O]) way(ctx context.Context, req R, body []byte, opts []func(*dynamodb.Options)) *route {
	creds, err := o.client.options.Credentials.Retrieve(ctx)
	if err != nil {
		return nil
	}
	r := o.route.Load()
	if r == nil || !r.by(&creds) {
		if !o.learning.TryLock() {
			return nil
		}
		defer o.learning.Unlock()
		if r = o.learn(ctx, creds, req, body, opts); r == nil {
			return nil
		}
		o.route.Store(r)
	}
	if r.pool == nil {
		return nil
	}
	return r
}

// errLearned ends a call of the SDK once its request has been seen.
var errLearned = errors.New("not to be sent")

// learn makes the SDK build a request, which is not sent, and checks whether it is the one that this package would build.
// It returns nil if the SDK built none.
func (o *operation[R, O]) learn(ctx context.Context, creds aws.Credentials, req R, body []byte, opts []func(*dynamodb.Options)) *route {
	var seen seen
	_, _ = o.sdk(undated{ctx}, req, append(slices.Clip(opts), func(o *dynamodb.Options) { o.HTTPClient = &seen })...)
	if seen.req == nil {
		return nil
	}
	r := &route{creds: creds, target: o.name}
	if !r.read(seen.req) || !r.same(&seen, body) {
		return r
	}
	o.client.start(seen.req)
	if proxy := o.client.transport.Proxy; proxy != nil {
		if through, err := proxy(seen.req); through != nil || err != nil {
			return r
		}
	}
	r.pool = o.client.poolOf(seen.req.URL)
	return r
}

// undated is a context without its deadline, which the SDK may put into a request.
type undated struct{ context.Context } //nolint:containedctx // it is one

// Deadline implements [context.Context].
func (undated) Deadline() (at time.Time, ok bool) { return at, false }

// seen is an HTTP client that sends nothing.
type seen struct {
	req  *http.Request
	body []byte
}

// Do records a request.
func (s *seen) Do(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	s.req, s.body = req, body
	return nil, errLearned
}

// outcome returns the result of an exchange, and gives the connection back to its pool.
func (o *operation[R, O]) outcome(ctx context.Context, req R, opts []func(*dynamodb.Options), r *route, conn *conn, a *answer, err error) (*O, error) {
	if err != nil {
		r.pool.drop(conn)
		return nil, o.unanswered(ctx, r, err)
	}
	defer func() { r.pool.put(conn, !a.last) }() // only after the answer, which belongs to the connection, has been read
	if out, known, err := o.read(ctx, r, a); known {
		return out, err
	}
	return o.judge(ctx, req, opts, r, a)
}

// read reads an answer if it is of a known kind.
func (o *operation[R, O]) read(ctx context.Context, r *route, a *answer) (*O, bool, error) {
	whole := a.err == nil && (o.client.options.DisableValidateResponseChecksum || a.intact())
	if a.resp != nil || !whole {
		return nil, false, nil
	}
	if a.status == http.StatusOK {
		out, meta, ok := o.parse(a.body)
		if !ok {
			return nil, false, nil
		}
		o.client.note(a, meta)
		return out, true, nil
	}
	if o.failed == nil {
		return nil, false, nil
	}
	failed, ok := o.failed(a.body)
	if !ok {
		return nil, false, nil
	}
	resp, err := a.response() //nolint:bodyclose // it is in memory
	if err != nil {
		return nil, true, o.unanswered(ctx, r, err)
	}
	o.client.note(a, nil)
	return nil, true, o.failure(resp, failed)
}

// judge makes the SDK read an answer.
func (o *operation[R, O]) judge(ctx context.Context, req R, opts []func(*dynamodb.Options), r *route, a *answer) (*O, error) {
	o.client.judged.Add(1)
	o.client.note(a, nil)
	resp, err := a.response() //nolint:bodyclose // it is in memory
	if err != nil {
		return nil, o.unanswered(ctx, r, err)
	}
	as := &answered{resp: resp}
	// Nothing may keep the SDK from reading the answer: an earlier error would say that nothing was sent.
	out, err := o.sdk(context.WithoutCancel(ctx), req, append(slices.Clip(opts), func(o *dynamodb.Options) {
		o.HTTPClient, o.Credentials = as, r
	})...)
	if as.read {
		return out, err
	}
	return nil, o.failure(resp, &smithy.DeserializationError{Err: errUnread})
}

var errUnread = errors.New("an answer that the SDK does not read")

// answered is an HTTP client that already has its answer.
type answered struct {
	resp *http.Response
	read bool
}

// Do answers a request.
func (a *answered) Do(req *http.Request) (*http.Response, error) {
	a.read, a.resp.Request = true, req
	return a.resp, nil
}

// failure wraps an error as the SDK does.
func (o *operation[R, O]) failure(resp *http.Response, err error) error {
	id := resp.Header.Get("X-Amzn-Requestid")
	if id == "" {
		id = resp.Header.Get("X-Amz-Requestid")
	}
	return &smithy.OperationError{ServiceID: dynamodb.ServiceID, OperationName: o.name, Err: &awshttp.ResponseError{
		ResponseError: &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: resp}, Err: err}, RequestID: id,
	}}
}

// unanswered is the error of a call that got no answer.
func (o *operation[R, O]) unanswered(ctx context.Context, r *route, err error) error {
	var cause error = &smithyhttp.RequestSendError{Err: &url.Error{Op: "Post", URL: r.url, Err: err}}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		cause = &smithy.CanceledError{Err: ctx.Err()}
	}
	return o.failure(&http.Response{Header: http.Header{}, Body: http.NoBody}, cause)
}

// Retrieve returns the credentials that a request was signed with, for the SDK.
func (r *route) Retrieve(context.Context) (aws.Credentials, error) { return r.creds, nil }
