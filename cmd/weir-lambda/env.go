package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir/store/dynamodb"
)

// env is the function's environment.
type env struct {
	get func(string) string
	// anywhere lets responses go to any address that an event names, for tests.
	anywhere bool
}

// modes maps the values of WEIR_LAMBDA to their handlers.
var modes = map[string]func(env, context.Context, *slog.Logger) (any, error){
	"aggregate": env.aggregate,
	"config":    env.config,
	"provision": env.provision,
}

// handlerOf returns the handler of the function's invocations.
func handlerOf(ctx context.Context, e env, log *slog.Logger) (any, error) {
	mode, ok := modes[e.get("WEIR_LAMBDA")]
	if !ok {
		return nil, fmt.Errorf(
			"WEIR_LAMBDA=%q: it must be one of %s", e.get("WEIR_LAMBDA"),
			strings.Join(slices.Sorted(maps.Keys(modes)), ", "),
		)
	}
	if e.get("WEIR_TABLE") == "" {
		return nil, errors.New("WEIR_TABLE is not set: it names the table")
	}
	return mode(e, ctx, log)
}

// aws returns the AWS configuration that Lambda gives a function: its region and its role's credentials, which are
// fixed for the life of the process. The SDK's own loader supports every other source too, and adds a megabyte.
func (e env) aws(service string) aws.Config {
	cfg := aws.Config{
		Region: cmp.Or(e.get("AWS_REGION"), e.get("AWS_DEFAULT_REGION")),
		Credentials: credentials.NewStaticCredentialsProvider(
			e.get("AWS_ACCESS_KEY_ID"), e.get("AWS_SECRET_ACCESS_KEY"), e.get("AWS_SESSION_TOKEN")),
	}
	if endpoint := cmp.Or(e.get("AWS_ENDPOINT_URL_"+service), e.get("AWS_ENDPOINT_URL")); endpoint != "" {
		cfg.BaseEndpoint = &endpoint
	}
	return cfg
}

// open opens the table.
func (e env) open(ctx context.Context) (*dynamodb.Store, error) {
	return dynamodb.Open(ctx, dynamodb.Config{
		Client: awsdynamodb.NewFromConfig(e.aws("DYNAMODB"), dynamodb.Tune), Table: e.get("WEIR_TABLE"),
	})
}
