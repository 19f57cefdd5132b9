package wire

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// Call is an UpdateItem that has been sent. One goroutine at a time may use it.
type Call struct {
	c    *Client
	u    Update
	opts []func(*dynamodb.Options)
	r    *route
	conn *conn
	err  error // the error of sending it
}

// Begin sends an UpdateItem that must be answered by a deadline, if that takes no waiting: neither for credentials, nor
// for a connection, nor for buffer space. Otherwise it sends nothing, and returns nil.
func (c *Client) Begin(u Update, deadline time.Time, opts ...func(*dynamodb.Options)) *Call {
	if _, cached := c.options.Credentials.(*aws.CredentialsCache); !cached { // any other provider may block
		return nil
	}
	buf := buffers.Get().(*buffer)
	defer buffers.Put(buf)
	r, trace := c.update.prepare(ended, buf, u, opts)
	if r == nil || len(buf.body) > maxBegun {
		return nil
	}
	conn := r.pool.ready(deadline)
	if conn == nil {
		return nil
	}
	call := &Call{c: c, u: u, opts: opts, r: r, conn: conn}
	if err := conn.send(c.request(r, buf, trace)); err != nil {
		call.err = cause(context.Background(), err)
	}
	return call
}

// maxBegun is the size of the longest body that is sent without waiting. On a connection that has nothing under way, the
// system accepts at least 16 KiB.
const maxBegun = 8 << 10

// ended is a context for what must be available at once or not at all.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Wait waits until [Call.Answer] does not have to, and reports whether that is so. It is not if ctx ends earlier, or if
// the answer arrives in pieces.
func (c *Call) Wait(ctx context.Context) bool { return c.err != nil || c.conn.await(ctx) }

// Answer waits for the answer, up to the deadline. It is called once.
func (c *Call) Answer() (*dynamodb.UpdateItemOutput, error) {
	ctx := context.Background()
	var a *answer
	if c.err == nil {
		a, c.err = c.conn.receive(ctx)
	}
	return c.c.update.outcome(ctx, c.u, c.opts, c.r, c.conn, a, c.err)
}
