package stream_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/aws/stream"
	"github.com/weirlimits/weir/internal/testkit/dynamotest/sizes"
	"github.com/weirlimits/weir/store"
)

// Requests that bring limits of ever new names do not make windows so large that nothing can be booked any more: neither
// those of the bucket nor those of all namespaces, which are written with everybody's usage. All tokens are booked, some
// without their limit.
func TestInventedNames(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	handles := []handler{stream.Handler(stream.Config{Store: st.store}), stream.Handler(stream.Config{Store: st.store})}
	st.deliver(t, handles[0], nil)
	const takes = 60
	for i := range takes {
		d := store.Debit{Bucket: store.Bucket{Namespace: "m", Entity: fmt.Sprint(min(i, takes/2)), Resource: "api"}}
		for n := range store.MaxOverrides {
			d.Charges = append(d.Charges, store.Charge{Amount: 1000, Limit: &store.Limit{
				Name: fmt.Sprintf("%0*d", store.MaxID, i*store.MaxOverrides+n), Amount: 1000, Period: time.Second, Burst: 1000, Override: true,
			}})
		}
		if out, err := st.store.Take(t.Context(), store.Take{Debits: []store.Debit{d}}); err != nil || !out.Allowed {
			t.Fatal(out, err)
		}
		st.clock.Advance(time.Second)
		if failed := st.deliver(t, handles[i%2], st.taken()).BatchItemFailures; len(failed) > 0 {
			t.Fatalf("%d records failed", len(failed))
		}
	}
	for _, it := range st.fake.Items(table) {
		if n := sizes.Item(it); n > 64<<10 && strings.Contains(it["PK"].(*types.AttributeValueMemberS).Value, "/USAGE#") {
			t.Errorf("%v has %d bytes", it["PK"], n)
		}
	}
	st.take(t, alice, bounty, 5000)
	st.deliver(t, handles[0], st.taken())
	page, err := st.store.Usage(t.Context(), store.UsageQuery{
		Of: store.OfStore, Window: store.Monthly, From: evening.AddDate(-1, 0, 0), To: evening.AddDate(1, 0, 0),
	})
	if err != nil || len(page.Records) != 1 {
		t.Fatal(page, err)
	}
	var sum, rest int64
	for _, c := range page.Records[0].Counts {
		sum += c.Debited
		if c.Limit == "_default_" {
			rest = c.Debited
		}
	}
	if want := int64(1000*takes*store.MaxOverrides + 5000); sum != want || rest == 0 || rest == want {
		t.Errorf("%d of %d are booked, %d without their limit", sum, want, rest)
	}
	if got := st.hours(t, "alice", "tpm"); len(got) != 1 || got[0] != 5000 {
		t.Errorf("%v are booked, want 5000", got)
	}
}
