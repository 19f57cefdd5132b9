package catalog

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

// usageScenarios are for stores that keep usage; other stores pass them.
func usageScenarios() []Scenario {
	return []Scenario{
		{Name: "by hour, day and month", Need: Caps{HandClock: true}, Run: onUsage(usageWindows)},
		{Name: "across a reset", Run: onUsage(usageReset)},
		{Name: "groups and totals", Run: onUsage(usageAggregates)},
		{Name: "readings of a process", Run: onUsage(usageReadings)},
		{Name: "pages", Run: onUsage(usagePages)},
		{Name: "forged cursors", Run: onUsage(usageForged)},
		{Name: "raises no epoch", Run: onUsage(usageEpoch)},
		{Name: "forgotten", Run: onUsage(usageForgotten)},
		{Name: "mistakes", Run: onUsage(usageMistakes)},
	}
}

// usage returns the figures of one limit in all windows of a type, with their starts.
func usage(e *Env,
	of store.UsageOf, id, sub, limit string, w store.Window,
) (starts []time.Time, figures []store.Figures) {
	e.Helper()
	q := store.UsageQuery{
		Namespace: "n", Of: of, ID: id, Sub: sub, Window: w, From: Noon.AddDate(-100, 0, 0),
		To: Noon.AddDate(100, 0, 0), Max: 1000,
	}
	page, err := e.Store.(store.Usage).Usage(e.Context(), q)
	if err != nil {
		e.Fatalf("usage: %v", err)
	}
	for _, r := range page.Records {
		for _, c := range r.Counts {
			if c.Limit == limit {
				starts, figures = append(starts, r.Start), append(figures, c.Figures)
			}
		}
	}
	return starts, figures
}

// onUsage is [OnStore] for stores that keep usage, unless another process books it.
func onUsage(f func(e *Env, u store.Usage)) func(testing.TB, Harness) {
	return OnStore(func(e *Env) {
		if u, ok := e.Store.(store.Usage); ok && !e.Harness.Caps.LateUsage {
			f(e, u)
		}
	})
}

// wantConsumed checks what was consumed of tpm over all windows, for each type of window.
func wantConsumed(e *Env, of store.UsageOf, id, sub string, tokens int64) {
	e.Helper()
	for _, w := range store.Windows {
		_, figures := usage(e, of, id, sub, "tpm", w)
		got := int64(0)
		for i := range figures {
			got += figures[i].Consumed()
		}
		if got != tokens*Token {
			e.Fatalf("%s usage by %q on %q is %d, want %d", w, id, sub, got, tokens*Token)
		}
	}
}

func usageWindows(e *Env, _ store.Usage) {
	b, l := Bucket("alice", "api"), Still("tpm", 1000)
	leap := time.Date(2028, time.February, 29, 23, 59, 59, 999_999_999, time.UTC)
	for i, at := range []time.Time{leap.Add(-time.Hour), leap, leap.Add(1), leap.AddDate(0, 0, 1)} {
		e.Clock.Set(at)
		e.Allow(Debit(b, Charge(l, int64(1)<<i)))
	}
	e.Settle(Debit(b, Charge(l, -3))) // in the last hour
	day := func(month time.Month, d, h int) time.Time { return time.Date(2028, month, d, h, 0, 0, 0, time.UTC) }
	for w, want := range map[store.Window]struct {
		starts   []time.Time
		consumed []int64
	}{
		store.Hourly:  {[]time.Time{day(2, 29, 22), day(2, 29, 23), day(3, 1, 0), day(3, 1, 23)}, []int64{1, 2, 4, 5}},
		store.Daily:   {[]time.Time{day(2, 29, 0), day(3, 1, 0)}, []int64{3, 9}},
		store.Monthly: {[]time.Time{day(2, 1, 0), day(3, 1, 0)}, []int64{3, 9}},
	} {
		starts, figures := usage(e, store.OfBucket, "alice", "api", "tpm", w)
		var consumed []int64
		for i := range figures {
			consumed = append(consumed, figures[i].Consumed()/Token)
		}
		if !slices.EqualFunc(starts, want.starts, time.Time.Equal) || !slices.Equal(consumed, want.consumed) {
			e.Errorf("%s windows %v of %v, want %v of %v", w, starts, consumed, want.starts, want.consumed)
		}
	}
}

