package stream_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/aws/stream"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/storetest"
)

// stage is a table in memory, and its stream.
type stage struct {
	fake    *dynamotest.Fake
	clock   *storetest.Clock
	records []events.DynamoDBEventRecord
	store   *dynamodb.Store
}

func newStage(t *testing.T) *stage {
	t.Helper()
	st := &stage{clock: storetest.NewClock(evening)}
	st.fake = &dynamotest.Fake{Changed: func(_ string, old, replaced map[string]types.AttributeValue) {
		keys := old
		if keys == nil {
			keys = replaced
		}
		st.records = append(st.records, events.DynamoDBEventRecord{Change: events.DynamoDBStreamRecord{
			SequenceNumber: fmt.Sprintf("%021d", len(st.records)), ApproximateCreationDateTime: events.SecondsEpochTime{Time: st.clock.Now()},
			Keys:     wire(map[string]types.AttributeValue{"PK": keys["PK"], "SK": keys["SK"]}),
			OldImage: wire(old), NewImage: wire(replaced),
		}})
	}}
	st.store = open(t, st.fake, st.clock.Now)
	return st
}

func wire(image map[string]types.AttributeValue) map[string]events.DynamoDBAttributeValue {
	if image == nil {
		return nil
	}
	out := make(map[string]events.DynamoDBAttributeValue)
	for name, v := range image {
		switch v := v.(type) {
		case *types.AttributeValueMemberS:
			out[name] = events.NewStringAttribute(v.Value)
		case *types.AttributeValueMemberN:
			out[name] = events.NewNumberAttribute(v.Value)
		case *types.AttributeValueMemberB:
			out[name] = events.NewBinaryAttribute(v.Value)
		}
	}
	return out
}

// taken returns the records since the previous call.
func (st *stage) taken() []events.DynamoDBEventRecord {
	records := st.records
	st.records = nil
	return records
}

