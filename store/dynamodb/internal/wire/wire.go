// Package wire makes the one conditional write of a decision with less work than the SDK. It stands in for a client of
// the SDK that [New] accepts, for the calls and answers that buckets use. The SDK does everything else. It makes the
// first request, which must equal the one that this package makes from then on, and it reads every answer that is not
// plain.
package wire

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Client is a client of the SDK whose UpdateItem has its own connections. It is safe for concurrent use.
type Client struct {
	*dynamodb.Client

	options   dynamodb.Options
	transport *http.Transport
	lambda    bool // the SDK says in each request which invocation it belongs to
	date      atomic.Pointer[date]
	ahead     atomic.Int64 // how far the server's clock is ahead of ours, in nanoseconds
	route     atomic.Pointer[route]
	learning  sync.Mutex
	sent      atomic.Int64 // number of requests
	judged    atomic.Int64 // number of answers that the SDK read
}

// Update is an UpdateItem, in the SDK's form and in the form in which it is sent.
type Update interface {
	// Input returns the SDK's form.
	Input() *dynamodb.UpdateItemInput
	// AppendBody appends the body that the SDK would make of Input, except for the order of its members, and reports
	// whether it can.
	AppendBody(b []byte) ([]byte, bool)
}

// input is an Update that exists only in the SDK's form.
type input struct{ in *dynamodb.UpdateItemInput }

// Input implements [Update].
func (i input) Input() *dynamodb.UpdateItemInput { return i.in }

// AppendBody implements [Update].
func (i input) AppendBody(b []byte) (body []byte, ok bool) { return appendUpdate(b, i.in) }

// UpdateItem is the SDK's UpdateItem, and makes one attempt if the options say so. The options also apply if the SDK
// makes the call. A request is never sent again once a byte of it may have been sent.
func (c *Client) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	buf := buffers.Get().(*buffer)
	defer buffers.Put(buf)
	u := input{in}
	r, trace := c.prepare(ctx, buf, u, opts)
	if r == nil {
		return c.Client.UpdateItem(ctx, in, opts...)
	}
	conn, err := r.pool.get(ctx)
	if errors.Is(err, errFull) {
		return c.Client.UpdateItem(ctx, in, opts...)
	}
	if err != nil {
		return nil, unanswered(ctx, r, err)
	}
	a, err := conn.exchange(ctx, c.request(r, buf, trace))
	return c.outcome(ctx, u, opts, r, conn, a, err)
}

// prepare makes a request's body, and returns the route to send it on and the trace header that the SDK would add on
// Lambda. If r is nil, the SDK must make the call.
func (c *Client) prepare(ctx context.Context, buf *buffer, u Update, opts []func(*dynamodb.Options)) (r *route, trace string) {
	var plain bool
	if buf.body, plain = u.AppendBody(buf.body[:0]); !plain {
		return nil, ""
	}
	if c.lambda {
		if trace = os.Getenv(lambdaTrace); !visible(trace) {
			return nil, ""
		}
	}
	return c.way(ctx, u, buf.body, opts), trace
}

// request returns the bytes to send.
func (c *Client) request(r *route, buf *buffer, trace string) []byte {
	c.sent.Add(1)
	buf.head = r.appendHead(buf.head[:0], buf.body, time.Now().Add(time.Duration(c.ahead.Load())), invocation(), trace)
	buf.head = append(buf.head, buf.body...)
	return buf.head
}

// outcome returns the result of an exchange, and gives the connection back to its pool.
func (c *Client) outcome(
	ctx context.Context, u Update, opts []func(*dynamodb.Options), r *route, conn *conn, a *answer, err error,
) (*dynamodb.UpdateItemOutput, error) {
	if err != nil {
		r.pool.drop(conn)
		return nil, unanswered(ctx, r, err)
	}
	defer func() { r.pool.put(conn, !a.last) }() // only after the answer, which belongs to the connection, has been read
	if out, known, err := c.read(ctx, r, a); known {
		return out, err
	}
	return c.judge(ctx, u, opts, r, a)
}

// Made returns how many requests were sent without the SDK, and how many of their answers the SDK has read.
func (c *Client) Made() (sent, judged int64) { return c.sent.Load(), c.judged.Load() }

