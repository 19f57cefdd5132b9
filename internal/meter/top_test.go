package meter_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/store"
)

// lister lists windows in pages of a size, and accepts a cursor only for the query that returned it.
func lister(t *rapid.T, all []store.UsageRecord, size int) meter.List {
	return func(_ context.Context, q store.UsageQuery) (store.UsagePage, error) {
		from := 0
		if q.After != "" {
			at, err := time.Parse(time.RFC3339, q.After[:20])
			if err != nil || !at.Equal(q.From) {
				t.Fatalf("the cursor %q for a period from %s", q.After, q.From)
			}
			from, _ = strconv.Atoi(q.After[20:])
		}
		var page store.UsagePage
		for i := from; i < len(all); i++ {
			if r := all[i]; !r.Start.Before(q.From) && r.Start.Before(q.To) && (q.Sub == "" || r.Sub == q.Sub) {
				if len(page.Records) == min(size, q.Max) {
					page.Next = q.From.Format(time.RFC3339) + strconv.Itoa(i)
					break
				}
				page.Records = append(page.Records, r)
			}
		}
		return page, nil
	}
}

// TestTop compares rankings with those of sums over all windows.
func TestTop(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, time.March, 14, 23, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		var all []store.UsageRecord
		for range rapid.IntRange(0, 60).Draw(t, "windows") {
			all = append(all, store.UsageRecord{
				Start: from.Add(time.Duration(rapid.IntRange(-1, 6).Draw(t, "hour")) * time.Hour),
				ID:    rapid.SampledFrom([]string{"a", "a#b", "a/b", "b", "c", "é"}).Draw(t, "id"),
				Sub:   rapid.SampledFrom([]string{"r", "s", store.Total, store.GroupPrefix + "g"}).Draw(t, "sub"),
				Counts: []store.LimitFigures{
					{Figures: store.Figures{Requests: rapid.Int64Range(1, 9).Draw(t, "requests")}},
					{Limit: "tpm", Figures: store.Figures{Debited: rapid.Int64Range(1, 9).Draw(t, "amount"), Returned: 1}},
				},
			})
		}
		order := func(a, b store.UsageRecord) int {
			return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Sub, b.Sub))
		}
		slices.SortFunc(all, order)
		all = slices.CompactFunc(all, func(a, b store.UsageRecord) bool { return order(a, b) == 0 })
		q := store.UsageQuery{
			Namespace: "n", Of: store.OfBucket, Window: store.Hourly, From: from, To: from.Add(5 * time.Hour),
			Sub: rapid.SampledFrom([]string{"", "s", store.Total}).Draw(t, "only"), Max: rapid.IntRange(1, 7).Draw(t, "max"),
		}
		limit := rapid.SampledFrom([]string{"", "tpm", "none"}).Draw(t, "limit")
		sums := make(map[string]int64)
		for _, r := range all {
			if r.Start.Before(q.From) || !r.Start.Before(q.To) || q.Sub != "" && r.Sub != q.Sub || limit == "none" ||
				q.Sub == "" && store.Aggregate(r.Sub) {
				continue
			}
			if sums[r.ID] += r.Counts[0].Requests; limit == "tpm" {
				sums[r.ID] += r.Counts[1].Consumed() - r.Counts[0].Requests
			}
		}
		want := slices.SortedFunc(maps.Keys(sums), func(a, b string) int {
			return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a, b))
		})
		out := rapid.SampledFrom([]string{"none", "a", "b"}).Draw(t, "left out")
		want = slices.DeleteFunc(want, func(id string) bool { return id == out })
		want = want[:min(q.Max, len(want))]
		leave := func(id string) (bool, error) { return id == out, nil }
		top, err := meter.Top(t.Context(), lister(t, all, rapid.IntRange(1, 8).Draw(t, "page")), q, limit, leave)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range top {
			got = append(got, r.ID)
			n := r.Counts[0].Requests
			if limit == "tpm" {
				n = r.Counts[1].Consumed()
			}
			if n != sums[r.ID] {
				t.Fatalf("%q spent %d, want %d", r.ID, n, sums[r.ID])
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("top %q, want %q", got, want)
		}
	})
}
