package configflow_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/weirlimits/weir/internal/fleet/configflow"
	"github.com/weirlimits/weir/internal/fleet/configflow/snssqs"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// stream is a table's stream, with the event source mapping that hands it to a function: in order, from the last
// position. A record on which the function fails three times is set aside. While the function is down, records wait for
// up to a day.
type stream struct {
	t        *testing.T
	function func(context.Context, events.DynamoDBEvent) (events.DynamoDBEventResponse, error)

	records []events.DynamoDBEventRecord
	written []time.Time
	next    int // index of the next record
	tries   int // failed attempts at the next record
	aside   int
	down    bool
}

func (s *stream) add(pk, sk string) {
	keys := map[string]events.DynamoDBAttributeValue{}
	if pk != "" {
		keys["PK"], keys["SK"] = events.NewStringAttribute(pk), events.NewStringAttribute(sk)
	}
	s.records = append(s.records, events.DynamoDBEventRecord{EventName: "MODIFY", Change: events.DynamoDBStreamRecord{
		SequenceNumber: fmt.Sprintf("%021d", len(s.records)+1), Keys: keys,
	}})
	s.written = append(s.written, time.Now())
}

// hand invokes the function until no record is left.
func (s *stream) hand() {
	for !s.down && s.next < len(s.records) {
		if time.Since(s.written[s.next]) > 24*time.Hour {
			s.next++ // trimmed
			continue
		}
		batch := s.records[s.next:min(len(s.records), s.next+100)]
		resp, err := s.function(s.t.Context(), events.DynamoDBEvent{Records: batch})
		if err != nil {
			s.t.Fatal(err)
		}
		if len(resp.BatchItemFailures) == 0 {
			s.next, s.tries = s.next+len(batch), 0
			continue
		}
		lowest := slices.IndexFunc(batch, func(r events.DynamoDBEventRecord) bool {
			return slices.ContainsFunc(resp.BatchItemFailures, func(f events.DynamoDBBatchItemFailure) bool {
				return f.ItemIdentifier == r.Change.SequenceNumber
			})
		})
		if lowest > 0 {
			s.next, s.tries = s.next+lowest, 0
		}
		if s.tries++; s.tries == 3 {
			s.next, s.tries, s.aside = s.next+1, 0, s.aside+1
		}
	}
}

// waiting is an SQS queue.
type waiting struct {
	mu       sync.Mutex
	messages []*waitingMessage
	sent     int
}

type waitingMessage struct {
	id, body string
	visible  time.Time
}

func (q *waiting) send(body string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sent++
	q.messages = append(q.messages, &waitingMessage{id: fmt.Sprint(q.sent), body: body})
}

func (q *waiting) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	out := &sqs.ReceiveMessageOutput{}
	for range in.WaitTimeSeconds {
		q.mu.Lock()
		for _, m := range q.messages {
			if len(out.Messages) < int(in.MaxNumberOfMessages) && !m.visible.After(time.Now()) {
				m.visible = time.Now().Add(30 * time.Second)
				out.Messages = append(out.Messages, types.Message{MessageId: &m.id, ReceiptHandle: &m.id, Body: &m.body})
			}
		}
		q.mu.Unlock()
		if len(out.Messages) > 0 {
			break
		}
		t := time.NewTimer(time.Second)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		case <-t.C:
		}
	}
	return out, nil
}

func (q *waiting) DeleteMessageBatch(_ context.Context, in *sqs.DeleteMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.messages = slices.DeleteFunc(q.messages, func(m *waitingMessage) bool {
		return slices.ContainsFunc(in.Entries, func(e types.DeleteMessageBatchRequestEntry) bool { return *e.ReceiptHandle == m.id })
	})
	return &sqs.DeleteMessageBatchOutput{}, nil
}

// counts returns the number of messages sent, and of those still in the queue.
func (q *waiting) counts() (sent, left int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sent, len(q.messages)
}

// fanout is an SNS topic that sends to queues.
type fanout []*waiting

func (f fanout) PublishBatch(_ context.Context, in *sns.PublishBatchInput, _ ...func(*sns.Options)) (*sns.PublishBatchOutput, error) {
	for _, m := range in.PublishBatchRequestEntries {
		for _, q := range f {
			q.send(aws.ToString(m.Message))
		}
	}
	return &sns.PublishBatchOutput{}, nil
}

// outCell is a cell: its own store, and deciders that each compare the cell with the source and compete for the messages
// of the cell's queue.
type outCell struct {
	*remote

	t        *testing.T
	src      *remote
	queue    *waiting
	every    time.Duration // see configflow.MirrorConfig
	deciders []*decider
	last     []int64 // the burst that each decider used last
}