func usageReset(e *Env, _ store.Usage) {
	b, l := Bucket("alice", "api"), Still("tpm", 10)
	for range 3 {
		e.Allow(Debit(b, Charge(l, 10)))
		e.Refuse(Debit(b, Charge(l, 1)))
		if err := e.Store.Forget(e.Context(), b); err != nil {
			e.Fatalf("forget: %v", err)
		}
	}
	e.Allow(Debit(b, Charge(l, 4)))
	wantConsumed(e, store.OfBucket, "alice", "api", 34)
	wantConsumed(e, store.OfResource, "api", "", 34)
	wantConsumed(e, store.OfNamespace, "", "", 34)
	wantConsumed(e, store.OfStore, "", "", 34)
}

// usageAggregates checks that what is charged to a group and the total, too, counts once in sums over resources.
func usageAggregates(e *Env, _ store.Usage) {
	l, resources := Still("tpm", 10), []string{"api", store.GroupPrefix + "apis", store.Total}
	var debits []store.Debit
	for _, resource := range resources {
		debits = append(debits, Debit(Bucket("alice", resource), Charge(l, 4)))
	}
	e.Allow(debits...)
	for _, resource := range resources {
		wantConsumed(e, store.OfBucket, "alice", resource, 4)
		wantConsumed(e, store.OfResource, resource, "", 4)
	}
	wantConsumed(e, store.OfNamespace, "", "", 4)
	wantConsumed(e, store.OfStore, "", "", 4)
}

func usageReadings(e *Env, u store.Usage) {
	reading := func(source string, id uint64, minutes int, refused int64) store.Reading {
		return store.Reading{
			Bucket: Bucket("alice", "api"), Source: source, ID: id, At: Noon.Add(time.Duration(minutes) * time.Minute),
			Counts: []store.LimitFigures{
				{Limit: "tpm", Figures: store.Figures{Refused: refused, RefusedTokens: 7 * refused}},
			},
		}
	}
	come := []store.Reading{
		reading("one", 1, 0, 3), reading("one", 1, 0, 3), reading("two", 1, 1, 5), reading("one", 1, 30, 10),
		reading("one", 1, 0, 3), // repeated, and late
		reading("one", 2, 40, 2), reading("one", 1, 30, 10), reading("two", 1, 1, 4),
	}
	for i := range come {
		if err := u.Count(e.Context(), come[i]); err != nil {
			e.Fatalf("count: %v", err)
		}
	}
	_, hours := usage(e, store.OfBucket, "alice", "api", "tpm", store.Hourly)
	if len(hours) != 2 || hours[0].Refused != 8 || hours[1].Refused != 9 || hours[1].RefusedTokens != 63 {
		e.Fatalf("hours %+v, want 8 and 9 refused", hours)
	}
}

func usagePages(e *Env, u store.Usage) {
	l := Still("tpm", 10)
	var want []string // by start, then ID, then Sub
	for _, month := range []string{"2028-02", "2028-03"} {
		if e.Harness.Caps.HandClock {
			at, _ := time.Parse("2006-01", month)
			e.Clock.Set(at)
		} else if want != nil {
			break
		}
		for _, id := range []string{"a", "a#b", "a/b", "b", "ttl", "é"} {
			for _, sub := range []string{"api", "batch"} {
				e.Allow(Debit(Bucket(id, sub), Charge(l, 1)))
				want = append(want, id+" "+sub)
			}
		}
	}
	for size := 1; size <= len(want)+1; size++ {
		q := store.UsageQuery{
			Namespace: "n", Of: store.OfBucket, Window: store.Monthly, From: Noon.AddDate(-100, 0, 0),
			To: Noon.AddDate(100, 0, 0), Max: size,
		}
		var got []string
		for {
			page, err := u.Usage(e.Context(), q)
			if err != nil {
				e.Fatalf("usage: %v", err)
			}
			for _, r := range page.Records {
				got = append(got, r.ID+" "+r.Sub)
			}
			if q.After = page.Next; q.After == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			e.Fatalf("in pages of %d: %q, want %q", size, got, want)
		}
	}
}