// CloseIdle closes the connections that no call uses, except those of the SDK.
func (c *Client) CloseIdle() {
	if r := c.route.Load(); r != nil && r.pool != nil {
		r.pool.close()
	}
}

// read reads an answer if it is of a known kind.
func (c *Client) read(ctx context.Context, r *route, a *answer) (*dynamodb.UpdateItemOutput, bool, error) {
	whole := a.err == nil && (c.options.DisableValidateResponseChecksum || a.intact())
	if a.resp != nil || !whole {
		return nil, false, nil
	}
	if a.status == http.StatusOK {
		attrs, ok := parseAnswer(a.body)
		if !ok {
			return nil, false, nil
		}
		out := &dynamodb.UpdateItemOutput{Attributes: attrs}
		c.note(a, &out.ResultMetadata)
		return out, true, nil
	}
	failed, ok := parseFailed(a.body)
	if !ok {
		return nil, false, nil
	}
	resp, err := a.response() //nolint:bodyclose // it is in memory
	if err != nil {
		return nil, true, unanswered(ctx, r, err)
	}
	c.note(a, nil)
	return nil, true, failure(resp, failed)
}

// note learns from an answer how far the clocks are apart, as the SDK would, and adds the server's time to the answer's
// metadata.
func (c *Client) note(a *answer, meta *middleware.Metadata) {
	if a.date == "" {
		return
	}
	last := c.date.Load()
	if last == nil || last.text != a.date {
		at, err := smithyhttp.ParseTime(a.date)
		if err != nil {
			return
		}
		last = &date{a.date, at}
		c.date.Store(last)
	}
	if !c.options.DisableClockSkewCorrection && (a.resp == nil || a.resp.Header.Get("Age") == "") {
		c.ahead.Store(int64(time.Until(last.at)))
	}
	if meta != nil {
		meta.Set(dateKey{}, last.at)
	}
}

// date is a Date header, with its text and meaning.
type date struct {
	text string
	at   time.Time
}

type dateKey struct{}

// ServerTime returns the time at which an answer was made, by the server's clock, in whole seconds.
func ServerTime(meta middleware.Metadata) (time.Time, bool) {
	if at, ok := meta.Get(dateKey{}).(time.Time); ok {
		return at, true
	}
	return awsmiddleware.GetServerTime(meta)
}

// judge makes the SDK read an answer.
func (c *Client) judge(ctx context.Context, u Update, opts []func(*dynamodb.Options), r *route, a *answer) (*dynamodb.UpdateItemOutput, error) {
	c.judged.Add(1)
	c.note(a, nil)
	resp, err := a.response() //nolint:bodyclose // it is in memory
	if err != nil {
		return nil, unanswered(ctx, r, err)
	}
	as := &answered{resp: resp}
	// Nothing may keep the SDK from reading the answer: an earlier error would say that nothing was sent.
	out, err := c.Client.UpdateItem(context.WithoutCancel(ctx), u.Input(), append(slices.Clip(opts), func(o *dynamodb.Options) {
		o.HTTPClient, o.Credentials = as, r
	})...)
	if as.read {
		return out, err
	}
	return nil, failure(resp, &smithy.DeserializationError{Err: errUnread})
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
func failure(resp *http.Response, err error) error {
	id := resp.Header.Get("X-Amzn-Requestid")
	if id == "" {
		id = resp.Header.Get("X-Amz-Requestid")
	}
	return &smithy.OperationError{ServiceID: dynamodb.ServiceID, OperationName: "UpdateItem", Err: &awshttp.ResponseError{
		ResponseError: &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: resp}, Err: err}, RequestID: id,
	}}
}

// unanswered is the error of a call that got no answer.
func unanswered(ctx context.Context, r *route, err error) error {
	var cause error = &smithyhttp.RequestSendError{Err: &url.Error{Op: "Post", URL: r.url, Err: err}}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		cause = &smithy.CanceledError{Err: ctx.Err()}
	}
	return failure(&http.Response{Header: http.Header{}, Body: http.NoBody}, cause)
}

// buffer holds a request while it is made.
type buffer struct{ head, body []byte }

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// Retrieve returns the credentials that a request was signed with, for the SDK.
func (r *route) Retrieve(context.Context) (aws.Credentials, error) { return r.creds, nil }
