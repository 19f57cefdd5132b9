package snssqs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/weirlimits/weir/internal/fleet/configflow"
	"github.com/weirlimits/weir/internal/fleet/configflow/snssqs"
	"github.com/weirlimits/weir/internal/testkit/mototest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/memory"
)

func record(number, pk, sk string) events.DynamoDBEventRecord {
	return events.DynamoDBEventRecord{EventName: "MODIFY", Change: events.DynamoDBStreamRecord{
		SequenceNumber: number,
		Keys:           map[string]events.DynamoDBAttributeValue{"PK": events.NewStringAttribute(pk), "SK": events.NewStringAttribute(sk)},
	}}
}

// topic is an SNS topic that can refuse.
type topic struct {
	sent   []configflow.Event
	calls  int
	refuse func(i int) bool
	down   error
}

func (f *topic) PublishBatch(_ context.Context, in *sns.PublishBatchInput, _ ...func(*sns.Options)) (*sns.PublishBatchOutput, error) {
	f.calls++
	if f.down != nil {
		return nil, f.down
	}
	out := &sns.PublishBatchOutput{}
	for i, m := range in.PublishBatchRequestEntries {
		if f.refuse != nil && f.refuse(i) {
			out.Failed = append(out.Failed, types.BatchResultErrorEntry{Id: m.Id, Code: aws.String("InternalError")})
			continue
		}
		e, err := configflow.DecodeEvent([]byte(*m.Message))
		if err != nil {
			return nil, err
		}
		f.sent = append(f.sent, e)
	}
	return out, nil
}

func failed(resp events.DynamoDBEventResponse) (numbers []string) {
	for _, f := range resp.BatchItemFailures {
		numbers = append(numbers, f.ItemIdentifier)
	}
	return numbers
}

func publisher(f *topic) *snssqs.Publisher {
	return &snssqs.Publisher{Client: f, ARN: "arn", KeyOf: dynamodb.ConfigKey, Log: slog.New(slog.DiscardHandler)}
}

// For each record that decisions use, the last change is published. Nothing else is published.
func TestPublish(t *testing.T) {
	t.Parallel()
	f := &topic{}
	resp, err := publisher(f).Handle(t.Context(), events.DynamoDBEvent{Records: []events.DynamoDBEventRecord{
		record("1", "default/ENTITY#alice", "#CONFIG#gpt-4"),
		record("2", "default/BUCKET#alice#gpt-4#0", "#STATE"),
		record("3", "default/AUDIT#system", "#AUDIT#01"),
		record("4", "default/SYSTEM#", "#EPOCH"),
		record("5", "_/SYSTEM#", "#NAMESPACE#tenant"),
		record("6", "default/ENTITY#alice", "#CONFIG#gpt-4"),
		record("7", "default/MANIFEST#m", "#META"),
		record("8", "default/SYSTEM#", "#CONFIG"),
	}})
	if err != nil || len(resp.BatchItemFailures) > 0 {
		t.Fatalf("%v, %v", resp, err)
	}
	want := []configflow.Event{
		{Key: store.Key{Namespace: "default", Kind: store.KindEntityLimits, ID: "alice", Sub: "gpt-4"}, Version: "6"},
		{Key: store.Key{Namespace: "_", Kind: store.KindNamespace, ID: "tenant"}, Version: "5"},
		{Key: store.Key{Namespace: "default", Kind: store.KindSystem}, Version: "8"},
	}
	if !slices.Equal(f.sent, want) || f.calls != 1 {
		t.Errorf("%d calls: %v", f.calls, f.sent)
	}
}

// Records that cannot be read or published are reported individually, and the others are published all the same.
func TestPublishFailures(t *testing.T) {
	t.Parallel()
	batch := events.DynamoDBEvent{}
	for i := range 25 {
		batch.Records = append(batch.Records, record(fmt.Sprint(100+i), fmt.Sprint("default/ENTITY#e", i), "#META"))
	}
	batch.Records[3].Change.Keys = nil
	f := &topic{refuse: func(i int) bool { return i == 7 }}
	resp, err := publisher(f).Handle(t.Context(), batch)
	if got := failed(resp); err != nil || !slices.Equal(got, []string{"103", "108", "118"}) || len(f.sent) != 22 || f.calls != 3 {
		t.Errorf("failed %v, error %v, %d sent in %d calls", got, err, len(f.sent), f.calls)
	}
	f = &topic{down: errors.New("SNS is down")}
	resp, err = publisher(f).Handle(t.Context(), events.DynamoDBEvent{Records: batch.Records[:3]})
	if got := failed(resp); err != nil || len(got) != 3 {
		t.Errorf("failed %v, error %v", got, err)
	}
	if _, err := publisher(f).Handle(t.Context(), events.DynamoDBEvent{Records: []events.DynamoDBEventRecord{{}}}); err == nil {
		t.Error("a record without a number cannot be pointed at: the batch is to fail")
	}
}

// cell is a cell's queue and store.
type cell struct {
	store.Store
	*snssqs.Consumer
	*configflow.Mirror

	url string
}

