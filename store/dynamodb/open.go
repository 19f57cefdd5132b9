package dynamodb

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir/store/dynamodb/internal/wire"
)

// Open returns a store over a table, after it has seen that the table is one that this weir knows. That one read also
// tells how far the machine's clock is off.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if err := s.checkVersion(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Tune sets a client's options as the store has use for them: no retries of the SDK's own, which wait for seconds and
// repeat what must not be repeated; as many connections kept as there are calls at once; and no answer that breaks off
// because the SDK closes its request too early. A client with an HTTP client of its own keeps that. The store switches
// retries off with each of its writes in any case.
func Tune(o *dynamodb.Options) {
	o.Retryer = aws.NopRetryer{}
	client, ok := o.HTTPClient.(*awshttp.BuildableClient)
	switch {
	case o.HTTPClient == nil:
		client = awshttp.NewBuildableClient()
	case !ok:
		return
	}
	o.HTTPClient = plain{client.WithTransportOptions(func(t *http.Transport) { t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 1024 })}
}

// plain sends bodies as plain readers. The SDK closes its own once the head of an answer is there, which net/http at
// times takes for a failure to write, and breaks the connection in the midst of a long answer: a write whose outcome is
// then unknown.
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

// standIn returns what makes the writes of decisions in place of a client, or nil.
func standIn(client API) *wire.Client {
	c, ok := client.(*dynamodb.Client)
	if !ok {
		return nil
	}
	h := c.Options().HTTPClient
	if p, ok := h.(plain); ok {
		h = p.HTTPClient
	}
	if b, ok := h.(*awshttp.BuildableClient); ok {
		return wire.New(c, b)
	}
	return nil
}

// once has the SDK make a call once. The lanes repeat what may be repeated.
var once = []func(*dynamodb.Options){func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }}
