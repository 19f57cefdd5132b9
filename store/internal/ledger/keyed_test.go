package ledger_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/ledger"
)

// All windows of the test histories lie between never and forever.
var (
	never   = time.Date(1960, time.January, 1, 0, 0, 0, 0, time.UTC)
	forever = time.Date(2100, time.January, 1, 0, 0, 0, 0, time.UTC)
)

// family: a is the parent of b, and b of c; d has no parent.
func family(entity store.Key) string { return familyOf[entity.ID] }

var familyOf = map[string]string{"c": "b", "b": "a"}

// ids, too, must not collide with anything.
var ids = []string{"a", "b", "c", "d", "a#b", "a/b", "ttl", "w\x00", ""}

type windowCell struct {
	of      store.UsageOf
	id, sub string
	window  store.Window
	start   time.Time
	limit   string
	figure  ledger.Figure
}

// book adds a history's counts to all windows that they belong to.
func book(want map[windowCell]int64, b store.Bucket, h *history) {
	for c, v := range h.truth {
		at := time.Unix(c.hour*3600, 0).UTC()
		for _, w := range store.Windows {
			k := windowCell{store.OfBucket, b.Entity, b.Resource, w, w.Start(at), c.limit, c.figure}
			if c.figure == ledger.Peak {
				want[k] = max(want[k], v)
				continue
			}
			want[k] += v
			k.of, k.id, k.sub = store.OfResource, b.Resource, ""
			want[k] += v
			k.of, k.id = store.OfNamespace, ""
			want[k] += v
			k.of = store.OfStore
			want[k] += v
			for p := familyOf[b.Entity]; p != ""; p = familyOf[p] {
				k.of, k.id, k.sub = store.OfChildren, p, b.Resource
				want[k] += v
			}
		}
	}
}

// read reads all windows of a book, in pages.
func read(t *rapid.T, tx ledger.Tx) map[windowCell]int64 {
	got := map[windowCell]int64{}
	for _, of := range []store.UsageOf{store.OfBucket, store.OfChildren, store.OfResource, store.OfNamespace, store.OfStore} {
		for _, w := range store.Windows {
			q := store.UsageQuery{Namespace: "n", Of: of, Window: w, From: never, To: forever, Max: rapid.IntRange(1, 5).Draw(t, "page")}
			for {
				page, err := ledger.List(tx, &q)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range page.Records {
					for i := range r.Counts {
						for f := ledger.Requests; f <= ledger.Degraded; f++ {
							if v := *ledger.Field(&r.Counts[i].Figures, f); v != 0 {
								k := windowCell{of, r.ID, r.Sub, r.Window, r.Start, r.Counts[i].Limit, f}
								if got[k] != 0 {
									t.Fatalf("%v comes twice", k)
								}
								got[k] = v
							}
						}
					}
				}
				if q.After = page.Next; q.After == "" {
					break
				}
			}
		}
	}
	return got
}

// TestBookExact compares every window of every rollup with a ledger, for lives of several buckets and processes whose
// readings come in batches, some of them repeatedly.
func TestBookExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := map[windowCell]int64{}
		var lives []*history
		seen := map[string]bool{}
		for range rapid.IntRange(1, 4).Draw(t, "buckets") {
			b := store.Bucket{Namespace: "n", Entity: rapid.SampledFrom(ids[:8]).Draw(t, "entity"), Resource: rapid.SampledFrom(ids[:8]).Draw(t, "resource")}
			source := rapid.SampledFrom([]string{"", "process"}).Draw(t, "source")
			if seen[b.String()] { // the peak of one bucket from two sources would be that of their sum
				continue
			}
			seen[b.String()] = true
			h := live(t, b, source)
			book(want, b, h)
			lives = append(lives, h)
		}
		var mem ledger.Mem
		next := make([]int, len(lives))
		for {
			var batch []ledger.Observation
			left := false
			for i, h := range lives {
				n := rapid.IntRange(0, 3).Draw(t, "come")
				for ; n > 0 && next[i] < len(h.seen); n-- {
					batch = append(batch, h.seen[next[i]])
					next[i]++
				}
				left = left || next[i] < len(h.seen)
				if next[i] > 0 && rapid.Bool().Draw(t, "again") { // as after a crash
					batch = append(batch, h.seen[rapid.IntRange(0, next[i]-1).Draw(t, "which")])
				}
			}
			if err := ledger.Apply(&mem, batch, family); err != nil {
				t.Fatal(err)
			}
			if !left {
				break
			}
		}
		if got := read(t, &mem); !maps.Equal(got, want) {
			for k, v := range want {
				if got[k] != v {
					t.Errorf("%v is %d, want %d", k, got[k], v)
				}
			}
			t.Fatalf("%d windows, want %d", len(got), len(want))
		}
	})
}

func observe(t *testing.T, tx ledger.Tx, entity string, at time.Time) {
	t.Helper()
	o := ledger.Observation{
		Bucket: store.Bucket{Namespace: "n", Entity: entity, Resource: "api"},
		Reading: ledger.Reading{
			ID: uint64(at.Unix()), Minute: ledger.MinuteOf(at),
			Counts: []ledger.Count{{Limit: "rpm", Figure: ledger.Debited, Value: 1000}}, Ended: true,
		},
	}
	if err := ledger.Apply(tx, []ledger.Observation{o}, family); err != nil {
		t.Fatal(err)
	}
}

