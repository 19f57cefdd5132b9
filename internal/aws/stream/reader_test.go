package stream_test

import (
	"os"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// TestReader compares what readers book from a real stream with what stores admitted, in total and window by window:
// debits by many callers that share writes, across the end of a day and of a month, with shards that split, items that
// are recreated, takes that another bucket refuses, returned tokens, a reader that dies holding its leases, records that
// arrive twice, and transactions with unknown outcome.
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

	// Reading everything again changes nothing. What is debited now is booked after that.
	end()
	if leases := b.forgetLeases(); len(leases) != 1 {
		t.Fatalf("the engine's stream has %d shards", len(leases))
	}
	end, _ = b.read(batch)
	defer end()
	b.hour(debits, 8)
	b.awaitBooked()
}

// until waits until a condition holds, and fails the test if that takes too long.
func (b *busy) until(so func() bool) bool {
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline) && !b.Failed(); { // real time: another process provides the stream
		if so() {
			return true
		}
		time.Sleep(20 * time.Millisecond) // real time: another process provides the stream
	}
	return false
}

// awaitBooked waits until what was admitted is booked: exactly, but for refused takes that could not be undone.
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
		return refused() == 7 && isRight(b.booked(&got, &requests), b.want, b.kept) && isRight(requests, b.requests, b.keptRequests)
	}) {
		return
	}
	b.booked(&got, &requests)
	b.Errorf("%d refused", refused())
	report(b.T, got, b.want)
	b.Error("requests:")
	report(b.T, requests, b.requests)
}

// isRight reports whether at least what is wanted is booked in each window, and at most what refused takes kept besides.
func isRight(got, want, kept map[synWindow]int64) bool {
	for w := range want {
		if got[w] < want[w] {
			return false
		}
	}
	for w, n := range got {
		most := want[w]
		for k, n := range kept { // in which hour is not known
			if k.of == w.of && k.id == w.id && k.w == store.Monthly {
				most += n
			}
		}
		if n > most {
			return false
		}
	}
	return true
}

// booked reads the consumption of tpm and the number of requests counted.
func (b *busy) booked(got, requests *map[synWindow]int64) map[synWindow]int64 {
	b.Helper()
	*got, *requests = booked(b, b.operator), figures(b, b.operator, "", func(f *store.LimitFigures) int64 { return f.Requests })
	return *got
}

// forgetLeases removes all read positions of the stream, and returns what they were.
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
