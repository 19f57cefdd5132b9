package stream_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/weirlimits/weir/internal/aws/stream"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// busy is an engine's table with a stream, whose buckets are debited by many callers of several processes, and the record
// of what was admitted. Its clock advances with each debit.
type busy struct {
	*testing.T

	client  *sdk.Client
	table   string
	streams *dynamodbstreams.Client
	arn     string
	callers int // concurrent callers
	chains  int // one debit in this many has a parent

	mu       sync.Mutex
	now      time.Time
	step     time.Duration
	want     map[synWindow]int64 // consumed
	requests map[synWindow]int64

	// What refused takes asked for, and their number: at most that is booked besides, because a take that another bucket
	// refuses may stay debited where others keep writing.
	kept, keptRequests map[synWindow]int64

	operator *dynamodb.Store // splits and resets buckets
	acting   sync.Mutex
	splits   int
	births   int
	refused  atomic.Int64
	faults   atomic.Int64 // in the readers' calls
	again    atomic.Int64 // records delivered a second time
}

func newBusy(t *testing.T) *busy {
	t.Helper()
	endpoint := dynamotest.Engine(t)
	b := &busy{T: t, client: dynamotest.Client(t, endpoint), table: dynamotest.Table(t), now: evening}
	b.want, b.requests = make(map[synWindow]int64), make(map[synWindow]int64)
	b.kept, b.keptRequests = make(map[synWindow]int64), make(map[synWindow]int64)
	if _, err := dynamodb.Create(t.Context(), b.client, b.table, dynamodb.CreateConfig{}); err != nil {
		t.Fatal(err)
	}
	out, err := b.client.UpdateTable(t.Context(), &sdk.UpdateTableInput{TableName: &b.table, StreamSpecification: &types.StreamSpecification{
		StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages,
	}})
	if err != nil {
		t.Fatal(err)
	}
	b.arn = aws.ToString(out.TableDescription.LatestStreamArn)
	o := b.client.Options()
	b.streams = dynamodbstreams.New(dynamodbstreams.Options{
		BaseEndpoint: o.BaseEndpoint, Region: o.Region, Credentials: o.Credentials, HTTPClient: o.HTTPClient, Retryer: aws.NopRetryer{},
	})
	b.operator = b.open(b.client)
	return b
}

