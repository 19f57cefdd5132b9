package aggregate_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"github.com/weirlimits/weir/internal/aggregate"
	"github.com/weirlimits/weir/internal/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// streams returns a table of the engine with a stream, and a client of its stream.
func streams(t *testing.T) (client *sdk.Client, name, arn string, of *dynamodbstreams.Client) {
	t.Helper()
	endpoint := dynamotest.Engine(t)
	client, name = dynamotest.Client(t, endpoint), dynamotest.Table(t)
	if _, err := dynamodb.Create(t.Context(), client, name, dynamodb.CreateConfig{}); err != nil {
		t.Fatal(err)
	}
	out, err := client.UpdateTable(t.Context(), &sdk.UpdateTableInput{TableName: &name, StreamSpecification: &types.StreamSpecification{
		StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages,
	}})
	if err != nil {
		t.Fatal(err)
	}
	arn = aws.ToString(out.TableDescription.LatestStreamArn)
	o := client.Options()
	return client, name, arn, dynamodbstreams.New(dynamodbstreams.Options{
		BaseEndpoint: o.BaseEndpoint, Region: o.Region, Credentials: o.Credentials, HTTPClient: o.HTTPClient, Retryer: aws.NopRetryer{},
	})
}

// TestReader holds what readers book of a real stream against what stores admitted: with shards that split, buckets that
// are reset, a reader that dies, and another beside it from the beginning.
func TestReader(t *testing.T) {
	t.Parallel()
	client, name, arn, of := streams(t)
	var mu sync.Mutex
	now := evening
	open := func() *dynamodb.Store {
		s, err := dynamodb.New(dynamodb.Config{Client: client, Table: name, CallTimeout: time.Minute, WriteTimeout: time.Minute, Now: func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	reader := func() (*dynamodb.Store, func()) {
		s := open()
		r := &aggregate.Reader{
			Config: aggregate.Config{Store: s}, Streams: of, ARN: arn, Poll: 10 * time.Millisecond, Batch: 50,
		}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		return s, func() { stop(); wg.Wait() }
	}
	read, kill := reader()
	_, end := reader()
	defer end()

	want := make(map[synWindow]int64)
	deciders := []*dynamodb.Store{open(), open()}
	limit := &store.Limit{Name: "tpm", Amount: 1e9, Period: time.Minute, Burst: 1e9}
	const debits = 600
	for i := range debits {
		mu.Lock()
		now = now.Add(10 * time.Second) // past midnight
		at := now
		mu.Unlock()
		b := store.Bucket{Namespace: "n", Entity: []string{"a", "b", "c"}[i%3], Resource: "r"}
		d := deciders[i/3%2]
		out, err := d.Take(t.Context(), store.Take{Debits: []store.Debit{{Bucket: b, Charges: []store.Charge{{Limit: limit, Amount: int64(i + 1)}}}}})
		if err != nil || !out.Allowed {
			t.Fatal(out, err)
		}
		for w, layout := range map[store.Window]time.Duration{store.Hourly: time.Hour} {
			want[synWindow{store.OfBucket, b.Entity, w, at.Truncate(layout).Unix()}] += int64(i + 1)
			want[synWindow{store.OfNamespace, "", w, at.Truncate(layout).Unix()}] += int64(i + 1)
		}
		switch i {
		case 90, 120:
			if ok, err := d.SplitShard(t.Context(), store.Bucket{Namespace: "n", Entity: "a", Resource: "r"}, 0, 1+(i-90)/30); err != nil || !ok {
				t.Errorf("not split: %v", err)
			}
		case 200, 260:
			if err := d.Forget(t.Context(), store.Bucket{Namespace: "n", Entity: "b", Resource: "r"}, store.Bucket{Namespace: "n", Entity: "a", Resource: "r"}); err != nil {
				t.Fatal(err)
			}
		case 300:
			kill()
		case 400:
			err := d.Count(t.Context(), store.Reading{Bucket: b, Source: "p", ID: 1, At: at, Counts: []store.LimitFigures{{Figures: store.Figures{Refused: 7}}}})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	var got map[synWindow]int64
	var refused int64
	for deadline := time.Now().Add(2 * time.Minute); ; { // real time: the stream is another process's
		got, refused = make(map[synWindow]int64), 0
		for _, of := range []store.UsageOf{store.OfBucket, store.OfNamespace} {
			page, err := read.Usage(t.Context(), store.UsageQuery{
				Namespace: "n", Of: of, Window: store.Hourly, From: evening.AddDate(0, 0, -1), To: evening.AddDate(0, 0, 2), Max: 1000,
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page.Records {
				for i := range r.Counts {
					refused += r.Counts[i].Refused
					if r.Counts[i].Limit == "tpm" {
						got[synWindow{of, r.ID, store.Hourly, r.Start.Unix()}] += r.Counts[i].Consumed()
					}
				}
			}
		}
		if maps.Equal(got, want) && refused == 14 {
			return
		}
		if time.Now().After(deadline) {
			break
		}
		time.Sleep(20 * time.Millisecond) // real time: the stream is another process's
	}
	t.Errorf("%d refused", refused)
	report(t, got, want)
}
