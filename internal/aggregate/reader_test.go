package aggregate_test

import (
	"maps"
	"os"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// TestReader holds what readers book of a real stream against what stores admitted, in total and window by window: debits of
// many callers that share writes, over the end of a day and of a month, with shards that split, items that are born again,
// takes that another bucket refuses, tokens that are given back, a reader that dies with its leases, records that come
// twice, and transactions of which it is not known whether they happened.
func TestReader(t *testing.T) {
	t.Parallel()
	b := newBusy(t)
	debits, batch := 400, 50
	b.callers, b.chains = 48, 8
	if os.Getenv("WEIR_MILLION") != "" {
		debits, batch = 100_000, 2000
		b.callers, b.chains = 512, 48
	}
	_, kill := b.read(batch)
	end, _ := b.read(batch)
	defer end()
	const hours = 4
	b.step = 12 * time.Minute / time.Duration(debits/hours)
	began := time.Now()
	for h := range hours {
		b.hour(h*debits/hours, debits/hours)
		if h == 1 {
			kill()
		}
		b.mu.Lock()
		b.now = b.now.Truncate(time.Hour).Add(time.Hour)
		b.mu.Unlock()
	}
	counted := store.Reading{Bucket: one("plain-0", ample, 0).Bucket, Source: "p", ID: 1, At: b.now, Counts: []store.LimitFigures{{Limit: "tpm", Figures: store.Figures{Refused: 7}}}}
	if err := b.operator.Count(t.Context(), counted); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	b.awaitBooked()
	undone := figures(t, b.operator, "tpm", func(f *store.LimitFigures) int64 { return f.Returned })
	if undone[synWindow{store.OfBucket, "child-0", store.Monthly, evening.AddDate(0, 0, -30).Truncate(24 * time.Hour).Unix()}] == 0 || b.splits == 0 || b.births == 0 || b.refused.Load() == 0 || b.faults.Load() == 0 || b.again.Load() == 0 {
		t.Errorf("%d splits, %d births, %d refused, %d faults, %d records twice: nothing was put to the test",
			b.splits, b.births, b.refused.Load(), b.faults.Load(), b.again.Load())
	}
	t.Logf("%d debits in %v, booked after %v: %d splits, %d births, %d refused, %d faults, %d records twice",
		debits, took, time.Since(began), b.splits, b.births, b.refused.Load(), b.faults.Load(), b.again.Load())

	// Read all over again, it is what it was.
	end()
	leases := b.forgetLeases()
	end, _ = b.read(batch)
	defer end()
	b.until(func() bool {
		now, err := b.operator.StreamLeases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for id, l := range leases {
			if l.After != "" && (now[id].After == "" || before(now[id].After, l.After)) {
				return false
			}
		}
		return true
	})
	b.awaitBooked()
}

// before reports whether one sequence number comes before another.
func before(a, b string) bool { return len(a) < len(b) || len(a) == len(b) && a < b }

// until waits until something is so, or a test has no time for it.
func (b *busy) until(so func() bool) bool {
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline) && !b.Failed(); { // real time: the stream is another process's
		if so() {
			return true
		}
		time.Sleep(20 * time.Millisecond) // real time: the stream is another process's
	}
	return false
}

// awaitBooked waits until all that was admitted is booked, and nothing else.
func (b *busy) awaitBooked() {
	b.Helper()
	var got, requests map[synWindow]int64
	refused := func() (n int64) {
		q := store.UsageQuery{Namespace: "n", Of: store.OfNamespace, Window: store.Monthly, From: evening.AddDate(-1, 0, 0), To: evening.AddDate(1, 0, 0)}
		page, err := b.operator.Usage(b.Context(), q)
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range page.Records {
			for i := range r.Counts {
				n += r.Counts[i].Refused
			}
		}
		return n
	}
	for w, n := range b.want {
		if n == 0 {
			delete(b.want, w)
		}
	}
	if b.until(func() bool {
		return refused() == 7 && maps.Equal(b.booked(&got, &requests), b.want) && maps.Equal(requests, b.requests)
	}) {
		return
	}
	b.booked(&got, &requests)
	b.Errorf("%d refused", refused())
	report(b.T, got, b.want)
	b.Error("requests:")
	report(b.T, requests, b.requests)
}

// booked reads what was consumed of tpm, and how many requests were counted.
func (b *busy) booked(got, requests *map[synWindow]int64) map[synWindow]int64 {
	b.Helper()
	*got, *requests = booked(b, b.operator), figures(b, b.operator, "", func(f *store.LimitFigures) int64 { return f.Requests })
	return *got
}

// forgetLeases has nobody know how far the stream was read, and returns what was known.
func (b *busy) forgetLeases() map[string]dynamodb.StreamLease {
	b.Helper()
	leases, err := b.operator.StreamLeases(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for id := range leases {
		_, err := b.client.DeleteItem(b.Context(), &sdk.DeleteItemInput{TableName: &b.table, Key: map[string]types.AttributeValue{
			"PK": &types.AttributeValueMemberS{Value: "_/STREAM#"}, "SK": &types.AttributeValueMemberS{Value: "#SHARD#" + id},
		}})
		if err != nil {
			b.Fatal(err)
		}
	}
	return leases
}