// join starts a decider.
func (c *outCell) join() {
	c.t.Helper()
	d := c.start(c.t, "")
	m := configflow.NewMirror(configflow.MirrorConfig{From: c.src.handle(), To: c.handle(), Every: c.every, Whole: 100 * time.Hour})
	q := &snssqs.Consumer{Client: c.queue, URL: "url", Apply: m.Apply, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(c.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = m.Run(ctx) })
	running.Go(func() { _ = q.Run(ctx) })
	stop := d.stop
	d.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		stop()
	})
	c.t.Cleanup(d.stop)
	c.deciders, c.last = append(c.deciders, d), append(c.last, 0)
}

// look records the burst that each decider uses, and fails if it is older than the one before.
func (c *outCell) look() {
	c.t.Helper()
	for i, d := range c.deciders {
		now := d.burst("alice")
		if now < c.last[i] {
			c.t.Errorf("a decider went back from %d to %d", c.last[i], now)
		}
		c.last[i] = now
	}
}

// pass lets time pass while all deciders are watched.
func pass(d time.Duration, s *stream, cells ...*outCell) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(5 * time.Second) // virtual time: in the caller's bubble
		s.hand()
		for _, c := range cells {
			c.look()
		}
	}
}

// The function that announces changes is down for an hour. Meanwhile limits change, one record is malformed, and deciders
// come and go. A cell that compares with the table still has each change within about a minute; a cell that does not
// compare uses its old values. Once the function is back, both cells have the newest values, however old and duplicated
// the announcements, and no decider ever goes back.
func TestFunctionDown(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		src := newRemote(t)
		queues := fanout{{}, {}}
		publisher := &snssqs.Publisher{Client: queues, ARN: "arn", KeyOf: dynamodb.ConfigKey, Log: slog.New(slog.DiscardHandler)}
		s := &stream{t: t, function: publisher.Handle}
		system := store.Key{Namespace: "default", Kind: store.KindSystem}
		change := func(burst int) {
			src.raw(t, system, fmt.Sprintf(`{"limits":[{"name":"rpm","amount":%d,"period":"min"}]}`, burst))
			s.add("default/SYSTEM#", "#CONFIG")
		}
		change(10)
		compares := &outCell{remote: newRemote(t), t: t, src: src, queue: queues[0], every: time.Minute}
		told := &outCell{remote: newRemote(t), t: t, src: src, queue: queues[1], every: 100 * time.Hour}
		cells := []*outCell{compares, told}
		for _, c := range cells {
			c.join()
			c.join()
		}
		time.Sleep(2 * time.Minute) // the first comparison
		want := func(c *outCell, burst int64, when string) {
			t.Helper()
			for _, d := range c.deciders {
				d.want("alice", burst, when)
			}
		}
		change(20)
		pass(30*time.Second, s, cells...)
		want(told, 20, "told")
		want(compares, 20, "told")

		s.down = true
		const reconcile = 66*time.Second + period // a comparison, and the deciders' poll
		for i := range 8 {
			burst := 30 + 10*i
			change(burst)
			if i == 4 {
				src.raw(t, system, `{"limits":[{"name":"rpm","amount":0,"period":"min"}]}`) // a faulty write, repaired by the next change
				s.add("default/SYSTEM#", "#CONFIG")
				s.add("", "") // a record that the function cannot read
			}
			pass(reconcile+5*time.Second, s, cells...)
			valid := int64(burst)
			if i == 4 {
				valid -= 10 // a value that was replaced before the comparison is lost
			}
			want(compares, valid, "compared")
			want(told, 20, "down")
			pass(6*time.Minute, s, cells...)
			if i == 5 { // a decider restarts; in the other cell it would compare
				compares.deciders[1].stop()
				compares.deciders, compares.last = compares.deciders[:1], compares.last[:1]
				compares.join()
				compares.last[1] = compares.last[0]
			}
		}
		if n, _ := queues[0].counts(); n != 1 { // only the last change before the outage
			t.Errorf("%d events, while the function was down", n)
		}
		s.down = false
		pass(reconcile, s, cells...)
		want(compares, 100, "back")
		want(told, 100, "back")
		if s.aside != 1 || s.next != len(s.records) {
			t.Errorf("%d records are kept aside, %d of %d are read", s.aside, s.next, len(s.records))
		}
		s.next = 0 // everything again, as an hour ago
		pass(reconcile, s, cells...)
		want(told, 100, "doubled")
		for i, q := range queues {
			if _, left := q.counts(); left > 0 {
				t.Errorf("queue %d: %d messages stay", i, left)
			}
		}
	})
}
