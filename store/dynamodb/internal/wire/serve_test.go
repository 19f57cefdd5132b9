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

// patient has time for a call on a busy machine.
const patient = time.Minute

// server is one that answers byte by byte as it is told.
type server struct {
	net.Listener

	requests, conns atomic.Int64
	mu              sync.Mutex
	open            []net.Conn
	gone            sync.WaitGroup
}

// request is one that a server got: the how-manieth of all, and of its connection.
type request struct {
	*http.Request

	body    []byte
	n, conn int64
}

// serve answers requests with what answer says, and closes the connection behind it if it says so.
func serve(t *testing.T, answer func(r *request, w net.Conn) (closes bool)) *server {
	t.Helper()
	return accept(t, func(s *server, c net.Conn, n int64) { s.answer(c, n, answer) })
}

// accept has each connection, the n-th, served by each.
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

// always answers everything alike, and keeps the connection.
func always(answer string) func(*request, net.Conn) bool {
	return func(_ *request, w net.Conn) bool {
		_, _ = io.WriteString(w, answer)
		return false
	}
}

// begun is when the tests began: no clock is far off.
var begun = time.Now().UTC().Format(http.TimeFormat)

const well = `{"Attributes":{"wc":{"N":"7"},"s":{"S":"rpm"}}}`

// key is what credentials are of that a test rotates.
type keys struct {
	current atomic.Pointer[aws.Credentials]
}

func (k *keys) Retrieve(context.Context) (aws.Credentials, error) { return *k.current.Load(), nil }

func someKeys() *keys {
	k := new(keys)
	k.current.Store(&aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret", SessionToken: "token/with+signs="})
	return k
}

// once is how the store has the SDK make calls.
func once(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }

// options are those of a client of an endpoint.
func options(url string) dynamodb.Options {
	return dynamodb.Options{BaseEndpoint: &url, Region: "eu-central-1", Credentials: someKeys(), AppID: "weir"}
}

// clients returns a client of the SDK and what stands in for it. Their connections are closed when the test ends.
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

// call makes a call that has time.
func call(t testing.TB, w *wire.Client) (*dynamodb.UpdateItemOutput, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	return w.UpdateItem(ctx, write(), once)
}

// want has a call answered well.
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

// write is one to a bucket.
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
