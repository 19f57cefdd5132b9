package wire

import (
	"context"
	"net/http"
	"os"
	"reflect"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// The environment variables by which the SDK says in each request which invocation of a Lambda function it belongs to.
const (
	lambdaName  = "AWS_LAMBDA_FUNCTION_NAME"
	lambdaTrace = "_X_AMZN_TRACE_ID"
)

// New returns a stand-in for a client whose connections are made as h says. It returns nil if the client is configured to
// do anything with a call, or h anything with a connection, that this package does not do.
func New(client *dynamodb.Client, h *awshttp.BuildableClient) *Client {
	o, t := client.Options(), h.GetTransport()
	if timeout, ok := h.GetReadTimeout(); !peeks || !plainOptions(&o) || !plainTransport(t) || h.GetTimeout() != 0 || ok && timeout > 0 {
		return nil
	}
	_, lambda := os.LookupEnv(lambdaName)
	_, once := o.Retryer.(aws.NopRetryer)
	c := &Client{Client: client, options: o, transport: t, lambda: lambda, repeats: !once}
	c.update = operation[Update, dynamodb.UpdateItemOutput]{
		client: c, name: "UpdateItem", parse: parseAnswer, failed: parseFailed,
		sdk: func(ctx context.Context, u Update, opts ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
			return client.UpdateItem(ctx, u.Input(), opts...)
		},
	}
	c.get = operation[batch, dynamodb.BatchGetItemOutput]{
		client: c, name: "BatchGetItem", parse: parseItems,
		sdk: func(ctx context.Context, b batch, opts ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
			return client.BatchGetItem(ctx, b.in, opts...)
		},
	}
	return c
}

// plainOptions reports whether calls only have to be signed and sent.
func plainOptions(o *dynamodb.Options) bool {
	usual := dynamodb.New(dynamodb.Options{}).Options()
	alike := func(a, b any) bool { return reflect.TypeOf(a) == reflect.TypeOf(b) }
	return len(o.APIOptions) == 0 && noInterceptors(o) && o.Credentials != nil &&
		o.EndpointResolver == nil && //nolint:staticcheck // deprecated, but still honored by the SDK
		o.EndpointDiscovery.EnableEndpointDiscovery != aws.EndpointDiscoveryEnabled &&
		o.ClientLogMode == 0 && !o.EnableAcceptEncodingGzip && len(o.AuthSchemePreference) == 0 &&
		alike(o.EndpointResolverV2, usual.EndpointResolverV2) && alike(o.HTTPSignerV4, usual.HTTPSignerV4) &&
		alike(o.MeterProvider, usual.MeterProvider) && alike(o.TracerProvider, usual.TracerProvider) &&
		alike(o.Protocol, usual.Protocol) && alike(o.AuthSchemeResolver, usual.AuthSchemeResolver) &&
		len(o.AuthSchemes) == 1 && alike(o.AuthSchemes[0], usual.AuthSchemes[0])
}

func noInterceptors(o *dynamodb.Options) bool {
	all := reflect.ValueOf(o.Interceptors)
	for _, field := range all.Fields() {
		if field.Len() > 0 {
			return false
		}
	}
	return true
}

// plainTransport reports whether a transport makes connections as this package does.
func plainTransport(t *http.Transport) bool {
	//nolint:staticcheck // deprecated, but still honored by net/http
	old := t.Dial != nil || t.DialTLS != nil
	return !old && t.DialTLSContext == nil && !t.DisableKeepAlives && t.ResponseHeaderTimeout == 0 &&
		(t.Protocols == nil || t.Protocols.HTTP1())
}

// visible reports whether a text can be a header's value as it is, without the encoding that the SDK applies to others.
func visible(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '=', c == ';', c == ':', c == '+':
		default:
			return false
		}
	}
	return true
}
