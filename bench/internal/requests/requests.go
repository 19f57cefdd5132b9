// Package requests counts what a client of DynamoDB sends, on the connections themselves: an HTTP client that counts
// would have weir leave its writes to the SDK, which users do not have it do.
package requests

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"sync/atomic"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// Count has a client's requests counted. It comes before whatever else changes the HTTP client.
func Count(n *atomic.Int64) func(*dynamodb.Options) {
	return func(o *dynamodb.Options) {
		o.HTTPClient = awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			dial := t.DialContext
			t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := dial(ctx, network, addr)
				if tcp, ok := c.(*net.TCPConn); ok {
					c = conn{tcp, n}
				}
				return c, err
			}
		})
	}
}

// conn counts the writes that begin a request: each has one, be it of net/http or of weir's.
type conn struct {
	*net.TCPConn

	n *atomic.Int64
}

func (c conn) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, []byte("POST ")) {
		c.n.Add(1)
	}
	return c.TCPConn.Write(b)
}
