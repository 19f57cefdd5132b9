package stream_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/aws/stream"
	"github.com/weirlimits/weir/store"
)

// What overrides have debited is booked, however many there are and however often they give up their places to others,
// on an item that is the whole bucket or a part of it.
func TestOverridesSwept(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("n", 120)
	for _, c := range []struct{ items, overrides, takes int }{
		{1, 40, 200},
		{2, 40, 200},
		{1, 900, 900},
	} {
		t.Run(fmt.Sprintf("%d in %d", c.overrides, c.items), func(t *testing.T) {
			t.Parallel()
			st := newStage(t)
			handle := stream.Handler(stream.Config{Store: st.store})
			st.deliver(t, handle, nil)
			st.take(t, alice, bounty, 1)
			if n, err := st.store.Split(t.Context(), alice, c.items); err != nil || n != c.items {
				t.Fatalf("split into %d: %v", n, err)
			}
			failed := 0
			for i := range c.takes {
				most := int64(1_000_000 + i%c.overrides)
				l := &store.Limit{Name: name, Amount: most, Period: time.Second, Burst: most, Override: true}
				if !st.take(t, alice, l, 3).Allowed {
					t.Fatal("refused")
				}
				st.clock.Advance(100 * time.Millisecond)
				if i%100 == 99 {
					failed += len(st.deliver(t, handle, st.taken()).BatchItemFailures)
				}
			}
			booked := int64(0)
			for _, n := range st.hours(t, "alice", name) {
				booked += n
			}
			if want := int64(3 * c.takes); booked != want || failed > 0 {
				t.Errorf("booked %d of %d, %d records failed", booked, want, failed)
			}
		})
	}
}

// What a process has counted of many buckets whose limits have long names is booked: an item of the table holds only so
// much.
func TestLargeCounts(t *testing.T) {
	t.Parallel()
	const buckets, limits = 100, 10
	st := newStage(t)
	handle := stream.Handler(stream.Config{Store: st.store})
	st.deliver(t, handle, nil)
	name := func(n int) string { return fmt.Sprintf("%0*d", store.MaxID, n) }
	readings := make([]store.Reading, buckets)
	for i := range readings {
		r := &readings[i]
		*r = store.Reading{Bucket: alice, Source: "p", ID: 1, At: st.clock.Now()}
		r.Bucket.Entity = fmt.Sprint(i)
		for n := range limits {
			r.Counts = append(r.Counts, store.LimitFigures{Limit: name(n), Figures: store.Figures{Refused: 1, RefusedTokens: 5000}})
		}
	}
	if err := st.store.Count(t.Context(), readings...); err != nil {
		t.Fatal(err)
	}
	if failed := st.deliver(t, handle, st.taken()).BatchItemFailures; len(failed) > 0 {
		t.Errorf("%d records failed", len(failed))
	}
	got := figures(t, st.store, name(7), func(f *store.LimitFigures) int64 { return f.Refused })
	if n := got[synWindow{store.OfNamespace, "", store.Daily, store.Daily.Start(evening).Unix()}]; n != buckets {
		t.Errorf("%d of %d refusals are booked", n, buckets)
	}
}