// From the source to two cells, through a topic and a queue each: in order or not, twice, malformed, and after one cell's
// queue was deleted.
func TestFlow(t *testing.T) {
	t.Parallel()
	aw := mototest.Config(t)
	ctx := t.Context()
	notify, queues := sns.NewFromConfig(aw), sqs.NewFromConfig(aw)
	made, err := notify.CreateTopic(ctx, &sns.CreateTopicInput{Name: aws.String("weir-config-flow")})
	if err != nil {
		t.Fatal(err)
	}
	src := memory.New(nil)
	cells := make([]*cell, 2)
	for i := range cells {
		cells[i] = newCell(t, queues, notify, *made.TopicArn, fmt.Sprint("weir-flow-", i), i == 0, src)
	}
	p := &snssqs.Publisher{Client: notify, ARN: *made.TopicArn, KeyOf: dynamodb.ConfigKey}
	version := uint64(0)
	change := func(numbers ...string) {
		t.Helper()
		version++
		w := store.Write{Record: store.Record{
			Key: store.Key{Namespace: "default", Kind: store.KindSystem}, Version: version - 1,
			Value: fmt.Appendf(nil, `{"limits":[{"name":"rpm","amount":%d,"period":"min"}]}`, version),
		}}
		if err := src.Commit(ctx, w); err != nil {
			t.Fatal(err)
		}
		for _, n := range numbers {
			resp, err := p.Handle(ctx, events.DynamoDBEvent{Records: []events.DynamoDBEventRecord{record(n, "default/SYSTEM#", "#CONFIG")}})
			if err != nil || len(resp.BatchItemFailures) > 0 {
				t.Fatalf("%v, %v", resp, err)
			}
		}
	}
	once := func(c *cell) error { return c.Once(ctx, time.Second) }
	want := func(c *cell, version uint64, when string) {
		t.Helper()
		got, err := c.Get(ctx, store.Key{Namespace: "default", Kind: store.KindSystem})
		if err != nil || !strings.Contains(string(got.Records[0].Value), fmt.Sprintf(`"amount":%d,`, version)) {
			t.Errorf("%s: the cell has %s, error %v; want %d", when, got.Records[0].Value, err, version)
		}
	}
	change("1")
	for _, c := range cells { // one raw, the other in SNS's envelope
		if err := once(c); err != nil {
			t.Fatal(err)
		}
		want(c, 1, "an event")
	}
	change("3", "3", "2") // duplicated and out of order
	if _, err := queues.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &cells[0].url, MessageBody: aws.String("poison")}); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if err := once(cells[0]); err != nil {
			t.Fatal(err)
		}
	}
	want(cells[0], 2, "doubled and spoilt")
	if n := cells[0].Bad(); n == 0 {
		t.Error("nobody was told of a spoilt message")
	}
	if _, err := queues.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: &cells[1].url}); err != nil {
		t.Fatal(err)
	}
	if err := once(cells[1]); err == nil {
		t.Error("a queue that is no more can be read")
	}
	change()
	for _, c := range cells { // the function is down, too
		if err := c.Reconcile(ctx); err != nil {
			t.Fatal(err)
		}
		want(c, 3, "compared")
	}
}

func newCell(t *testing.T, queues *sqs.Client, notify *sns.Client, topic, name string, raw bool, src store.Store) *cell {
	t.Helper()
	ctx := t.Context()
	q, err := queues.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String(name), Attributes: map[string]string{"VisibilityTimeout": "0"}})
	if err != nil {
		t.Fatal(err)
	}
	attrs, err := queues.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: q.QueueUrl, AttributeNames: []sqstypes.QueueAttributeName{"QueueArn"}})
	if err != nil {
		t.Fatal(err)
	}
	in := &sns.SubscribeInput{TopicArn: &topic, Protocol: aws.String("sqs"), Endpoint: aws.String(attrs.Attributes["QueueArn"])}
	if raw {
		in.Attributes = map[string]string{"RawMessageDelivery": "true"}
	}
	if _, err := notify.Subscribe(ctx, in); err != nil {
		t.Fatal(err)
	}
	c := &cell{Store: memory.New(nil), url: *q.QueueUrl}
	c.Mirror = configflow.NewMirror(configflow.MirrorConfig{From: src, To: c.Store})
	c.Consumer = &snssqs.Consumer{Client: queues, URL: c.url, Apply: c.Mirror.Apply}
	return c
}

// An event that cannot be applied stays in the queue, and a consumer that stops causes no error.
func TestConsume(t *testing.T) {
	t.Parallel()
	q := &queue{bodies: []string{
		string(configflow.Event{Key: store.Key{Namespace: "n", Kind: store.KindEntity, ID: "a"}, Version: "1"}.Encode()),
		string(configflow.Event{Key: store.Key{Namespace: "n", Kind: store.KindEntity, ID: "b"}, Version: "1"}.Encode()),
	}}
	ctx, stop := context.WithCancel(t.Context())
	c := &snssqs.Consumer{Client: q, URL: "url", Apply: func(_ context.Context, e configflow.Event) error {
		if e.Key.ID == "a" {
			return errors.New("the store is down")
		}
		stop()
		return nil
	}}
	if err := c.Run(ctx); err != nil {
		t.Error(err)
	}
	if !slices.Equal(q.deleted, []string{"1"}) {
		t.Errorf("deleted %v", q.deleted)
	}
}

type queue struct {
	bodies  []string
	deleted []string
}

func (q *queue) ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	out := &sqs.ReceiveMessageOutput{}
	for i, b := range q.bodies {
		id := fmt.Sprint(i)
		out.Messages = append(out.Messages, sqstypes.Message{MessageId: &id, ReceiptHandle: &id, Body: &b})
	}
	return out, nil
}

func (q *queue) DeleteMessageBatch(_ context.Context, in *sqs.DeleteMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	for _, e := range in.Entries {
		q.deleted = append(q.deleted, *e.Id)
	}
	return &sqs.DeleteMessageBatchOutput{}, nil
}
