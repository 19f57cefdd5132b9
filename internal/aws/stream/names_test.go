package stream_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/aws/stream"
	"github.com/weirlimits/weir/internal/testkit/dynamotest/sizes"
	"github.com/weirlimits/weir/internal/testkit/raced"
	"github.com/weirlimits/weir/store"
)

// invented returns a limit of a request.
func invented(n, size int) *store.Limit {
	return &store.Limit{Name: fmt.Sprintf("%0*d", size, n), Amount: 1000, Period: time.Second, Burst: 1000, Override: true}
}

// figuresOf returns the figures of a namespace's buckets by limit, added up.
func (st *stage) figuresOf(t *testing.T, namespace string, w store.Window) map[string]store.Figures {
	t.Helper()
	page, err := st.store.Usage(t.Context(), store.UsageQuery{
		Namespace: namespace, Of: store.OfBucket, Window: w, From: evening.AddDate(-1, 0, 0), To: evening.AddDate(1, 0, 0),
	})
	if err != nil || len(page.Records) == 0 || page.Next != "" {
		t.Fatal(page, err)
	}
	sums := make(map[string]store.Figures)
	for _, r := range page.Records {
		for _, c := range r.Counts {
			f := sums[c.Limit]
			f.Debited, f.Peak = f.Debited+c.Debited, f.Peak+c.Peak
			sums[c.Limit] = f
		}
	}
	return sums
}

// twoHandlers returns a stage on which usage is kept, and two handlers of its stream.
func twoHandlers(t *testing.T) (st *stage, handles []handler) {
	t.Helper()
	st = newStage(t)
	for range 2 {
		handles = append(handles, stream.Handler(stream.Config{Store: st.store}))
	}
	st.deliver(t, handles[0], nil)
	return st, handles
}

// Requests that bring limits of ever new names do not make windows so large that nothing can be booked any more: neither
// those of the bucket nor those of all namespaces, which are written with everybody's usage. All tokens are booked, some
// without their limit, and these without a peak.
func TestInventedNames(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	st, handles := twoHandlers(t)
	const takes = 60
	for i := range takes {
		d := store.Debit{Bucket: store.Bucket{Namespace: "m", Entity: fmt.Sprint(min(i, takes/2)), Resource: "api"}}
		for n := range store.MaxOverrides {
			d.Charges = append(d.Charges, store.Charge{Amount: 1000, Limit: invented(i*store.MaxOverrides+n, store.MaxID)})
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
	for _, w := range store.Windows {
		if f := st.figuresOf(t, "m", w)["_default_"]; f.Debited == 0 || f.Peak != 0 {
			t.Errorf("%s windows of buckets have %+v without a limit", w, f)
		}
	}
}

// A bucket whose requests bring a limit of a new name now and then fills its windows slowly. Before they are full, they
// name no more limits; and if they are, nothing fails.
func TestFullWindows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ size, unnamed int }{
		{20 << 10, 0},
		{150 << 10, 2}, // the first one shows how large the windows are
		{399<<10 + 512, 3},
	} {
		t.Run(fmt.Sprint(c.size), func(t *testing.T) {
			t.Parallel()
			st := newStage(t)
			handle := stream.Handler(stream.Config{Store: st.store})
			st.deliver(t, handle, nil)
			st.take(t, alice, bounty, 1000)
			st.deliver(t, handle, st.taken())
			st.fill(t, c.size)
			for i := range 3 {
				st.take(t, alice, invented(i, store.MaxID), 1000)
				st.clock.Advance(time.Second)
				if failed := st.deliver(t, handle, st.taken()).BatchItemFailures; len(failed) > 0 {
					t.Errorf("%d records of take %d failed", len(failed), i)
				}
			}
			for _, w := range store.Windows {
				got, named := st.figuresOf(t, "n", w), 0
				for i := range 3 {
					if got[invented(i, store.MaxID).Name].Debited == 1000 {
						named++
					}
				}
				if got["_default_"].Debited != int64(1000*c.unnamed) || named != 3-c.unnamed || got["tpm"].Debited != 1000 {
					t.Errorf("%s windows name %d, and have %+v without a limit, want %d", w, named, got["_default_"], c.unnamed)
				}
			}
		})
	}
}

// fill makes the windows of buckets as large as limits of many names make them.
func (st *stage) fill(t *testing.T, size int) {
	t.Helper()
	filled := 0
	for _, it := range st.fake.Items(table) {
		if !strings.Contains(it["PK"].(*types.AttributeValueMemberS).Value, "/USAGE#") || it["P_tpm"] == nil {
			continue
		}
		for i := 0; sizes.Item(it)+store.MaxID+10 < size; i++ {
			it[fmt.Sprintf("D_%0*x", store.MaxID, 1<<40+i)] = &types.AttributeValueMemberN{Value: "1"}
		}
		it["pad"] = &types.AttributeValueMemberS{Value: strings.Repeat("x", size-sizes.Item(it)-len("pad"))}
		if _, err := st.fake.PutItem(t.Context(), &sdk.PutItemInput{TableName: aws.String(table), Item: it}); err != nil {
			t.Fatal(err)
		}
		filled++
	}
	st.taken()
	if filled != len(store.Windows) {
		t.Fatalf("%d windows are filled", filled)
	}
}

// Limits that a window names stay named, however many they are.
func TestNamedLimitsStay(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	st, handles := twoHandlers(t)
	const takes = 100
	own := *bounty
	own.Name = strings.Repeat("t", store.MaxID)
	for i := range takes {
		out, err := st.store.Take(t.Context(), store.Take{Debits: []store.Debit{{Bucket: alice, Charges: []store.Charge{
			{Limit: &own, Amount: 1000}, {Limit: invented(i, store.MaxID), Amount: 1000},
		}}}})
		if err != nil || !out.Allowed {
			t.Fatal(out, err)
		}
		st.clock.Advance(11 * time.Second) // for longer than ledgers remember what others name
		if failed := st.deliver(t, handles[i%2], st.taken()).BatchItemFailures; len(failed) > 0 {
			t.Fatalf("%d records failed", len(failed))
		}
	}
	for _, w := range store.Windows {
		got := st.figuresOf(t, "n", w)
		if got[own.Name].Debited != 1000*takes || got["_default_"].Debited == 0 {
			t.Errorf("%s windows have %+v of its own limit, %+v without a limit", w, got[own.Name], got["_default_"])
		}
	}
}

// A batch may have more limits of one bucket than a single update of a window can name.
func TestManyNamesAtOnce(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	st := newStage(t)
	handle := stream.Handler(stream.Config{Store: st.store})
	st.deliver(t, handle, nil)
	const takes = 300
	for i := range takes {
		if !st.take(t, alice, invented(i, 5), 1000).Allowed {
			t.Fatal("refused")
		}
		st.clock.Advance(time.Second)
	}
	if failed := st.deliver(t, handle, st.taken()).BatchItemFailures; len(failed) > 0 {
		t.Errorf("%d records failed", len(failed))
	}
	for _, w := range store.Windows {
		sum := int64(0)
		for _, f := range st.figuresOf(t, "n", w) {
			sum += f.Debited
		}
		if sum != 1000*takes {
			t.Errorf("%s windows have %d of %d", w, sum, 1000*takes)
		}
	}
}