func starts(t *testing.T, tx ledger.Tx, w store.Window) (starts []string) {
	t.Helper()
	page, err := ledger.List(tx, &store.UsageQuery{Namespace: "n", Of: store.OfBucket, Window: w, From: never, To: forever})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range page.Records {
		starts = append(starts, r.Start.Format("2006-01-02T15"))
	}
	return starts
}

func TestExpire(t *testing.T) {
	t.Parallel()
	var mem ledger.Mem
	now := time.Date(2026, time.November, 21, 13, 30, 0, 0, time.UTC)
	for _, at := range []time.Time{now.AddDate(-3, 0, 0), now.AddDate(0, 0, -91), now.AddDate(0, 0, -90), now} {
		observe(t, &mem, "alice", at)
	}
	for more := true; more; {
		var err error
		if more, err = ledger.Expire(&mem, store.Retention{}, now, false, 1); err != nil {
			t.Fatal(err)
		}
	}
	for w, want := range map[store.Window][]string{
		store.Hourly:  {"2026-08-23T13", "2026-11-21T13"},
		store.Daily:   {"2026-08-22T00", "2026-08-23T00", "2026-11-21T00"},
		store.Monthly: {"2023-11-01T00", "2026-08-01T00", "2026-11-01T00"},
	} {
		if got := starts(t, &mem, w); !slices.Equal(got, want) {
			t.Errorf("%s windows %q, want %q", w, got, want)
		}
	}
	later := now.Add(time.Hour)
	if _, err := ledger.Expire(&mem, store.Retention{}, later, false, 10); err != nil {
		t.Fatal(err)
	}
	before := mem.Len()
	if _, err := ledger.Expire(&mem, store.Retention{}, later, true, 10); err != nil {
		t.Fatal(err)
	}
	if mem.Len() != before-1 {
		t.Errorf("%d keys are left of %d, want the ended account gone", mem.Len(), before)
	}
}

// A window names only so many limits, and counts the others as one, without a peak. All other figures stay the same.
func TestManyNames(t *testing.T) {
	t.Parallel()
	tx := new(ledger.Mem)
	const buckets, limits = 150, 16
	for i := range buckets {
		o := ledger.Observation{
			Bucket:  store.Bucket{Namespace: "n", Entity: fmt.Sprint(i / 100), Resource: "api"},
			Reading: ledger.Reading{ID: uint64(i + 1), Minute: 30_000_000 + int64(2*i/3)},
		}
		for n := range limits {
			o.Counts = append(o.Counts, ledger.Count{Limit: fmt.Sprint(i*limits + n), Figure: ledger.Debited, Value: 5})
		}
		if err := ledger.Apply(tx, []ledger.Observation{o}, family); err != nil {
			t.Fatal(err)
		}
	}
	for _, of := range []store.UsageOf{store.OfBucket, store.OfResource, store.OfNamespace, store.OfStore} {
		for _, w := range store.Windows {
			page, err := ledger.List(tx, &store.UsageQuery{Namespace: "n", Of: of, Window: w, From: never, To: forever})
			if err != nil {
				t.Fatal(err)
			}
			debited := int64(0)
			for _, r := range page.Records {
				if n := len(r.Counts); n > 1001 {
					t.Errorf("a %s window of %c has %d limits", w, of, n)
				}
				for _, c := range r.Counts {
					debited += c.Debited
					if c.Limit == ledger.Others && c.Peak != 0 {
						t.Errorf("a %s window of %c has a peak of others: %d", w, of, c.Peak)
					}
				}
			}
			if debited != 5*buckets*limits {
				t.Errorf("%s windows of %c: %d debited of %d", w, of, debited, 5*buckets*limits)
			}
		}
	}
}

func TestShrink(t *testing.T) {
	t.Parallel()
	var mem ledger.Mem
	now := time.Date(2026, time.November, 21, 13, 30, 0, 0, time.UTC)
	for _, at := range []time.Time{now.AddDate(0, -1, 0), now.Add(-time.Hour), now} {
		observe(t, &mem, "alice", at)
	}
	for _, want := range [][]string{
		{"2026-11-21T12", "2026-11-21T13"}, {"2026-11-21T13"}, {"2026-11-21T13"}, {"2026-11-21T13"},
	} {
		ledger.Shrink(&mem, now)
		if got := starts(t, &mem, store.Hourly); !slices.Equal(got, want) {
			t.Fatalf("hours %q, want %q", got, want)
		}
	}
	if ledger.Shrink(&mem, now) {
		t.Error("what runs was removed")
	}
	if got := starts(t, &mem, store.Monthly); !slices.Equal(got, []string{"2026-11-01T00"}) {
		t.Errorf("months %q", got)
	}
}

func TestForget(t *testing.T) {
	t.Parallel()
	var mem ledger.Mem
	observe(t, &mem, "alice", forever.AddDate(-1, 0, 0))
	for more := true; more; {
		var err error
		if more, err = ledger.Forget(&mem, "n", 1); err != nil {
			t.Fatal(err)
		}
	}
	if mem.Len() != 4 { // the account, and the whole store's hour, day and month
		t.Errorf("%d keys are left, want 4", mem.Len())
	}
}
