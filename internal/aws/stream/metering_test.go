package stream_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/weirlimits/weir/internal/aws/stream"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// usage returns what was consumed of a limit in all windows of a query, or its error.
func (st *stage) usage(t *testing.T, q store.UsageQuery) (sum int64, err error) {
	t.Helper()
	q.Namespace, q.From, q.To = "n", evening.AddDate(0, -2, 0), evening.AddDate(0, 2, 0)
	page, err := st.store.Usage(t.Context(), q)
	for _, r := range page.Records {
		for i := range r.Counts {
			if r.Counts[i].Limit == "tpm" {
				sum += r.Counts[i].Consumed()
			}
		}
	}
	return sum, err
}

// book books the latest records as a function does that was just started.
func (st *stage) book(t *testing.T, m dynamodb.Metering) {
	t.Helper()
	handle := stream.Handler(stream.Config{Store: st.store, Metering: m})
	resp, err := handle(t.Context(), events.DynamoDBEvent{Records: st.taken()})
	if err != nil || len(resp.BatchItemFailures) > 0 {
		t.Fatalf("%+v, error %v", resp, err)
	}
}

// The windows that are chosen, and no others, are booked, for half the writes. A query for the others fails and names
// the flag. When they are chosen again, they begin with what is debited from then on.
func TestWindows(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	st.book(t, dynamodb.Metering{})
	written := func(m dynamodb.Metering, amount int64) float64 {
		st.take(t, alice, bounty, amount)
		before := st.fake.Capacity().Write
		st.book(t, m)
		return st.fake.Capacity().Write - before
	}
	days := dynamodb.Metering{Windows: []store.Window{store.Daily}}
	written(days, 1000)
	few := written(days, 500)
	for window, want := range map[store.Window]int64{store.Hourly: 0, store.Daily: 1500, store.Monthly: 0} {
		for _, q := range []store.UsageQuery{
			{Of: store.OfBucket, ID: "alice"}, {Of: store.OfResource, ID: "api"}, {Of: store.OfNamespace},
		} {
			q.Window = window
			got, err := st.usage(t, q)
			if got != want || errors.Is(err, store.ErrNoUsage) != (want == 0) {
				t.Errorf("%s %c: %d, %v; want %d", window, q.Of, got, err, want)
			}
			if want == 0 && (err == nil || !strings.Contains(err.Error(), "--windows")) {
				t.Errorf("%s: %v", window, err)
			}
		}
	}
	written(dynamodb.Metering{}, 40)
	all := written(dynamodb.Metering{}, 2)
	for window, want := range map[store.Window]int64{store.Hourly: 42, store.Daily: 1542, store.Monthly: 42} {
		if got, err := st.usage(t, store.UsageQuery{Of: store.OfBucket, ID: "alice", Window: window}); got != want || err != nil {
			t.Errorf("%s: %d, %v; want %d", window, got, err, want)
		}
	}
	// The account, and a window for each of bucket, resource, namespace and store, at two units each; one for a start.
	if few != 1+2*(1+4) || all != 1+2*(1+3*4) {
		t.Errorf("%g and %g write units", few, all)
	}
}

// Resources that are left out have no windows and take no writes. When they are booked again, what was debited before
// does not count, whether a bucket was written while they were left out or is new, and everything since then does.
func TestWithout(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	health := store.Bucket{Namespace: "n", Entity: "alice", Resource: "health"}
	fresh := store.Bucket{Namespace: "n", Entity: "bob", Resource: "health"}
	of := func(resource string) store.UsageQuery {
		return store.UsageQuery{Of: store.OfResource, ID: resource, Window: store.Daily}
	}
	without := dynamodb.Metering{Without: []string{"health"}}
	st.book(t, without)
	st.take(t, health, bounty, 1000)
	before := st.fake.Capacity().Write
	st.book(t, without)
	// The writes of a start: what is left out is written down once.
	if wrote := st.fake.Capacity().Write - before; wrote > 1 {
		t.Errorf("%g units for what is left out", wrote)
	}
	st.take(t, alice, bounty, 7)
	st.book(t, without)
	if got, err := st.usage(t, of("api")); got != 7 || err != nil {
		t.Errorf("booked %d, %v", got, err)
	}
	if _, err := st.usage(t, of("health")); !errors.Is(err, store.ErrNoUsage) || !strings.Contains(err.Error(), "--without") {
		t.Errorf("left out: %v", err)
	}

	st.clock.Advance(10 * time.Minute)
	st.book(t, dynamodb.Metering{}) // from now on
	st.clock.Advance(time.Minute)
	var both []events.DynamoDBEventRecord
	st.take(t, health, bounty, 20)
	st.take(t, fresh, bounty, 3)
	both = append(both, st.taken()...)
	for range 2 { // also if it comes twice
		st.records = slices.Clone(both)
		st.book(t, dynamodb.Metering{})
	}
	st.clock.Advance(30 * time.Minute)
	st.take(t, health, bounty, 100)
	st.book(t, dynamodb.Metering{})
	if got, err := st.usage(t, of("health")); got != 123 || err != nil {
		t.Errorf("booked again: %d, %v; want 123", got, err)
	}
}
