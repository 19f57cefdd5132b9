package memory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// Config.MaxUsage bounds the windows of usage, however many names are invented in an hour. Who was counted before still
// is, and so is everybody once the hour is over.
func TestUsageOfInventedNames(t *testing.T) {
	t.Parallel()
	const most, names = 2000, 3000
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	st := memory.New(&memory.Config{Now: func() time.Time { return now }, MaxUsage: most})
	t.Cleanup(func() { _ = st.Close() })
	lim := &store.Limit{Name: "rps", Amount: 10_000, Period: time.Second, Burst: 1000}
	take := func(entity string) {
		t.Helper()
		_, err := st.Take(t.Context(), store.Take{Debits: []store.Debit{{
			Bucket:  store.Bucket{Namespace: "default", Entity: entity, Resource: entity},
			Charges: []store.Charge{{Limit: lim, Amount: 1000}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	windows := func(of store.UsageOf, id string) (n int) {
		t.Helper()
		q := store.UsageQuery{Namespace: "default", Of: of, ID: id, From: now.Add(-time.Hour), To: now.Add(time.Hour)}
		for _, q.Window = range store.Windows {
			for q.After = ""; ; {
				page, err := st.Usage(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				n += len(page.Records)
				if q.After = page.Next; q.After == "" {
					break
				}
			}
		}
		return n
	}
	counted := func(entity string) {
		t.Helper()
		take(entity)
		now = now.Add(5 * time.Second) // usage follows within seconds
		if n := windows(store.OfBucket, entity); n != 3 {
			t.Errorf("%d windows of %s", n, entity)
		}
	}
	counted("alice")
	for i := range names {
		take(fmt.Sprint("invented", i))
	}
	now = now.Add(5 * time.Second)
	if n := windows(store.OfBucket, "") + windows(store.OfResource, ""); n < most/4 || n > most {
		t.Errorf("%d windows, of at most %d", n, most)
	}
	counted("alice")
	now = now.AddDate(0, 1, 0)
	counted("bob")
}
