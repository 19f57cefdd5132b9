// Package wire makes the one conditional write of a decision with less work than the SDK takes for it. It stands in for
// a client of the SDK that is as [New] knows it, for calls and answers as buckets have them; whatever else comes up, the
// SDK does: so it makes the request first of all, which must be the one that is made here from then on, and it reads each
// answer that is not plain.
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

// Client is a client of the SDK whose UpdateItem has connections of its own. It is safe for concurrent use.
type Client struct {
	*dynamodb.Client

	options   dynamodb.Options
	transport *http.Transport
	lambda    bool // the SDK tells of each request which invocation it belongs to
	date      atomic.Pointer[date]
	ahead     atomic.Int64 // by how much the server's clock is ahead of ours, in nanoseconds
	route     atomic.Pointer[route]
	learning  sync.Mutex
	sent      atomic.Int64 // requests
	judged    atomic.Int64 // answers that the SDK read
}

// UpdateItem is the SDK's, and makes one attempt if the options say so; they apply as well where the SDK makes the call.
// A request of which a byte may have been sent is never sent again.
func (c *Client) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	buf := buffers.Get().(*buffer)
	defer buffers.Put(buf)
	var plain bool
	if buf.body, plain = appendUpdate(buf.body[:0], in); !plain {
		return c.Client.UpdateItem(ctx, in, opts...)
	}
	r := c.way(ctx, in, buf.body, opts)
	if r == nil {
		return c.Client.UpdateItem(ctx, in, opts...)
	}
	var trace string
	if c.lambda {
		trace = os.Getenv(lambdaTrace)
	}
	if !visible(trace) {
		return c.Client.UpdateItem(ctx, in, opts...)
	}
	conn, err := r.pool.get(ctx)
	if errors.Is(err, errFull) {
		return c.Client.UpdateItem(ctx, in, opts...)
	}
	if err != nil {
		return nil, unanswered(ctx, r, err)
	}
	buf.head = r.appendHead(buf.head[:0], buf.body, time.Now().Add(time.Duration(c.ahead.Load())), invocation(), trace)
	buf.head = append(buf.head, buf.body...)
	c.sent.Add(1)
	a, err := conn.exchange(ctx, buf.head)
	if err != nil {
		r.pool.drop(conn)
		return nil, unanswered(ctx, r, err)
	}
	defer func() { r.pool.put(conn, !a.last) }() // not before the answer is read, which is the connection's
	if out, known, err := c.read(ctx, r, a); known {
		return out, err
	}
	return c.judge(ctx, in, opts, r, a)
}

// Made returns how many requests were sent without the SDK, and how many of their answers the SDK has read.
func (c *Client) Made() (sent, judged int64) { return c.sent.Load(), c.judged.Load() }

// CloseIdle closes the connections that no call uses; those of the SDK are its own.
func (c *Client) CloseIdle() {
	if r := c.route.Load(); r != nil && r.pool != nil {
		r.pool.close()
	}
}

// read reads an answer, if it is one that it knows.
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

// note learns from an answer how far the clocks are apart, as the SDK would, and has its metadata tell the server's time.
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

// date is a header that was read.
type date struct {
	text string
	at   time.Time
}

type dateKey struct{}

// ServerTime returns when an answer was made, by the server's clock, of which it tells whole seconds.
func ServerTime(meta middleware.Metadata) (time.Time, bool) {
	if at, ok := meta.Get(dateKey{}).(time.Time); ok {
		return at, true
	}
	return awsmiddleware.GetServerTime(meta)
}

// judge has the SDK read an answer.
func (c *Client) judge(ctx context.Context, in *dynamodb.UpdateItemInput, opts []func(*dynamodb.Options), r *route, a *answer) (*dynamodb.UpdateItemOutput, error) {
	c.judged.Add(1)
	c.note(a, nil)
	resp, err := a.response() //nolint:bodyclose // it is in memory
	if err != nil {
		return nil, unanswered(ctx, r, err)
	}
	as := &answered{resp: resp}
	// Nothing may keep it from reading: an error before would say that nothing was sent.
	out, err := c.Client.UpdateItem(context.WithoutCancel(ctx), in, append(slices.Clip(opts), func(o *dynamodb.Options) {
		o.HTTPClient, o.Credentials = as, r
	})...)
	if as.read {
		return out, err
	}
	return nil, failure(resp, &smithy.DeserializationError{Err: errUnread})
}

var errUnread = errors.New("an answer that the SDK does not read")

// answered is an HTTP client that has its answer already.
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

// unanswered is the error of a call to which nothing was answered.
func unanswered(ctx context.Context, r *route, err error) error {
	var cause error = &smithyhttp.RequestSendError{Err: &url.Error{Op: "Post", URL: r.url, Err: err}}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		cause = &smithy.CanceledError{Err: ctx.Err()}
	}
	return failure(&http.Response{Header: http.Header{}, Body: http.NoBody}, cause)
}

// buffer is what a request is made in.
type buffer struct{ head, body []byte }

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// Retrieve gives the SDK the credentials that a request was signed with.
func (r *route) Retrieve(context.Context) (aws.Credentials, error) { return r.creds, nil }
