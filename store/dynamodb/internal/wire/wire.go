// Package wire makes the one conditional write of a decision, and reads items, with less work than the SDK. It stands in
// for a client of the SDK that [New] accepts, for the calls and answers that the store uses. The SDK does everything else.
// It makes the first request of each kind, which must equal the one that this package makes from then on, and it reads
// every answer that is not plain.
package wire

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Client is a client of the SDK whose UpdateItem and BatchGetItem have their own connections. It is safe for concurrent use.
type Client struct {
	*dynamodb.Client

	options   dynamodb.Options
	transport *http.Transport
	lambda    bool // the SDK says in each request which invocation it belongs to
	repeats   bool // the SDK may attempt a call more than once
	date      atomic.Pointer[date]
	ahead     atomic.Int64 // how far the server's clock is ahead of ours, in nanoseconds
	update    operation[Update, dynamodb.UpdateItemOutput]
	get       operation[batch, dynamodb.BatchGetItemOutput]
	pooling   sync.Mutex
	pool      *pool        // of all operations; nil: none yet
	sent      atomic.Int64 // number of requests
	judged    atomic.Int64 // number of answers that the SDK read
}

// Update is an UpdateItem, in the SDK's form and in the form in which it is sent.
type Update interface {
	// Input returns the SDK's form.
	Input() *dynamodb.UpdateItemInput
	body
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
	return c.update.call(ctx, input{in}, opts)
}

// batch is a BatchGetItem in the SDK's form.
type batch struct{ in *dynamodb.BatchGetItemInput }

// AppendBody implements body.
func (b batch) AppendBody(to []byte) (body []byte, ok bool) { return appendBatch(to, b.in) }

// BatchGetItem is the SDK's BatchGetItem. The SDK makes the call if its retryer may attempt it more than once.
func (c *Client) BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	if c.repeats || len(opts) > 0 {
		return c.Client.BatchGetItem(ctx, in, opts...)
	}
	return c.get.call(ctx, batch{in}, nil)
}

// request returns the bytes to send.
func (c *Client) request(r *route, buf *buffer, trace string) []byte {
	c.sent.Add(1)
	buf.head = r.appendHead(buf.head[:0], buf.body, time.Now().Add(time.Duration(c.ahead.Load())), invocation(), trace)
	buf.head = append(buf.head, buf.body...)
	return buf.head
}

// Made returns how many requests were sent without the SDK, and how many of their answers the SDK has read.
func (c *Client) Made() (sent, judged int64) { return c.sent.Load(), c.judged.Load() }

// CloseIdle closes the connections that no call uses, except those of the SDK.
func (c *Client) CloseIdle() {
	c.pooling.Lock()
	defer c.pooling.Unlock()
	if c.pool != nil {
		c.pool.close()
	}
}

// start adopts what the SDK knows of the server's clock from calls of its own, until an answer here tells.
func (c *Client) start(req *http.Request) {
	if at, err := time.Parse(amzTime, req.Header.Get("X-Amz-Date")); err == nil && c.date.Load() == nil {
		c.ahead.Store(int64(time.Until(at)))
	}
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

// buffer holds a request while it is made.
type buffer struct{ head, body []byte }

var buffers = sync.Pool{New: func() any { return new(buffer) }}