// usageForged checks that a client that may list one entity's usage sees no other's.
func usageForged(e *Env, u store.Usage) {
	l := Still("tpm", 10)
	for _, sub := range []string{"api", "web"} {
		for _, id := range []string{"alice", "bob", "zoe"} {
			e.Allow(Debit(Bucket(id, sub), Charge(l, 1)))
		}
		e.Allow(Debit(store.Bucket{Namespace: "n2", Entity: "foreign-1", Resource: sub}, Charge(l, 1)))
		e.Allow(Debit(store.Bucket{Namespace: "n2", Entity: "foreign-2", Resource: sub}, Charge(l, 1)))
	}
	list := func(q store.UsageQuery) Lister {
		return func(after string) (ids []string, next string, err error) {
			q.Of, q.Window, q.Max, q.After = store.OfBucket, store.Monthly, 1, after
			q.From, q.To = Noon.AddDate(-100, 0, 0), Noon.AddDate(100, 0, 0)
			page, err := u.Usage(e.Context(), q)
			for _, r := range page.Records {
				ids = append(ids, r.ID)
			}
			return ids, page.Next, err
		}
	}
	Forge(e, "bob", list(store.UsageQuery{Namespace: "n", ID: "bob"}))
	Splice(e, list(store.UsageQuery{Namespace: "n"}), list(store.UsageQuery{Namespace: "n2"}))
}

func usageEpoch(e *Env, _ store.Usage) {
	epoch := func() uint64 {
		got, err := e.Store.Get(e.Context(), store.Key{Namespace: "n", Kind: store.KindSystem})
		if err != nil {
			e.Fatalf("get: %v", err)
		}
		return got.Epoch
	}
	before := epoch()
	e.Allow(Debit(Bucket("alice", "api"), Charge(Still("tpm", 10), 1)))
	wantConsumed(e, store.OfNamespace, "", "", 1)
	if after := epoch(); after != before {
		e.Errorf("usage has raised the epoch from %d to %d", before, after)
	}
}

func usageForgotten(e *Env, u store.Usage) {
	l := Still("tpm", 10)
	other := store.Bucket{Namespace: "n2", Entity: "alice", Resource: "api"}
	e.Allow(Debit(Bucket("alice", "api"), Charge(l, 1)))
	e.Allow(Debit(other, Charge(l, 2)))
	wantConsumed(e, store.OfNamespace, "", "", 1)
	if err := u.ForgetUsage(e.Context(), "n2"); err != nil {
		e.Fatalf("forget: %v", err)
	}
	wantConsumed(e, store.OfNamespace, "", "", 1)
	wantConsumed(e, store.OfStore, "", "", 3)
	page, err := u.Usage(e.Context(), store.UsageQuery{
		Namespace: "n2", Of: store.OfBucket, Window: store.Monthly, From: Noon.AddDate(-100, 0, 0),
		To: Noon.AddDate(100, 0, 0),
	})
	if err != nil || len(page.Records) > 0 {
		e.Errorf("forgotten: %+v, %v", page.Records, err)
	}
}

func usageMistakes(e *Env, u store.Usage) {
	if _, err := u.Usage(e.Context(), store.UsageQuery{
		Namespace: "n", Of: store.OfBucket, Window: "weekly", To: Noon,
	}); err == nil {
		e.Errorf("a window that is none was accepted")
	}
	if _, err := u.Usage(e.Context(), store.UsageQuery{
		Namespace: "n", Of: store.OfBucket, Window: store.Daily, To: Noon, After: "x",
	}); err == nil {
		e.Errorf("a cursor that is none was accepted")
	}
	if err := u.Count(e.Context(), store.Reading{Bucket: Bucket("alice", "api"), ID: 1, At: Noon}); err == nil {
		e.Errorf("a reading of nobody was accepted")
	}
}
