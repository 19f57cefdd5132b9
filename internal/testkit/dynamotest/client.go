package dynamotest

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"

	"github.com/weirlimits/weir/internal/testkit/dynamotest/sizes"
)

// Client returns an SDK client for an endpoint, with dummy credentials, without retries, and with one connection per
// concurrent call. It refuses requests that exceed DynamoDB's bounds. The connections are closed when the test ends.
func Client(t testing.TB, endpoint string, optFns ...func(*dynamodb.Options)) *dynamodb.Client {
	t.Helper()
	client, closeIdle := dial(endpoint, optFns...)
	t.Cleanup(closeIdle)
	return client
}

// Dial is [Client] for a process without tests. Its connections close with the process.
func Dial(endpoint string, optFns ...func(*dynamodb.Options)) *dynamodb.Client {
	client, _ := dial(endpoint, optFns...)
	return client
}

func dial(endpoint string, optFns ...func(*dynamodb.Options)) (client *dynamodb.Client, closeIdle func()) {
	transport := &http.Transport{
		MaxIdleConnsPerHost: 4096,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
	}
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: &endpoint,
		Region:       "us-east-1",
		Credentials: aws.NewCredentialsCache(aws.CredentialsProviderFunc(func(context.Context) (
			aws.Credentials, error,
		) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		})),
		HTTPClient: plain{http.Client{Transport: transport}},
		Retryer:    aws.NopRetryer{},
		// DynamoDB Local sends wrong checksums with errors.
		DisableValidateResponseChecksum: true,
	}, append([]func(*dynamodb.Options){bounded}, optFns...)...), transport.CloseIdleConnections
}

// plain sends bodies as plain readers. The SDK closes its own once the response header arrives, which net/http at times
// takes for a failed write; it then breaks the connection in the middle of a long response: once in 40,000 of 5 KB.
type plain struct{ client http.Client }

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
	return p.client.Do(req)
}

// Table returns the name of a table that no other test uses.
func Table(testing.TB) string { return "weir-" + rand.Text() }

// bounded makes a client refuse requests that exceed DynamoDB's bounds, which engines do not all enforce.
func bounded(o *dynamodb.Options) {
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("bounds", func(
			ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
		) (out middleware.InitializeOutput, _ middleware.Metadata, err error) {
			if err := sizes.CheckRequest(in.Parameters); err != nil {
				return out, middleware.Metadata{}, answered("", err)
			}
			return next.HandleInitialize(ctx, in)
		}), middleware.After)
	})
}
