package wire_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"go.uber.org/goleak"

	"github.com/weirlimits/weir/store/dynamodb/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patient leaves time for a call on a busy machine.
const patient = time.Minute

// server answers byte by byte as it is told.
type server struct {
	net.Listener

	requests, conns atomic.Int64
	mu              sync.Mutex
	open            []net.Conn
	gone            sync.WaitGroup
}

// request is a request that a server got, with its number among all requests and the number of its connection.
type request struct {
	*http.Request

	body    []byte
	n, conn int64
}

// serve answers requests with what answer writes, and closes the connection afterwards if answer returns true.
func serve(t *testing.T, answer func(r *request, w net.Conn) (closes bool)) *server {
	t.Helper()
	return accept(t, func(s *server, c net.Conn, n int64) { s.answer(c, n, answer) })
}

// accept makes each serve the connections, the n-th with n.
func accept(t *testing.T, each func(s *server, c net.Conn, n int64)) *server {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Listener: l}
	s.gone.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n := s.conns.Add(1)
			s.mu.Lock()
			s.open = append(s.open, c)
			s.mu.Unlock()
			s.gone.Go(func() { each(s, c, n) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.drop()
		s.gone.Wait()
	})
	return s
}

func (s *server) answer(c net.Conn, n int64, answer func(*request, net.Conn) bool) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if answer(&request{Request: r, body: body, n: s.requests.Add(1), conn: n}, c) {
			return
		}
	}
}

// drop closes all connections.
func (s *server) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.open {
		c.Close()
	}
	s.open = nil
}

func (s *server) url() string { return "http://" + s.Addr().String() }

// says returns an answer with a body of a known length.
func says(status int, body string, headers ...string) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: %d\r\nX-Amzn-Requestid: R1\r\n",
		status, http.StatusText(status), len(body))
	if !slices.ContainsFunc(headers, func(h string) bool { return strings.HasPrefix(h, "Date: ") }) {
		b.WriteString("Date: " + begun + "\r\n")
	}
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	return b.String() + "\r\n" + body
}

// always gives the same answer to everything, and keeps the connection.
func always(answer string) func(*request, net.Conn) bool {
	return func(_ *request, w net.Conn) bool {
		_, _ = io.WriteString(w, answer)
		return false
	}
}

// begun is when the tests started: no clock is far off.
var begun = time.Now().UTC().Format(http.TimeFormat)

const well = `{"Attributes":{"wc":{"N":"7"},"s":{"S":"rpm"}}}`

// keys are credentials that a test rotates.
type keys struct {
	current atomic.Pointer[aws.Credentials]
}

func (k *keys) Retrieve(context.Context) (aws.Credentials, error) { return *k.current.Load(), nil }

func someKeys() *keys {
	k := new(keys)
	k.current.Store(&aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret", SessionToken: "token/with+signs="})
	return k
}

// once makes the SDK attempt a call once, as the store does.
func once(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }

// options are those of a client of an endpoint.
func options(url string) dynamodb.Options {
	return dynamodb.Options{BaseEndpoint: &url, Region: "eu-central-1", Credentials: someKeys(), AppID: "weir", Retryer: aws.NopRetryer{}}
}

// clients returns a client of the SDK and its stand-in. Their connections are closed when the test ends.
func clients(t testing.TB, o dynamodb.Options, change ...func(*http.Transport)) (*dynamodb.Client, *wire.Client) {
	t.Helper()
	h := awshttp.NewBuildableClient().WithTransportOptions(change...)
	frozen := h.Freeze().(*http.Client)
	o.HTTPClient = frozen
	c := dynamodb.New(o)
	w := wire.New(c, h)
	if w == nil {
		t.Fatal("nothing stands in for the client")
	}
	t.Cleanup(func() {
		w.CloseIdle()
		frozen.CloseIdleConnections()
		if _, open := w.Idle(); open != 0 {
			t.Errorf("%d connections are open", open)
		}
	})
	return c, w
}

// call makes a call with plenty of time.
func call(t testing.TB, w *wire.Client) (*dynamodb.UpdateItemOutput, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	return w.UpdateItem(ctx, write(), once)
}

// want checks that a call gets a good answer.
func want(t testing.TB, w *wire.Client) {
	t.Helper()
	out, err := call(t, w)
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := out.Attributes["wc"].(*types.AttributeValueMemberN); !ok || n.Value != "7" {
		t.Fatalf("attributes %v", out.Attributes)
	}
}

// write is a write to a bucket.
func write() *dynamodb.UpdateItemInput {
	return &dynamodb.UpdateItemInput{
		TableName: aws.String("weir"),
		Key: map[string]types.AttributeValue{
			"PK": &types.AttributeValueMemberS{Value: "default/B#alice#api"}, "SK": &types.AttributeValueMemberS{Value: "#"},
		},
		ConditionExpression: aws.String("#0 = :0 AND #1 BETWEEN :1 AND :2"), UpdateExpression: aws.String("SET #2 = :3 ADD #1 :4"),
		ExpressionAttributeNames: map[string]string{"#0": "id", "#1": "L_rpm", "#2": "at"},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":0": &types.AttributeValueMemberS{Value: `"a\b"<é>` + "\n\x01"}, ":1": &types.AttributeValueMemberN{Value: "-12"},
			":2": &types.AttributeValueMemberN{Value: "9223372036854775807"}, ":3": &types.AttributeValueMemberN{Value: "1"},
			":4": &types.AttributeValueMemberN{Value: "0"},
		},
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
}

func text(v types.AttributeValue) string {
	if s, ok := v.(*types.AttributeValueMemberS); ok {
		return s.Value
	}
	return ""
}

type resolver struct{ dynamodb.EndpointResolverV2 }

type mySigner struct{ dynamodb.HTTPSignerV4 }
