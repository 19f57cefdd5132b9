package table

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/testkit/porttest"
	"github.com/weirlimits/weir/store"
)

// answer is a server's answer to any request.
func answer(status int, kind, rest string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"__type":%q%s}`, kind, rest)
	}
}

const (
	namespace = "com.amazonaws.dynamodb.v20120810#"
	coral     = "com.amazon.coral.service#"
)

func message(text string) string { return fmt.Sprintf(`,"message":%q`, text) }

func throttled(reason, resource string) string {
	reasons := fmt.Sprintf(`[{"reason":%q,"resource":%q}]`, reason, resource)
	// either, by the type
	return message("slow down") + `,"throttlingReasons":` + reasons + `,"ThrottlingReasons":` + reasons
}

// TestErrors checks how the SDK's errors for whatever can happen to a call are judged, over a real connection where
// possible.
func TestErrors(t *testing.T) {
	t.Parallel()
	const arn = "arn:aws:dynamodb:eu-west-1:1:table/weir"
	received := make(chan struct{})
	for name, tt := range map[string]struct {
		server    http.HandlerFunc
		client    func(*dynamodb.Options)
		Ambiguous bool
		Transient bool
		hint      string
	}{
		"throttled": {answer(
			400, namespace+"ThrottlingException", message("Rate exceeded"),
		), nil, false, true, "throttled"},
		"key range throttled": {
			answer(400, namespace+"ThrottlingException", throttled("TableWriteKeyRangeThroughputExceeded", arn)), nil,
			false, true, "one key range of the table",
		},
		"index throttled": {
			answer(
				400, namespace+"ThrottlingException",
				throttled("IndexWriteProvisionedThroughputExceeded", arn+"/index/all"),
			), nil, false, true, "provisioned capacity of index all",
		},
		"capacity": {
			answer(
				400, namespace+"ProvisionedThroughputExceededException",
				throttled("TableWriteProvisionedThroughputExceeded", arn),
			), nil, false, true, "provisioned capacity of the table",
		},
		"maximum": {
			answer(400, namespace+"ThrottlingException", throttled("TableReadMaxOnDemandThroughputExceeded", arn)), nil,
			false, true, "maximum on-demand throughput",
		},
		"account": {answer(
			400, namespace+"RequestLimitExceeded", throttled("TableWriteAccountLimitExceeded", arn),
		), nil, false, true, "quota"},
		"denied": {
			answer(
				400, coral+"AccessDeniedException",
				message(
					"User: arn:aws:iam::1:user/u is not authorized to perform: dynamodb:UpdateItem on resource: "+arn+" because no identity-based policy allows the dynamodb:UpdateItem action",
				),
			),
			nil, false, false, "grant the credentials dynamodb:UpdateItem on " + arn,
		},
		"denied without a resource": {
			answer(400, coral+"AccessDeniedException", message("User: u is not authorized to perform: dynamodb:Query")),
			nil, false, false, "grant the credentials dynamodb:Query",
		},
		"denied explicitly": {
			answer(
				400, coral+"AccessDeniedException",
				message(
					"User: u is not authorized to perform: dynamodb:Scan on resource: x with an explicit deny in an identity-based policy",
				),
			),
			nil, false, false, "denies dynamodb:Scan explicitly",
		},
		"denied in other words": {answer(
			400, coral+"AccessDeniedException", message("no"),
		), nil, false, false, "lack a permission"},
		"no table": {answer(
			400, namespace+"ResourceNotFoundException", message("Requested resource not found"),
		), nil, false, false, "--create-table"},
		"other keys": {
			answer(400, coral+"ValidationException", message("The provided key element does not match the schema")),
			nil, false, false, "weir doctor",
		},
		"no index": {answer(
			400, coral+"ValidationException", message("The table does not have the specified index: all"),
		), nil, false, false, "weir doctor"},
		"mistake": {answer(
			400, coral+"ValidationException", message("Invalid UpdateExpression"),
		), nil, false, false, ""},
		"condition": {answer(
			400, namespace+"ConditionalCheckFailedException", message("The conditional request failed"),
		), nil, false, false, ""},
		"conflict": {answer(
			400, namespace+"TransactionConflictException", message("ongoing"),
		), nil, false, true, "retry"},
		"bad credentials": {answer(
			400, coral+"UnrecognizedClientException", message("The security token included in the request is invalid."),
		), nil, false, false, "not valid"},
		"bad signature": {answer(
			400, coral+"InvalidSignatureException", message("The request signature we calculated does not match"),
		), nil, false, false, "not valid"},
		"clock off": {answer(
			400, coral+"InvalidSignatureException",
			message("Signature expired: 20260301T120000Z is now earlier than 20260301T121000Z"),
		), nil, false, false, "clock"},
		"expired": {answer(
			400, coral+"ExpiredTokenException", message("The security token included in the request is expired"),
		), nil, false, false, "have expired"},
		"internal error": {answer(
			500, namespace+"InternalServerError", message("Internal server error"),
		), nil, true, true, "in trouble"},
		"unavailable": {answer(
			503, coral+"ServiceUnavailableException", message("busy"),
		), nil, true, true, "in trouble"},
		"unknown 500": {answer(500, "", ""), nil, true, true, "in trouble"},
		"bad gateway": {func(
			w http.ResponseWriter, _ *http.Request,
		) {
			http.Error(w, "<html>", http.StatusBadGateway)
		}, nil, true, true, "in trouble"},
		"unreadable answer": {func(
			w http.ResponseWriter, _ *http.Request,
		) {
			_, _ = io.WriteString(w, `{"Attributes":{"a":`)
		}, nil, true, true, ""},
		"connection dropped": {drop, nil, true, true, ""},
		"no answer in time": {
			func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				close(received)
				<-r.Context().Done()
			}, nil, true, true, "no answer in time",
		},
		"refused": {nil, func(o *dynamodb.Options) {
			o.BaseEndpoint = aws.String(
				"http://127.0.0.1:" + porttest.Free(t),
			)
		}, false, true, "nothing listens"},
		"name not found": {nil, dialer(
			&net.DNSError{Err: "no such host", Name: "dynamodb.nowhere", IsNotFound: true},
		), false, false, "name was not found"},
		"name service": {nil, dialer(
			&net.DNSError{Err: "timeout", Name: "dynamodb.eu-west-1.amazonaws.com", IsTimeout: true},
		), false, true, "DNS"},
		"no credentials": {nil, func(o *dynamodb.Options) {
			o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{}, errors.New("no EC2 IMDS role found")
			})
		}, false, false, "no credentials were found"},
		"empty credentials": {nil, func(o *dynamodb.Options) {
			o.Credentials = credentials.NewStaticCredentialsProvider("", "", "")
		}, false, false, "no credentials were found"},
		"no region": {nil, func(o *dynamodb.Options) { o.Region, o.BaseEndpoint = "", nil }, false, false, "set the region"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			o := dynamodb.Options{
				Region: "eu-west-1", Retryer: aws.NopRetryer{},
				Credentials:  credentials.NewStaticCredentialsProvider("id", "key", ""),
				BaseEndpoint: aws.String("http://127.0.0.1:1"), // no server is called, unless the case has one
			}
			if tt.server != nil {
				o.BaseEndpoint = aws.String(serve(t, tt.server))
			}
			if tt.client != nil {
				tt.client(&o)
			}
			if name == "no answer in time" {
				var cancel context.CancelCauseFunc
				ctx, cancel = context.WithCancelCause(ctx)
				ctx = expiring{ctx}
				go func() {
					<-received
					cancel(context.DeadlineExceeded)
				}()
			}
			judge(t, ctx, dynamodb.New(o), tt.Ambiguous, tt.Transient, tt.hint)
		})
	}
}

// expiring is a context whose time is up once it is canceled with that cause.
type expiring struct{ context.Context } //nolint:containedctx // it is a context

func (e expiring) Err() error { return context.Cause(e.Context) }

func judge(
	t *testing.T, ctx context.Context, client *dynamodb.Client, wantAmbiguous, wantTransient bool, wantHint string,
) {
	t.Helper()
	_, err := client.UpdateItem(
		ctx, &dynamodb.UpdateItemInput{TableName: aws.String("weir"), Key: Key{"a", "b"}.Item()},
	)
	if err == nil {
		t.Fatal("no error")
	}
	if got := Ambiguous(err); got != wantAmbiguous {
		t.Errorf("ambiguous %t: %v", got, err)
	}
	if got := Transient(err); got != wantTransient {
		t.Errorf("transient %t: %v", got, err)
	}
	if got := Hint(err); !strings.Contains(got, wantHint) || (got == "") != (wantHint == "") {
		t.Errorf("hint %q: %v", got, err)
	}
	known := Trouble("take", "weir", "a bucket", err)
	var e *store.Error
	if !errors.As(known, &e) || !errors.Is(known, err) || e.Op != "take" || e.Key != "weir a bucket" ||
		strings.Contains(known.Error(), "\n") {
		t.Errorf("told as %v", known)
	}
	if again := Trouble("other", "weir", "", known); !errors.Is(again, known) || again.Error() != known.Error() {
		t.Errorf("told twice as %v", again)
	}
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// drop closes a connection after reading the request.
func drop(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		_ = conn.Close()
	}
}

// dialer returns options with which connecting fails.
func dialer(fails error) func(*dynamodb.Options) {
	return func(o *dynamodb.Options) {
		o.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: func(
			context.Context, string, string,
		) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fails}
		}}}
	}
}

// TestErrorsTLS checks that an untrusted endpoint is reported before anything is sent.
func TestErrorsTLS(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	client := dynamodb.New(dynamodb.Options{
		Region: "eu-west-1", Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("id", "key", ""), BaseEndpoint: &s.URL,
	})
	judge(t, t.Context(), client, false, false, "certificate is not trusted")
}

// TestErrorsOfTransactions checks that a transaction is repeated only if all reasons against it are temporary.
func TestErrorsOfTransactions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		codes     []string
		Transient bool
		hint      string
	}{
		{[]string{"None", "ConditionalCheckFailed"}, false, ""},
		{[]string{"TransactionConflict", "None"}, true, "retry"},
		{[]string{"TransactionConflict", "ConditionalCheckFailed"}, false, "retry"},
		{[]string{"ThrottlingError", "TransactionConflict"}, true, "throttled"},
		{[]string{"None", "ProvisionedThroughputExceeded"}, true, "throttled"},
		{[]string{"TransactionConflict", "ValidationError"}, false, "retry"},
		{[]string{"ItemCollectionSizeLimitExceeded"}, false, ""},
		{[]string{"None", "None"}, false, ""},
	} {
		var reasons []string
		for _, c := range tt.codes {
			reasons = append(reasons, fmt.Sprintf(`{"Code":%q}`, c))
		}
		url := serve(
			t,
			answer(
				400, namespace+"TransactionCanceledException",
				message("Transaction cancelled")+`,"CancellationReasons":[`+strings.Join(reasons, ",")+"]",
			),
		)
		client := dynamodb.New(dynamodb.Options{
			Region: "eu-west-1", Retryer: aws.NopRetryer{},
			Credentials: credentials.NewStaticCredentialsProvider("id", "key", ""), BaseEndpoint: &url,
		})
		judge(t, t.Context(), client, false, tt.Transient, tt.hint)
	}
}

// TestErrorsCancelled checks that a call whose caller gave up is not repeated, and that its write may have been
// applied.
func TestErrorsCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	})
	client := dynamodb.New(dynamodb.Options{
		Region: "eu-west-1", Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("id", "key", ""), BaseEndpoint: &url,
	})
	_, err := client.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String("weir"), Item: Key{"a", "b"}.Item()})
	if !errors.Is(err, context.Canceled) || !Ambiguous(err) || Transient(err) {
		t.Errorf("ambiguous %t, Transient %t: %v", Ambiguous(err), Transient(err), err)
	}
}

// TestErrorsOfFakes checks that bare errors, without the SDK's wrapping, are judged alike.
func TestErrorsOfFakes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err                  error
		Ambiguous, Transient bool
	}{
		{nil, false, false},
		{&types.InternalServerError{}, true, true},
		{&types.ThrottlingException{}, false, true},
		{&types.ProvisionedThroughputExceededException{}, false, true},
		{&types.RequestLimitExceeded{}, false, true},
		{&types.TransactionInProgressException{}, false, true},
		{&types.ReplicatedWriteConflictException{}, false, true},
		{&types.ConditionalCheckFailedException{}, false, false},
		{&types.IdempotentParameterMismatchException{}, false, false},
		{context.DeadlineExceeded, true, true},
		{context.Canceled, true, false},
		{io.ErrUnexpectedEOF, true, true},
		{&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, true, true},
		{&net.OpError{Op: "dial", Err: errors.New("network is unreachable")}, false, true},
	} {
		if got := Ambiguous(tt.err); got != tt.Ambiguous {
			t.Errorf("%T %v: Ambiguous %t", tt.err, tt.err, got)
		}
		if got := Transient(tt.err); got != tt.Transient {
			t.Errorf("%T %v: Transient %t", tt.err, tt.err, got)
		}
	}
}
