// Package requests counts the requests of a DynamoDB client on the connections themselves. A counting HTTP client
// would make weir fall back to the SDK for its writes, which is not how users run it.
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

// Count counts a client's requests in n. Apply it before any other option that changes the HTTP client.
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

// conn counts the writes that begin a request. Each request has exactly one, whether net/http or weir sends it.
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
