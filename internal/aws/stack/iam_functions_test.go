package stack_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/aws/function"
	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/aws/stream"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// TestProvisionerRole: the provisioner plans, applies, and handles a CloudFormation resource from creation to deletion.
func TestProvisionerRole(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	answers := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(answers.Close)
	p := &function.Provisioner{Table: tb.name, Client: answers.Client(), Anywhere: true, Log: slog.New(slog.DiscardHandler), Open: func(ctx context.Context) (*weir.Limiter, error) {
		st, err := dynamodb.Open(ctx, dynamodb.Config{Client: tb.recorded(), Table: tb.name})
		must(t, err)
		return weir.New(weir.Config{Store: st})
	}}
	handle := func(event map[string]any) any {
		t.Helper()
		text, err := json.Marshal(event)
		must(t, err)
		answer, err := p.Handle(t.Context(), text)
		must(t, err)
		if a, ok := answer.(function.Answer); ok && a.Status == function.Failed {
			t.Fatalf("%+v", a)
		}
		return answer
	}
	limits := func(capacity int) map[string]any {
		return map[string]any{
			"namespace": "default", "system": map[string]any{"limits": map[string]any{"rpm": map[string]any{"capacity": capacity}}},
			"resources": map[string]any{"api": map[string]any{"limits": map[string]any{"rpm": map[string]any{"capacity": capacity}}}},
			"entities":  map[string]any{"org": map[string]any{}, "key": map[string]any{"parent": "org"}},
		}
	}
	less := limits(2)
	delete(less, "entities")
	handle(map[string]any{"action": "plan", "manifest": limits(1)})
	handle(map[string]any{"action": "apply", "manifest": limits(1)})
	direct := tb.limiter(tb.direct, weir.Config{})
	decideOnce(t, direct)
	handle(map[string]any{"action": "plan", "manifest": limits(2), "exact": true})
	handle(map[string]any{"action": "apply", "manifest": less})
	for _, kind := range []string{"Create", "Delete"} {
		m := map[string]any{"namespace": "blue", "system": map[string]any{"limits": map[string]any{"rpm": map[string]any{"capacity": 5}}}}
		handle(map[string]any{
			"RequestType": kind, "RequestId": "one", "ResponseURL": answers.URL, "StackId": "arn:aws:cloudformation:eu-central-1:123456789012:stack/a/b",
			"LogicalResourceId": "Limits", "ResourceType": "Custom::WeirLimits", "ResourceProperties": map[string]any{"Manifest": m},
			"PhysicalResourceId": map[string]string{"Delete": tb.name + "/blue/default"}[kind],
		})
	}
	covered(t, policy(t, nil, "ProvisionerRole"), nil, tb.rec.Calls())
}

func decideOnce(t *testing.T, lim *weir.Limiter) {
	t.Helper()
	lease, err := lim.Acquire(t.Context(), weir.Request{Entity: "key", Resource: "api", Tokens: weir.Tokens{"rpm": 1}})
	must(t, err)
	must(t, lease.Commit(t.Context()))
}

// TestAggregatorRole: the aggregator books the stream of a busy table.
func TestAggregatorRole(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	tb.stream()
	lim := tb.limiter(tb.direct, weir.Config{})
	tb.prepare(lim)
	decide(t, lim, "key")
	st, err := dynamodb.Open(t.Context(), dynamodb.Config{Client: tb.recorded(), Table: tb.name})
	must(t, err)
	handle := stream.Handler(stream.Config{Store: st})
	text, err := json.Marshal(map[string]any{"Records": tb.records()})
	must(t, err)
	var event events.DynamoDBEvent
	must(t, json.Unmarshal(text, &event))
	event.Records = slices.DeleteFunc(event.Records, func(r events.DynamoDBEventRecord) bool { return r.Change.Keys["SK"].String() != "#STATE" })
	response, err := handle(t.Context(), event)
	must(t, err)
	if len(response.BatchItemFailures) > 0 || len(event.Records) == 0 {
		t.Fatalf("%d of %d records failed", len(response.BatchItemFailures), len(event.Records))
	}
	must(t, st.Close())
	covered(t, policy(t, nil, "AggregatorRole"), nil, tb.rec.Calls())
}

// TestAggregatePolicy: weir aggregate reads the stream of a table, and books it.
func TestAggregatePolicy(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	tb.stream()
	client := tb.recorded()
	table, err := client.DescribeTable(t.Context(), &awsdynamodb.DescribeTableInput{TableName: &tb.name}) // finds the stream as the command does
	must(t, err)
	lim := tb.limiter(tb.direct, weir.Config{})
	tb.prepare(lim)
	decide(t, lim, "key")
	st, err := dynamodb.Open(t.Context(), dynamodb.Config{Client: client, Table: tb.name})
	must(t, err)
	r := &stream.Reader{
		Config: stream.Config{Store: st}, Poll: 10 * time.Millisecond, ARN: *table.Table.LatestStreamArn,
		Streams: dynamodbstreams.New(dynamodbstreams.Options{
			BaseEndpoint: aws.String(dynamotest.Engine(t)), Region: "us-east-1", Credentials: tb.direct.Options().Credentials,
		}),
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(stop)
	var running sync.WaitGroup
	running.Go(func() { must(t, r.Run(ctx)) })
	for booked := 0; booked == 0 && ctx.Err() == nil; { // real time: the stream is an engine's
		page, err := admin.New(lim).Usage.Windows(ctx, admin.UsageQuery{By: admin.ByNamespace, Window: admin.Hourly})
		if !errors.Is(err, store.ErrNoUsage) { // the reader has not begun
			must(t, err)
		}
		booked = len(page.Items)
	}
	stop()
	running.Wait()
	must(t, st.Close())
	covered(t, policy(t, stack.Values{"NoAggregator": "true"}, "AggregatePolicy"), nil, tb.rec.Calls())
}
