package wire

import (
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// Body returns the body of an UpdateItem, and whether it can be made here.
func Body(in *dynamodb.UpdateItemInput) ([]byte, bool) { return appendUpdate(nil, in) }

// Batch returns the body of a BatchGetItem, and whether it can be made here.
func Batch(in *dynamodb.BatchGetItemInput) ([]byte, bool) { return appendBatch(nil, in) }

// Head returns the head of a request.
func Head(creds aws.Credentials, region, host, target string, body []byte, at time.Time, id string) string {
	r := &route{creds: creds, host: host, agent: "agent", attempt: "attempt=1; max=1", region: region, service: "dynamodb", target: target}
	return string(r.appendHead(nil, body, at, id, ""))
}

// Idle returns the number of idle connections, and of all connections.
func (c *Client) Idle() (idle, open int) {
	if c.pool == nil {
		return 0, 0
	}
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	return len(c.pool.idle), c.pool.open
}

// Move makes another endpoint the current one.
func (c *Client) Move(endpoint string) {
	u, err := url.Parse(endpoint)
	if err != nil {
		panic(err)
	}
	c.poolOf(u)
}

// MaxAnswer bounds the size of an answer.
const MaxAnswer = maxAnswer

// Invocation returns an ID for a request.
func Invocation() string { return invocation() }

// HeadAs returns the head of a request that has some of the headers of another.
func HeadAs(creds aws.Credentials, region, host string, h http.Header, body []byte, at time.Time) string {
	r := &route{creds: creds, host: host, agent: h.Get("User-Agent"), attempt: h.Get("Amz-Sdk-Request"), region: region, service: "dynamodb", target: "UpdateItem"}
	return string(r.appendHead(nil, body, at, h.Get("Amz-Sdk-Invocation-Id"), ""))
}

// Alive reports whether the connection that was used last is still usable.
func (c *Client) Alive() bool {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.idle[len(p.idle)-1]
	_ = k.SetDeadline(time.Time{})
	return k.alive()
}

// Sent returns the number of requests that were sent by this package.
func (c *Client) Sent() int64 { return c.sent.Load() }

// Judged returns the number of answers that the SDK has read.
func (c *Client) Judged() int64 { return c.judged.Load() }

// BeginInput is [Client.Begin] for an input of the SDK's.
func (c *Client) BeginInput(in *dynamodb.UpdateItemInput, deadline time.Time, opts ...func(*dynamodb.Options)) *Call {
	return c.Begin(input{in}, deadline, opts...)
}