// open opens the table as another process would.
func (b *busy) open(client dynamodb.API) *dynamodb.Store {
	b.Helper()
	s, err := dynamodb.New(dynamodb.Config{Client: client, Table: b.table, CallTimeout: time.Minute, WriteTimeout: time.Minute, Now: func() time.Time {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.now
	}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// read reads the stream in a separate process until it is ended or killed.
func (b *busy) read(batch int) (end, kill func()) {
	client := &lossy{API: b.client, faults: &b.faults}
	s := b.open(client)
	r := &stream.Reader{
		Config: stream.Config{Store: s}, Streams: &forgetful{Streams: b.streams, told: make(map[string][]streamtypes.Record), again: &b.again},
		ARN: b.arn, Poll: 10 * time.Millisecond, Batch: batch,
	}
	ctx, stop := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	return func() { stop(); wg.Wait() }, func() { client.dead.Store(true); stop(); wg.Wait() }
}

// lossy is a reader's connection to the table. The outcome of some transactions is unknown, and once the process is dead
// nothing takes effect.
type lossy struct {
	dynamodb.API

	dead   atomic.Bool
	made   atomic.Int64
	faults *atomic.Int64
}

func (l *lossy) TransactWriteItems(ctx context.Context, in *sdk.TransactWriteItemsInput, fns ...func(*sdk.Options)) (*sdk.TransactWriteItemsOutput, error) {
	n := l.made.Add(1)
	if l.dead.Load() || n%8 == 1 {
		l.faults.Add(1)
		return nil, errCrash
	}
	out, err := l.API.TransactWriteItems(ctx, in, fns...)
	if l.dead.Load() || n%8 == 4 {
		l.faults.Add(1)
		return nil, errCrash
	}
	return out, err
}

func (l *lossy) UpdateItem(ctx context.Context, in *sdk.UpdateItemInput, fns ...func(*sdk.Options)) (*sdk.UpdateItemOutput, error) {
	if l.dead.Load() { // it neither gives up its leases nor retries for long
		return nil, context.Canceled
	}
	return l.API.UpdateItem(ctx, in, fns...)
}

// forgetful is a stream that sometimes delivers again what it has delivered.
type forgetful struct {
	stream.Streams

	mu    sync.Mutex
	told  map[string][]streamtypes.Record // the records before each iterator
	asked int
	again *atomic.Int64
}

func (f *forgetful) GetRecords(ctx context.Context, in *dynamodbstreams.GetRecordsInput, fns ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error) {
	out, err := f.Streams.GetRecords(ctx, in, fns...)
	if err != nil {
		return out, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.told[aws.ToString(in.ShardIterator)]
	delete(f.told, aws.ToString(in.ShardIterator))
	if len(out.Records) > 0 && out.NextShardIterator != nil {
		f.told[*out.NextShardIterator] = out.Records
	}
	if len(before) == 0 {
		return out, nil
	}
	if f.asked++; f.asked%5 == 1 {
		f.again.Add(int64(len(before)))
		out.Records = append(before[:len(before):len(before)], out.Records...)
	}
	return out, nil
}

func (b *busy) tick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(b.step)
}

// year is a limit that does not refill while the test runs, so that undone debits are returned in full.
func year(tokens int64) *store.Limit {
	return &store.Limit{Name: "tpm", Amount: 1, Period: 366 * 24 * time.Hour, Burst: 1000 * tokens}
}

var (
	ample = &store.Limit{Name: "tpm", Amount: 1e9, Period: time.Minute, Burst: 1e9}
	slow  = year(1e9)
	tight = year(3)
)

func one(entity string, l *store.Limit, amount int64) store.Debit {
	return store.Debit{Bucket: store.Bucket{Namespace: "n", Entity: entity, Resource: "r"}, Charges: []store.Charge{{Limit: l, Amount: amount}}}
}

// hour makes callers debit until the given number of debits was requested, and returns once all are settled.
func (b *busy) hour(from, debits int) {
	deciders := []*dynamodb.Store{b.open(b.client), b.open(b.client)}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range b.callers {
		wg.Go(func() {
			for i := int(next.Add(1)); i <= debits && !b.Failed(); i = int(next.Add(1)) {
				b.tick()
				b.debit(deciders[i/3%2], from+i)
				if each := max(1, debits/4); i%each == 0 {
					b.operate(i / each)
				}
			}
		})
	}
	wg.Wait()
	for _, s := range deciders {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}
}

// debit makes one debit of one of three kinds: on buckets that are split, reset and deleted, on buckets that are split
// and get returns, and on children whose parents refuse most.
func (b *busy) debit(s *dynamodb.Store, i int) {
	amount := int64(1 + i%50_000)
	debits := []store.Debit{one(fmt.Sprint("plain-", i%9), ample, amount)}
	switch {
	case i%b.chains == 0:
		debits = []store.Debit{one(fmt.Sprint("child-", i/b.chains%5), slow, 1000), one(fmt.Sprint("parent-", i/b.chains/8), tight, 1000)}
	case i%8 == 1:
		debits = []store.Debit{one(fmt.Sprint("steady-", i%5), slow, amount)}
	}
	out, err := s.Take(b.Context(), store.Take{Debits: debits})
	if err != nil {
		b.Error(err)
		return
	}
	if !out.Allowed {
		if len(debits) == 1 {
			b.Errorf("debit %d was refused", i)
		}
		b.refused.Add(1)
		b.count(b.kept, out.At, &debits[0].Bucket, debits[0].Charges[0].Amount)
		b.count(b.keptRequests, out.At, &debits[0].Bucket, 1)
		return
	}
	for j := range debits {
		b.count(b.want, out.At, &debits[j].Bucket, debits[j].Charges[0].Amount)
		b.count(b.requests, out.At, &debits[j].Bucket, 1)
	}
	if i%8 == 1 && i%3 == 0 {
		back := one(debits[0].Bucket.Entity, slow, -amount/2)
		out, err := s.Settle(b.Context(), store.Settle{Debits: []store.Debit{back}})
		if err != nil {
			b.Error(err)
			return
		}
		b.count(b.want, out.At, &back.Bucket, -amount/2)
	}
}

// count records what was admitted, in all windows to which it belongs.
func (b *busy) count(in map[synWindow]int64, at time.Time, k *store.Bucket, amount int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at = at.UTC()
	day := time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC)
	for w, start := range map[store.Window]time.Time{
		store.Hourly: at.Truncate(time.Hour), store.Daily: day, store.Monthly: day.AddDate(0, 0, 1-day.Day()),
	} {
		in[synWindow{store.OfBucket, k.Entity, w, start.Unix()}] += amount
		in[synWindow{store.OfResource, k.Resource, w, start.Unix()}] += amount
		in[synWindow{store.OfNamespace, "", w, start.Unix()}] += amount
		in[synWindow{store.OfStore, "", w, start.Unix()}] += amount
	}
}

// operate splits buckets, resets others and deletes items while they are debited.
func (b *busy) operate(i int) {
	b.acting.Lock()
	defer b.acting.Unlock()
	bucket := func(kind string, n int) store.Bucket {
		return one(fmt.Sprint(kind, n), slow, 0).Bucket
	}
	for _, k := range []store.Bucket{bucket("plain-", i%2), bucket("steady-", i%5), bucket("child-", i%5)} {
		n, err := b.operator.Split(b.Context(), k, 2<<(i%3))
		if err != nil {
			b.Error(err)
		}
		if n > 1 {
			b.splits++
		}
	}
	if err := b.operator.Forget(b.Context(), bucket("plain-", i%2), bucket("plain-", 2+i%3)); err != nil {
		b.Error(err)
	}
	pk := fmt.Sprint("n/BUCKET#plain-", 5+i%4, "#r#0") // as if it had expired
	_, err := b.client.DeleteItem(b.Context(), &sdk.DeleteItemInput{TableName: &b.table, Key: map[string]types.AttributeValue{
		"PK": &types.AttributeValueMemberS{Value: pk}, "SK": &types.AttributeValueMemberS{Value: "#STATE"},
	}})
	if err != nil {
		b.Error(err)
	}
	b.births += 3
}
