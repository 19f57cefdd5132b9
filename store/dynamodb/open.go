package dynamodb

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir/store/dynamodb/internal/schema"
)

// Open returns a store on a table, after checking that this version of weir knows the table's layout. That one read
// also measures how far the machine's clock is off.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if err := schema.CheckVersion(ctx, s.calls); err != nil {
		return nil, err
	}
	return s, nil
}

// Tune sets a client's options as the store needs them: no retries by the SDK, which wait for seconds and repeat writes
// that must not be repeated; as many connections kept as there are concurrent calls; and no response that breaks off
// because the SDK closes its request too early. A client with its own HTTP client keeps that. The store turns retries
// off for each of its writes in any case.
func Tune(o *dynamodb.Options) {
	o.Retryer = aws.NopRetryer{}
	client, ok := o.HTTPClient.(*awshttp.BuildableClient)
	switch {
	case o.HTTPClient == nil:
		client = awshttp.NewBuildableClient()
	case !ok:
		return
	}
	o.HTTPClient = plain{client.WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 1024
	})}
}

// plain sends bodies as plain readers. The SDK closes its own body once the response headers have arrived. net/http
// sometimes takes that for a failed write and breaks the connection in the middle of a long response, which leaves a
// write with an unknown outcome.
type plain struct{ aws.HTTPClient }

// Do sends a request.
func (p plain) Do(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		copied := *req
		copied.Body = io.NopCloser(bytes.NewReader(body))
		req = &copied
	}
	return p.HTTPClient.Do(req)
}
