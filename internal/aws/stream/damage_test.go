package stream_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/weirlimits/weir/internal/aws/stream"
	"github.com/weirlimits/weir/store"
)

func (st *stage) deliver(t *testing.T, handle handler, records []events.DynamoDBEventRecord) events.DynamoDBEventResponse {
	t.Helper()
	resp, err := handle(t.Context(), events.DynamoDBEvent{Records: records})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// remove deletes items whose hash key contains the text, without a record in the stream.
func (st *stage) remove(t *testing.T, text string) {
	t.Helper()
	n := 0
	for _, it := range st.fake.Items(table) {
		if pk := it["PK"].(*types.AttributeValueMemberS).Value; strings.Contains(pk, text) {
			if _, err := st.fake.DeleteItem(t.Context(), &sdk.DeleteItemInput{TableName: new(table), Key: map[string]types.AttributeValue{"PK": it["PK"], "SK": it["SK"]}}); err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	if n == 0 {
		t.Fatalf("no item of %q", text)
	}
	st.taken()
}

// What a bucket counted before usage was kept is never booked, neither when its next write comes hours later nor when
// that write changes no counter.
func TestBeginsLater(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		after   time.Duration
		amounts []int64 // of the later writes
		want    []int64
	}{
		{"in a later hour", 3 * time.Hour, []int64{5}, []int64{5}},
		{"with a write of nothing", 3 * time.Hour, []int64{0, 5}, []int64{5}},
		{"in the same minute", 0, []int64{5}, []int64{5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			st := newStage(t)
			st.take(t, alice, bounty, 1000)
			st.clock.Advance(c.after)
			st.taken()
			handle := stream.Handler(stream.Config{Store: st.store})
			for _, n := range c.amounts {
				st.take(t, alice, bounty, n)
				st.deliver(t, handle, st.taken())
				st.clock.Advance(time.Minute)
			}
			if got := st.hours(t, "alice", "tpm"); !slices.Equal(got, c.want) {
				t.Errorf("hours of %v, want %v", got, c.want)
			}
		})
	}
}

// If the account of a long-period bucket has expired before the bucket expires or is written again, nothing is counted twice.
func TestOutlivesItsAccount(t *testing.T) {
	t.Parallel()
	yearly := &store.Limit{Name: "tpm", Amount: 1000, Period: 365 * 24 * time.Hour, Burst: 1000}
	for name, then := range map[string]func(*testing.T, *stage){
		"forgotten": func(t *testing.T, st *stage) {
			if err := st.store.Forget(t.Context(), alice); err != nil {
				t.Fatal(err)
			}
		},
		"written to twice": func(t *testing.T, st *stage) { st.take(t, alice, yearly, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := newStage(t)
			handle := stream.Handler(stream.Config{Store: st.store})
			st.deliver(t, handle, nil)
			st.take(t, alice, yearly, 900)
			st.deliver(t, handle, st.taken())
			st.clock.Advance(101 * 24 * time.Hour)
			st.remove(t, "/ACCOUNT#")
			then(t, st)
			st.deliver(t, handle, st.taken())
			st.clock.Advance(time.Minute)
			st.take(t, alice, yearly, 7)
			st.deliver(t, handle, st.taken())
			total := int64(0)
			page, err := st.store.Usage(t.Context(), store.UsageQuery{Namespace: "n", Of: store.OfNamespace, Window: store.Monthly, From: evening.AddDate(0, -2, 0), To: evening.AddDate(1, 0, 0)})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page.Records {
				for i := range r.Counts {
					total += r.Counts[i].Debited
				}
			}
			if total != 907 {
				t.Errorf("%d were booked of 907", total)
			}
		})
	}
}

// An account that is corrupt, or that cannot be written, affects only its own bucket.
func TestBadAccount(t *testing.T) {
	t.Parallel()
	bob := store.Bucket{Namespace: "n", Entity: "bob", Resource: "api"}
	for name, spoil := range map[string]func(*testing.T, *stage){
		"damaged": func(t *testing.T, st *stage) {
			for _, it := range st.fake.Items(table) {
				if pk := it["PK"].(*types.AttributeValueMemberS).Value; strings.Contains(pk, "/ACCOUNT#bob#") {
					it["d"] = &types.AttributeValueMemberB{Value: []byte{0xff}}
					if _, err := st.fake.PutItem(t.Context(), &sdk.PutItemInput{TableName: new(table), Item: it}); err != nil {
						t.Fatal(err)
					}
				}
			}
		},
		"invalid": func(_ *testing.T, st *stage) {
			st.fake.Before = func(op string, in any) error {
				if tx, ok := in.(*sdk.TransactWriteItemsInput); ok && op == "TransactWriteItems" {
					for _, w := range tx.TransactItems {
						if w.Put != nil && strings.Contains(w.Put.Item["PK"].(*types.AttributeValueMemberS).Value, "#bob#") {
							return &smithy.GenericAPIError{Code: "ValidationException", Message: "Item size has exceeded the maximum allowed size", Fault: smithy.FaultClient}
						}
					}
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := newStage(t)
			handle := stream.Handler(stream.Config{Store: st.store})
			st.deliver(t, handle, nil)
			st.take(t, alice, bounty, 1)
			st.take(t, bob, bounty, 1)
			st.deliver(t, handle, st.taken())
			spoil(t, st)
			st.taken()
			st.take(t, bob, bounty, 2)
			st.take(t, alice, bounty, 2)
			batch := st.taken()
			resp := st.deliver(t, handle, batch)
			if len(resp.BatchItemFailures) != 1 || resp.BatchItemFailures[0].ItemIdentifier != batch[0].Change.SequenceNumber {
				t.Errorf("failures %v, want that of bob alone", resp.BatchItemFailures)
			}
			if got := st.hours(t, "alice", "tpm"); !slices.Equal(got, []int64{3}) {
				t.Errorf("hours of %v, want 3", got)
			}
		})
	}
}

// A process whose clock is far ahead does not book into the future, and its later records count too.
func TestTallyOfAWrongClock(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	handle := stream.Handler(stream.Config{Store: st.store})
	st.deliver(t, handle, nil)
	tell := func(id uint64, ahead time.Duration) {
		t.Helper()
		r := store.Reading{Bucket: alice, Source: "p", ID: id, At: st.clock.Now().Add(ahead), Counts: []store.LimitFigures{{Limit: "tpm", Figures: store.Figures{Refused: 3}}}}
		if err := st.store.Count(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		st.deliver(t, handle, st.taken())
	}
	tell(1, 300*24*time.Hour)
	tell(2, 0)
	page, err := st.store.Usage(t.Context(), store.UsageQuery{
		Namespace: "n", Of: store.OfBucket, ID: "alice", Window: store.Hourly, From: evening.AddDate(0, 0, -1), To: evening.AddDate(2, 0, 0),
	})
	if err != nil || len(page.Records) != 1 || page.Records[0].Counts[0].Refused != 6 {
		t.Errorf("windows %+v %v, want one of 6", page.Records, err)
	}
}

// An item reduced to its bare key is not a bucket, and causes no error.
func TestBareItem(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	handle := stream.Handler(stream.Config{Store: st.store})
	st.deliver(t, handle, nil)
	st.take(t, alice, bounty, 1)
	for _, it := range st.fake.Items(table) {
		if strings.Contains(it["PK"].(*types.AttributeValueMemberS).Value, "/BUCKET#alice#") {
			bare := map[string]types.AttributeValue{"PK": it["PK"], "SK": it["SK"]}
			if _, err := st.fake.PutItem(t.Context(), &sdk.PutItemInput{TableName: new(table), Item: bare}); err != nil {
				t.Fatal(err)
			}
		}
	}
	st.take(t, alice, bounty, 2)
	if resp := st.deliver(t, handle, st.taken()); len(resp.BatchItemFailures) > 0 {
		t.Errorf("failures %v", resp.BatchItemFailures)
	}
	if got := st.hours(t, "alice", "tpm"); !slices.Equal(got, []int64{3}) {
		t.Errorf("hours of %v, want 3", got)
	}
}

// Reports about buckets that cannot exist are dropped before any call to the table: a key that is too long would fail the
// calls that carry the other reports too.
func TestTallyOfNonsense(t *testing.T) {
	t.Parallel()
	for name, entity := range map[string]string{"too long": strings.Repeat("e", 3000), "no text": "a\xffb"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := newStage(t)
			handle := stream.Handler(stream.Config{Store: st.store})
			st.deliver(t, handle, nil)
			st.taken()
			b := store.Bucket{Namespace: "n", Entity: entity, Resource: "api"}
			if err := st.store.Count(t.Context(), store.Reading{
				Bucket: b, Source: "p", ID: 1, At: evening,
				Counts: []store.LimitFigures{{Limit: "tpm", Figures: store.Figures{Refused: 1}}},
			}); err != nil {
				t.Fatal(err)
			}
			st.take(t, alice, bounty, 3)
			batch := st.taken()
			resp := st.deliver(t, handle, batch)
			if len(resp.BatchItemFailures) != 1 || resp.BatchItemFailures[0].ItemIdentifier != batch[0].Change.SequenceNumber {
				t.Errorf("failures %v, want that of the nonsense", resp.BatchItemFailures)
			}
			if got := st.hours(t, "alice", "tpm"); !slices.Equal(got, []int64{3}) {
				t.Errorf("hours of %v, want 3", got)
			}
		})
	}
}
