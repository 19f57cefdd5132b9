package dynamoproxy_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/weirlimits/weir/governor"
	"github.com/weirlimits/weir/internal/serve/dynamoproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// upstream answers in place of DynamoDB, without a network.
type upstream func(r *http.Request, body string) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (u upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	return u(r, string(body))
}

// answer is one of DynamoDB's, with its checksum.
func answer(status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)),
		Header: http.Header{
			"Content-Type": {"application/x-amz-json-1.0"}, "X-Amz-Crc32": {sum([]byte(body))}, "X-Amzn-Requestid": {"id"},
		},
	}
}

func sum(body []byte) string { return strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10) }

func always(status int, body string) upstream {
	return func(*http.Request, string) (*http.Response, error) { return answer(status, body), nil }
}

const putAnswer = `{"ConsumedCapacity":{"TableName":"t","CapacityUnits":1.0}}`

func govern(t *testing.T, cfg governor.Config) *governor.Governor {
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

// proxy returns a proxy of a stub, whose own key is "own".
func proxy(t *testing.T, g *governor.Governor, u upstream, more ...func(*dynamoproxy.Config)) *dynamoproxy.Proxy {
	t.Helper()
	cfg := dynamoproxy.Config{
		Governor: g, Endpoint: &url.URL{Scheme: "https", Host: "dynamodb.example"}, Region: "eu-central-1",
		Credentials: credentials.NewStaticCredentialsProvider("own", "own-secret", "own-session"),
		Log:         slog.New(slog.DiscardHandler), Transport: u,
	}
	for _, change := range more {
		change(&cfg)
	}
	p, err := dynamoproxy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// client returns the SDK's client of a proxy, in memory. It does not retry, and verifies checksums.
func client(h http.Handler, change func(*http.Request)) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: aws.String("http://127.0.0.1:8000"), Region: "us-west-2", Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("client", "client-secret", "client-session"),
		HTTPClient: do(func(r *http.Request) (*http.Response, error) {
			sent := httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), r.Body)
			sent.Header, sent.ContentLength = r.Header, r.ContentLength
			if change != nil {
				change(sent)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, sent)
			return w.Result(), nil
		}),
	})
}

type do func(*http.Request) (*http.Response, error)

// Do implements the SDK's HTTP client.
func (d do) Do(r *http.Request) (*http.Response, error) { return d(r) }

func put(ctx context.Context, c *dynamodb.Client) error {
	_, err := c.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: aws.String("t"), Item: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "x"}},
	})
	return err
}

func codeOf(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return fmt.Sprint(err)
}

func TestWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := govern(t, governor.Config{ReadUnits: 10, WriteUnits: 10, Start: time.Nanosecond})
		c := client(proxy(t, g, always(200, putAnswer)), nil)
		began := time.Now()
		for range 50 {
			if err := put(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < 4900*time.Millisecond || took > 5100*time.Millisecond {
			t.Errorf("50 writes at 10/s took %v", took)
		}
		if b := g.Status().Budgets[1]; b.Consumed != 50 || b.Estimated != 0 {
			t.Errorf("consumed %+v", b)
		}
	})
}

