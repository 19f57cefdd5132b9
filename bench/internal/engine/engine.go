// Package engine opens tables and limiters on the local DynamoDB engine that all contenders share.
package engine

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store/dynamodb"
)

func credentials(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "bench", SecretAccessKey: "bench"}, nil
}

// Connect returns a client. Pass dynamodb.Tune for weir's store.
func Connect(options ...func(*sdk.Options)) (*sdk.Client, error) {
	url, err := dynamotest.Endpoint()
	if err != nil {
		return nil, err
	}
	return sdk.New(sdk.Options{
		BaseEndpoint: &url, Region: "us-east-1",
		Credentials: aws.NewCredentialsCache(aws.CredentialsProviderFunc(credentials)),
	}, options...), nil
}

// Counted counts a client's requests. Apply it after the other options.
func Counted(n *atomic.Int64) func(*sdk.Options) {
	return func(o *sdk.Options) { o.HTTPClient = counted{o.HTTPClient, n} }
}

type counted struct {
	sdk.HTTPClient
	n *atomic.Int64
}

// Do implements [sdk.HTTPClient].
func (c counted) Do(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.HTTPClient.Do(r)
}

// Create creates a table as weir does, and returns its name.
func Create(e *harness.Env, cfg dynamodb.CreateConfig) (string, error) {
	c, err := Connect(dynamodb.Tune)
	if err != nil {
		return "", err
	}
	name := "bench-" + rand.Text()
	_, err = dynamodb.Create(e.Ctx, c, name, cfg)
	return name, err
}

// Open returns a limiter as if it were in its own process.
func Open(e *harness.Env, table dynamodb.Config, cfg weir.Config) (*weir.Limiter, error) {
	st, err := dynamodb.Open(e.Ctx, table)
	if err != nil {
		return nil, err
	}
	cfg.Store = st
	lim, err := weir.New(cfg)
	if err == nil {
		e.Defer(lim.Close)
	}
	return lim, err
}