func (st *stage) take(t *testing.T, b store.Bucket, limit *store.Limit, amount int64) store.Outcome {
	t.Helper()
	out, err := st.store.Take(t.Context(), store.Take{Debits: []store.Debit{{Bucket: b, Charges: []store.Charge{{Limit: limit, Amount: amount}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (st *stage) hours(t *testing.T, entity, limit string) (consumed []int64) {
	t.Helper()
	page, err := st.store.Usage(t.Context(), store.UsageQuery{
		Namespace: "n", Of: store.OfBucket, ID: entity, Window: store.Hourly, From: evening.AddDate(0, 0, -3), To: evening.AddDate(0, 0, 9),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range page.Records {
		for i := range r.Counts {
			if r.Counts[i].Limit == limit {
				consumed = append(consumed, r.Counts[i].Consumed())
			}
		}
	}
	return consumed
}

var (
	alice  = store.Bucket{Namespace: "n", Entity: "alice", Resource: "api"}
	bounty = &store.Limit{Name: "tpm", Amount: 1e6, Period: time.Minute, Burst: 1e6}
)

// A bucket that expires, is recreated and is reset counts everything debited from it, each debit in its hour, although
// the batch is redelivered, and redelivered again out of order.
func TestBirths(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	handle := stream.Handler(stream.Config{Store: st.store})
	if _, err := handle(t.Context(), events.DynamoDBEvent{}); err != nil { // usage is kept from now on
		t.Fatal(err)
	}
	st.take(t, alice, bounty, 10)
	st.take(t, alice, bounty, 20)
	st.clock.Advance(80 * time.Hour)
	if st.fake.Sweep(st.clock.Now()) == 0 {
		t.Fatal("nothing expired")
	}
	st.take(t, alice, bounty, 40)
	if err := st.store.Forget(t.Context(), alice); err != nil {
		t.Fatal(err)
	}
	st.take(t, alice, bounty, 80)
	all := st.taken()
	want := []int64{30, 120}
	dice := rand.New(rand.NewPCG(1, 1))
	for i := range 4 {
		if i > 0 {
			dice.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		}
		resp, err := handle(t.Context(), events.DynamoDBEvent{Records: all})
		if err != nil || len(resp.BatchItemFailures) > 0 {
			t.Fatal(resp, err)
		}
		if got := st.hours(t, "alice", "tpm"); !slices.Equal(got, want) {
			t.Errorf("delivery %d: hours of %v, want %v", i, got, want)
		}
	}
}

// An unreadable record fails alone; the next record carries its information.
func TestPoison(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	bob := store.Bucket{Namespace: "n", Entity: "bob", Resource: "api"}
	m := &mapping{handle: stream.Handler(stream.Config{Store: st.store}), batch: 100, retries: 3, dice: rand.New(rand.NewPCG(1, 2))}
	m.deliver(t, []events.DynamoDBEventRecord{{}})
	for range 10 {
		st.take(t, alice, bounty, 1)
		st.take(t, bob, bounty, 2)
	}
	all := st.taken()
	at := slices.IndexFunc(all, func(r events.DynamoDBEventRecord) bool {
		return r.Change.NewImage["wc"] == events.NewNumberAttribute("5")
	})
	poisoned := maps.Clone(all[at].Change.NewImage)
	poisoned["D_tpm"] = events.NewStringAttribute("lots")
	all[at].Change.NewImage = poisoned
	m.deliver(t, all)
	if a, b := st.hours(t, "alice", "tpm"), st.hours(t, "bob", "tpm"); !slices.Equal(a, []int64{10}) || !slices.Equal(b, []int64{20}) {
		t.Errorf("alice %v of 10, bob %v of 20", a, b)
	}
	if !slices.Equal(m.lost, []string{all[at].Change.SequenceNumber}) {
		t.Errorf("lost %q, want the poisoned record alone", m.lost)
	}
}

// A table that was in use before usage was kept starts at zero.
func TestBeginsNow(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	st.take(t, alice, bounty, 1000)
	st.clock.Advance(10 * time.Minute)
	st.taken()
	handle := stream.Handler(stream.Config{Store: st.store})
	st.take(t, alice, bounty, 5)
	if _, err := handle(t.Context(), events.DynamoDBEvent{Records: st.taken()}); err != nil {
		t.Fatal(err)
	}
	if got := st.hours(t, "alice", "tpm"); !slices.Equal(got, []int64{5}) {
		t.Errorf("hours of %v, want 5", got)
	}
}

// An item written at four fifths of one item's maximum rate for two seconds causes a warning, and is split once.
func TestSplitsWhatIsHot(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	var log bytes.Buffer
	handle := stream.Handler(stream.Config{Store: st.store, Log: slog.New(slog.NewTextHandler(&log, nil))})
	hot := func(n int) {
		t.Helper()
		for range n {
			st.take(t, alice, bounty, 1)
			st.clock.Advance(time.Second / time.Duration(n))
		}
	}
	for _, writes := range []int{700, 700, 700, 900} { // writes in each second: not hot for long enough
		hot(writes)
	}
	batch := st.taken()
	if _, err := handle(t.Context(), events.DynamoDBEvent{Records: batch}); err != nil {
		t.Fatal(err)
	}
	if log.Len() > 0 {
		t.Errorf("split by %s", &log)
	}
	other := open(t, st.fake, st.clock.Now) // the writers' own meters would split it as well
	handle = stream.Handler(stream.Config{Store: other, Log: slog.New(slog.NewTextHandler(&log, nil))})
	var rate []events.DynamoDBEventRecord
	for _, r := range batch[len(batch)-1:] { // the same item, 900 times a second for three seconds
		for n := range 4 {
			at, wc := int64(0), int64(0)
			fmt.Sscan(r.Change.NewImage["at"].Number(), &at)
			fmt.Sscan(r.Change.NewImage["wc"].Number(), &wc)
			image := maps.Clone(r.Change.NewImage)
			image["at"] = events.NewNumberAttribute(fmt.Sprint(at + int64(n)*1e9))
			image["wc"] = events.NewNumberAttribute(fmt.Sprint(wc + int64(n)*900))
			r.Change.OldImage, r.Change.NewImage = nil, image
			rate = append(rate, r)
		}
	}
	for range 2 {
		if _, err := handle(t.Context(), events.DynamoDBEvent{Records: rate}); err != nil {
			t.Fatal(err)
		}
	}
	shards := 0
	for _, it := range st.fake.Items(table) {
		if pk, ok := it["PK"].(*types.AttributeValueMemberS); ok && strings.HasPrefix(pk.Value, "n/BUCKET#alice#api#") {
			shards++
		}
	}
	if n := strings.Count(log.String(), "hot bucket"); shards != 2 || n == 0 || !strings.Contains(log.String(), "split=true") {
		t.Errorf("%d shards, log %s", shards, &log)
	}
}

// The original aggregator refills a bucket before the batch's consumption exhausts what was last written, because its
// fast write compares with tokens that only a slow write or the aggregator adds. Here the same traffic, 10 requests a
// second under a limit that issues as many, is admitted with one write each: no refusals, no reads, and no other writer
// to the bucket.
func TestNoDebitWaitsForARefill(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	limit := &store.Limit{Name: "rps", Amount: 10_000, Period: time.Second, Burst: 20_000}
	st.take(t, alice, limit, 20_000) // everything available
	st.clock.Advance(time.Second)
	before := st.fake.Calls()
	const requests = 2000
	for range requests {
		if out := st.take(t, alice, limit, 1000); !out.Allowed {
			t.Fatal("refused")
		}
		st.clock.Advance(100 * time.Millisecond)
	}
	after := st.fake.Calls()
	for op, n := range after {
		after[op] = n - before[op]
	}
	maps.DeleteFunc(after, func(_ string, n int) bool { return n == 0 })
	if !maps.Equal(after, map[string]int{"UpdateItem": requests}) {
		t.Errorf("calls %v, want %d writes", after, requests)
	}
}
