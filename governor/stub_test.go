package governor_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"go.uber.org/goleak"

	"github.com/weirlimits/weir/governor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stub answers in place of DynamoDB, without a network, so that it works in virtual time.
type stub struct {
	mu     sync.Mutex
	calls  []request
	answer func(request) (status int, body string)
	took   time.Duration // how long an answer takes
}

// request is one attempt of an operation.
type request struct {
	op   string
	body map[string]any
}

var errNoNetwork = errors.New("connection reset")

// Do implements the SDK's HTTP client. A status of 0 means no answer at all.
func (s *stub) Do(r *http.Request) (*http.Response, error) {
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	req := request{op: op}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &req.body); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.calls = append(s.calls, req)
	s.mu.Unlock()
	if s.took > 0 {
		time.Sleep(s.took) // virtual time: set only in bubbles
	}
	status, body := s.answer(req)
	if status == 0 {
		return nil, errNoNetwork
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}, nil
}

// always answers every request the same way.
func answering(status int, body string) func(request) (int, string) {
	return func(request) (int, string) { return status, body }
}

// client returns a client of the stub, governed by all governors, that retries without pauses.
func (s *stub) client(govs ...*governor.Governor) *dynamodb.Client {
	cfg := aws.Config{
		Region: "eu-west-1", HTTPClient: s, Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
	}
	for _, g := range govs {
		cfg.APIOptions = append(cfg.APIOptions, g.Middleware())
	}
	return dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) { o.Retryer = quick(3) })
}

func mustNew(t testing.TB, cfg governor.Config) *governor.Governor {
	t.Helper()
	g, err := governor.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// budget returns the status of a governor's budget, or the zero value if it has none.
func budgetOf(g *governor.Governor, table, index string, dir governor.Direction) governor.BudgetStatus {
	for _, b := range g.Status().Budgets {
		if b.Table == table && b.Index == index && b.Direction == dir {
			return b
		}
	}
	return governor.BudgetStatus{}
}
