package stream_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/weirlimits/weir/internal/aws/stream"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// log is a table in memory with its stream, which has one shard. Iterators are numbers of records.
type log struct {
	fake *dynamotest.Fake

	mu      sync.Mutex
	records []streamtypes.Record // one for each write
	reads   int                  // of records
	lists   int                  // of shards
}

func newLog() *log {
	l := new(log)
	l.fake = &dynamotest.Fake{Changed: func(_ string, old, replaced map[string]types.AttributeValue) {
		keys := replaced
		if keys == nil {
			keys = old
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.records = append(l.records, streamtypes.Record{Dynamodb: &streamtypes.StreamRecord{
			SequenceNumber: aws.String(strconv.Itoa(len(l.records) + 1)), ApproximateCreationDateTime: aws.Time(time.Now()),
			Keys:     streamImage(map[string]types.AttributeValue{"PK": keys["PK"], "SK": keys["SK"]}),
			OldImage: streamImage(old), NewImage: streamImage(replaced),
		}})
	}}
	return l
}

func streamImage(image map[string]types.AttributeValue) map[string]streamtypes.AttributeValue {
	out := make(map[string]streamtypes.AttributeValue)
	for name, v := range image {
		switch v := v.(type) {
		case *types.AttributeValueMemberS:
			out[name] = &streamtypes.AttributeValueMemberS{Value: v.Value}
		case *types.AttributeValueMemberN:
			out[name] = &streamtypes.AttributeValueMemberN{Value: v.Value}
		case *types.AttributeValueMemberB:
			out[name] = &streamtypes.AttributeValueMemberB{Value: v.Value}
		}
	}
	return out
}

// calls returns how often the table was written, and how often anything was read, since the previous call.
func (l *log) calls(before *[2]int) (writes, reads int) {
	calls := l.fake.Calls() // before l.mu, which the table takes while it holds its own lock
	l.mu.Lock()
	defer l.mu.Unlock()
	now := [2]int{len(l.records), l.reads + l.lists + calls["Query"] + calls["BatchGetItem"] + calls["GetItem"]}
	writes, reads = now[0]-before[0], now[1]-before[1]
	*before = now
	return writes, reads
}

func (l *log) DescribeStream(context.Context, *dynamodbstreams.DescribeStreamInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.DescribeStreamOutput, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lists++
	return &dynamodbstreams.DescribeStreamOutput{StreamDescription: &streamtypes.StreamDescription{Shards: []streamtypes.Shard{{ShardId: aws.String("one")}}}}, nil
}

func (l *log) GetShardIterator(_ context.Context, in *dynamodbstreams.GetShardIteratorInput, _ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetShardIteratorOutput, error) {
	return &dynamodbstreams.GetShardIteratorOutput{ShardIterator: aws.String(aws.ToString(in.SequenceNumber) + "!")}, nil
}

func (l *log) GetRecords(_ context.Context, in *dynamodbstreams.GetRecordsInput, _ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error) {
	text := aws.ToString(in.ShardIterator)
	at, err := strconv.Atoi("0" + text[:len(text)-1])
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reads++; l.reads > 1000 {
		return nil, errCrash
	}
	return &dynamodbstreams.GetRecordsOutput{
		Records: l.records[at:len(l.records):len(l.records)], NextShardIterator: aws.String(strconv.Itoa(len(l.records)) + "!"),
	}, err
}

// run runs a reader until it is ended.
func (l *log) run(t *testing.T, st *dynamodb.Store) (end func()) {
	t.Helper()
	r := &stream.Reader{Config: stream.Config{Store: st}, Streams: l, ARN: "arn"}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return func() { stop(); wg.Wait() }
}

// A reader with nothing to count makes less than one read per second of any kind, and no writes: what it has written
// itself is no news. It still counts what comes later, and leaves a shard that another has taken.
func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		st := open(t, l.fake, time.Now)
		end := l.run(t, st)
		defer end()
		limit := &store.Limit{Name: "tpm", Amount: 1e6, Period: time.Minute, Burst: 1e6}
		bucket := store.Bucket{Namespace: "n", Entity: "alice", Resource: "api"}
		var before [2]int
		for range 2 {
			if _, err := st.Take(t.Context(), store.Take{Debits: []store.Debit{{Bucket: bucket, Charges: []store.Charge{{Limit: limit, Amount: 10}}}}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			l.calls(&before)
			time.Sleep(time.Minute)
			if writes, reads := l.calls(&before); writes > 0 || reads > 60 {
				t.Errorf("%d writes and %d reads in an idle minute", writes, reads)
			}
		}
		page, err := st.Usage(t.Context(), store.UsageQuery{Namespace: "n", Of: store.OfBucket, ID: "alice", Window: store.Monthly, From: time.Now().AddDate(0, -2, 0), To: time.Now().AddDate(0, 2, 0)})
		if err != nil || len(page.Records) != 1 || page.Records[0].Counts[1].Consumed() != 20 {
			t.Errorf("booked: %+v, %v", page.Records, err)
		}
		other := l.run(t, st)
		defer other()
		time.Sleep(time.Minute)
		l.calls(&before)
		time.Sleep(time.Minute)
		if writes, reads := l.calls(&before); writes > 10 || reads > 2*60 {
			t.Errorf("%d writes and %d reads in an idle minute of two readers", writes, reads)
		}
	})
}

// A reader that polls every minute books what comes in a minute at once, and keeps its shard meanwhile.
func TestPollSlowly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		st := open(t, l.fake, time.Now)
		r := &stream.Reader{Config: stream.Config{Store: st}, Streams: l, ARN: "arn", Poll: time.Minute}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = r.Run(ctx) })
		defer wg.Wait()
		defer stop()
		limit := &store.Limit{Name: "tpm", Amount: 1e6, Period: time.Minute, Burst: 1e6}
		debits := []store.Debit{{Bucket: alice, Charges: []store.Charge{{Limit: limit, Amount: 10}}}}
		begun := time.Now()
		for range 10 * 60 {
			time.Sleep(time.Second)
			if _, err := st.Take(t.Context(), store.Take{Debits: debits}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		if n := l.fake.Calls()["TransactWriteItems"]; n < 9 || n > 13 {
			t.Errorf("%d transactions in ten minutes", n)
		}
		leases, err := st.StreamLeases(t.Context())
		if err != nil || leases["one"].Owner == "" || !leases["one"].Until.After(time.Now()) {
			t.Errorf("leases %+v, %v", leases, err)
		}
		page, err := st.Usage(t.Context(), store.UsageQuery{Namespace: "n", Of: store.OfNamespace, Window: store.Daily, From: begun.AddDate(0, 0, -1), To: begun.AddDate(0, 0, 2)})
		if err != nil || len(page.Records) == 0 || page.Records[0].Counts[1].Consumed() != 6000 {
			t.Errorf("booked %+v, %v", page.Records, err)
		}
	})
}