// A request is signed by the proxy, has its consumption reported, and is otherwise as the client wrote it.
// TestAtOnce sends requests at the same time: what governs one shares nothing with others, which the race detector finds.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	g := govern(t, governor.Config{ReadUnits: 1e6, WriteUnits: 1e6})
	p := proxy(t, g, always(http.StatusOK, putAnswer))
	c := client(p, nil)
	const each, callers = 50, 4
	var all errgroup.Group
	for range callers {
		all.Go(func() error {
			for range each {
				if err := put(t.Context(), c); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := p.Counts().Passed; n != each*callers {
		t.Errorf("%d passed, want %d", n, each*callers)
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	g := govern(t, governor.Config{ReadUnits: 1000, WriteUnits: 1000})
	var got *http.Request
	var text string
	p := proxy(t, g, func(r *http.Request, body string) (*http.Response, error) {
		got, text = r, body
		return answer(200, `{}`), nil
	})
	send := func(target, body string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/?query=1", strings.NewReader(body))
		r.Header = http.Header{
			"X-Amz-Target": {"DynamoDB_20120810." + target, "DynamoDB_20120810.Other"}, "X-Secret": {"1"},
			"Authorization": {"of the client"}, "X-Amz-Security-Token": {"of the client"}, "Connection": {"upgrade"},
			"Upgrade": {"websocket"}, "User-Agent": {"boto"},
		}
		p.ServeHTTP(httptest.NewRecorder(), r)
	}
	for _, tt := range []struct{ op, sent, want string }{
		{"GetItem", `{ "TableName": "t", "New": [1.0,  2] }`, `{"TableName":"t","New":[1.0,  2],"ReturnConsumedCapacity":"TOTAL"}`},
		{"GetItem", `{"ReturnConsumedCapacity":"NONE","TableName":"t"}`, `{"TableName":"t","ReturnConsumedCapacity":"TOTAL"}`},
		{"GetItem", `{"ReturnConsumedCapacity": "TOTAL"}`, `{"ReturnConsumedCapacity": "TOTAL"}`},
		{"Query", `{"ReturnConsumedCapacity":"INDEXES"}`, `{"ReturnConsumedCapacity":"INDEXES"}`},
		{"Query", `{"ReturnConsumedCapacity":"MUCH"}`, `{"ReturnConsumedCapacity":"MUCH"}`}, // DynamoDB refuses it
		{"Scan", `{}`, `{"ReturnConsumedCapacity":"TOTAL"}`},
		{"DescribeTable", `{ "TableName": "t" }`, `{ "TableName": "t" }`},
	} {
		send(tt.op, tt.sent)
		if text != tt.want || got.ContentLength != int64(len(text)) {
			t.Errorf("%s %s: sent %s, %d bytes", tt.op, tt.sent, text, got.ContentLength)
		}
		h := got.Header
		if got.URL.String() != "https://dynamodb.example/" || got.Host != "dynamodb.example" ||
			!strings.HasPrefix(h.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=own/") ||
			!strings.Contains(h.Get("Authorization"), "/eu-central-1/dynamodb/aws4_request") ||
			h.Get("X-Amz-Security-Token") != "own-session" || h.Get("X-Secret") != "" || h.Get("Upgrade") != "" ||
			len(h["X-Amz-Target"]) != 1 || h.Get("User-Agent") != "boto" {
			t.Errorf("sent to %s with %v", got.URL, h)
		}
	}
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	const whole = `{"Item":{"n":{"N":"1.50"}},"ConsumedCapacity":{"TableName":"t","CapacityUnits":0.5,"Table":{"CapacityUnits":0.5},"GlobalSecondaryIndexes":{}}}`
	const totals = `{"Item":{"n":{"N":"1.50"}},"ConsumedCapacity":{"TableName":"t","CapacityUnits":0.5}}`
	const batch = `{"ConsumedCapacity":[{"TableName":"t","CapacityUnits":1,"Table":{"CapacityUnits":1}},{"TableName":"u","CapacityUnits":2}],"Responses":{}}`
	const batchTotals = `{"ConsumedCapacity":[{"TableName":"t","CapacityUnits":1},{"TableName":"u","CapacityUnits":2}],"Responses":{}}`
	limits := governor.Limits{ReadUnits: 1e6, WriteUnits: 1e6}
	split := limits
	split.Indexes = map[string]governor.Limits{"x": limits} // the governor then requests INDEXES
	g := govern(t, governor.Config{Tables: map[string]governor.Limits{"t": split}})
	for _, tt := range []struct{ op, level, sent, want string }{
		{"GetItem", "", whole, `{"Item":{"n":{"N":"1.50"}}}`},
		{"GetItem", "NONE", whole, `{"Item":{"n":{"N":"1.50"}}}`},
		{"GetItem", "TOTAL", whole, totals},
		{"GetItem", "INDEXES", whole, whole},
		{"BatchGetItem", "", batch, `{"Responses":{}}`},
		{"BatchGetItem", "TOTAL", batch, batchTotals},
		{"GetItem", "", `{"ConsumedCapacity":null}`, `{}`},
		{"GetItem", "TOTAL", `{"Item":{}}`, `{"Item":{}}`},
	} {
		for _, encoding := range []string{"", "gzip"} {
			sent := tt.sent
			if encoding != "" {
				var b bytes.Buffer
				z := gzip.NewWriter(&b)
				_, _ = z.Write([]byte(sent))
				_ = z.Close()
				sent = b.String()
			}
			p := proxy(t, g, func(r *http.Request, _ string) (*http.Response, error) {
				if r.Header.Get("Accept-Encoding") != encoding {
					t.Errorf("Accept-Encoding is %q", r.Header.Get("Accept-Encoding"))
				}
				a := answer(200, sent)
				if encoding != "" {
					a.Header.Set("Content-Encoding", encoding)
				}
				return a, nil
			})
			body := `{"TableName":"t","RequestItems":{"t":{}}}`
			if tt.level != "" {
				body = `{"ReturnConsumedCapacity":"` + tt.level + `",` + body[1:]
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
			r.Header.Set("X-Amz-Target", "DynamoDB_20120810."+tt.op)
			if encoding != "" {
				r.Header.Set("Accept-Encoding", encoding)
			}
			w := httptest.NewRecorder()
			p.ServeHTTP(w, r)
			want := tt.want
			if tt.level == "INDEXES" && encoding != "" { // nothing changes, so it is not even decompressed
				want = sent
			}
			h := w.Result().Header
			if w.Body.String() != want || h.Get("X-Amz-Crc32") != sum(w.Body.Bytes()) ||
				h.Get("Content-Length") != strconv.Itoa(w.Body.Len()) || (h.Get("Content-Encoding") == "gzip") != (want == sent && encoding != "") {
				t.Errorf("%s %s %s: %q with %v", tt.op, tt.level, encoding, w.Body, h)
			}
		}
	}
}

// The governor learns the same from the proxy's JSON as from the SDK's types: sizes, errors, throttling.
func TestAccounts(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 5000)
	item := map[string]types.AttributeValue{
		"pk": &types.AttributeValueMemberS{Value: big}, "n": &types.AttributeValueMemberN{Value: "12345678901234567890"},
		"b": &types.AttributeValueMemberB{Value: []byte(big)}, "ss": &types.AttributeValueMemberSS{Value: []string{big, "y"}},
		"ns": &types.AttributeValueMemberNS{Value: []string{"1", "2"}}, "bs": &types.AttributeValueMemberBS{Value: [][]byte{[]byte(big)}},
		"yes": &types.AttributeValueMemberBOOL{Value: true}, "no": &types.AttributeValueMemberNULL{Value: true},
		"m": &types.AttributeValueMemberM{Value: map[string]types.AttributeValue{
			"l": &types.AttributeValueMemberL{Value: []types.AttributeValue{&types.AttributeValueMemberS{Value: big}, &types.AttributeValueMemberN{Value: "1"}}},
		}},
	}
	for name, tt := range map[string]struct {
		status int
		answer string
	}{
		"reported":  {200, `{"ConsumedCapacity":{"TableName":"t","CapacityUnits":77.5}}`},
		"unknown":   {200, `{}`},
		"lost":      {500, `{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError"}`},
		"invalid":   {400, `{"__type":"com.amazon.coral.validate#ValidationException","message":"no"}`},
		"condition": {400, `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"no","Item":{"a":{"S":"` + strings.Repeat("y", 60_000) + `"}}}`},
		"throttled": {400, `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"slow","ThrottlingReasons":[{"reason":"TableWriteProvisionedThroughputExceeded","resource":"arn:aws:dynamodb:eu-central-1:1:table/t"}]}`},
		"hot":       {400, `{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"slow","throttlingReasons":[{"reason":"TableWriteKeyRangeThroughputExceeded","resource":"arn:aws:dynamodb:eu-central-1:1:table/t"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cfg := governor.Config{Tables: map[string]governor.Limits{"t": {ReadUnits: 1000, WriteUnits: 1000}}}
				through, direct := govern(t, cfg), govern(t, cfg)
				c := client(proxy(t, through, always(tt.status, tt.answer)), nil)
				d := dynamodb.New(c.Options(), func(o *dynamodb.Options) {
					o.APIOptions = append(o.APIOptions, direct.Middleware())
					o.HTTPClient = do(func(*http.Request) (*http.Response, error) { return answer(tt.status, tt.answer), nil })
				})
				q := &dynamodb.PutItemInput{TableName: aws.String("t"), Item: item}
				_, err := c.PutItem(t.Context(), q)
				_, want := d.PutItem(t.Context(), q)
				if codeOf(err) != codeOf(want) {
					t.Errorf("error %v, not %v", err, want)
				}
				got, exp := through.Status().Budgets[1], direct.Status().Budgets[1]
				if got != exp {
					t.Errorf("through the proxy\n%+v, not\n%+v", got, exp)
				}
			})
		})
	}
}

// The answer to an operation that is not governed streams: its beginning arrives before its end is there.
func TestStreams(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"TableNames":[`)
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, `]}`)
	}))
	defer up.Close()
	at, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := proxy(t, govern(t, governor.Config{ReadUnits: 1, WriteUnits: 1}), nil, func(c *dynamoproxy.Config) {
		c.Endpoint, c.Transport = at, up.Client().Transport
	})
	down := httptest.NewServer(p)
	defer down.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, down.URL, strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Amz-Target", "DynamoDB_20120810.ListTables")
	resp, err := down.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	begin := make([]byte, 15)
	if _, err := io.ReadFull(resp.Body, begin); err != nil || string(begin) != `{"TableNames":[` {
		t.Errorf("read %q, %v", begin, err)
	}
	close(more)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "]}" {
		t.Errorf("then read %q, %v", rest, err)
	}
}
