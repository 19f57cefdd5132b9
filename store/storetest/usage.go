package storetest

import (
	"slices"
	"time"

	"github.com/weirlimits/weir/store"
)

// usageScenarios are for stores that keep usage; other stores pass them.
func usageScenarios() []scenario {
	return []scenario{
		{name: "by hour, day and month", need: Caps{HandClock: true}, run: each(usageWindows)},
		{name: "across a reset", run: each(usageReset)},
		{name: "readings of a process", run: each(usageReadings)},
		{name: "pages", run: each(usagePages)},
		{name: "raises no epoch", run: each(usageEpoch)},
		{name: "forgotten", run: each(usageForgotten)},
		{name: "mistakes", run: each(usageMistakes)},
	}
}

// usage returns the figures of one limit in all windows of a type, with their starts.
func (e *env) usage(
	of store.UsageOf, id, sub, limit string, w store.Window,
) (starts []time.Time, figures []store.Figures) {
	e.Helper()
	q := store.UsageQuery{
		Namespace: "n", Of: of, ID: id, Sub: sub, Window: w, From: noon.AddDate(-100, 0, 0),
		To: noon.AddDate(100, 0, 0), Max: 1000,
	}
	page, err := e.usageStore().Usage(e.Context(), q)
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

// usageStore returns the store as a [store.Usage]; nil if it keeps no usage, or if another process books it.
func (e *env) usageStore() store.Usage {
	if e.h.Caps.LateUsage {
		return nil
	}
	u, _ := e.store.(store.Usage)
	return u
}

// wantConsumed checks what was consumed of tpm over all windows, for each type of window.
func (e *env) wantConsumed(of store.UsageOf, id, sub string, tokens int64) {
	e.Helper()
	for _, w := range store.Windows {
		_, figures := e.usage(of, id, sub, "tpm", w)
		got := int64(0)
		for i := range figures {
			got += figures[i].Consumed()
		}
		if got != tokens*tok {
			e.Fatalf("%s usage by %q on %q is %d, want %d", w, id, sub, got, tokens*tok)
		}
	}
}

func usageWindows(e *env) {
	if e.usageStore() == nil {
		return
	}
	b, l := bkt("alice", "api"), still("tpm", 1000)
	leap := time.Date(2028, time.February, 29, 23, 59, 59, 999_999_999, time.UTC)
	for i, at := range []time.Time{leap.Add(-time.Hour), leap, leap.Add(1), leap.AddDate(0, 0, 1)} {
		e.clock.Set(at)
		e.allow(debit(b, charge(l, int64(1)<<i)))
	}
	e.settle(debit(b, charge(l, -3))) // in the last hour
	day := func(month time.Month, d, h int) time.Time { return time.Date(2028, month, d, h, 0, 0, 0, time.UTC) }
	for w, want := range map[store.Window]struct {
		starts   []time.Time
		consumed []int64
	}{
		store.Hourly:  {[]time.Time{day(2, 29, 22), day(2, 29, 23), day(3, 1, 0), day(3, 1, 23)}, []int64{1, 2, 4, 5}},
		store.Daily:   {[]time.Time{day(2, 29, 0), day(3, 1, 0)}, []int64{3, 9}},
		store.Monthly: {[]time.Time{day(2, 1, 0), day(3, 1, 0)}, []int64{3, 9}},
	} {
		starts, figures := e.usage(store.OfBucket, "alice", "api", "tpm", w)
		var consumed []int64
		for i := range figures {
			consumed = append(consumed, figures[i].Consumed()/tok)
		}
		if !slices.EqualFunc(starts, want.starts, time.Time.Equal) || !slices.Equal(consumed, want.consumed) {
			e.Errorf("%s windows %v of %v, want %v of %v", w, starts, consumed, want.starts, want.consumed)
		}
	}
}

func usageReset(e *env) {
	if e.usageStore() == nil {
		return
	}
	b, l := bkt("alice", "api"), still("tpm", 10)
	for range 3 {
		e.allow(debit(b, charge(l, 10)))
		e.refuse(debit(b, charge(l, 1)))
		if err := e.store.Forget(e.Context(), b); err != nil {
			e.Fatalf("forget: %v", err)
		}
	}
	e.allow(debit(b, charge(l, 4)))
	e.wantConsumed(store.OfBucket, "alice", "api", 34)
	e.wantConsumed(store.OfResource, "api", "", 34)
	e.wantConsumed(store.OfNamespace, "", "", 34)
	e.wantConsumed(store.OfStore, "", "", 34)
}

func usageReadings(e *env) {
	u := e.usageStore()
	if u == nil {
		return
	}
	reading := func(source string, id uint64, minutes int, refused int64) store.Reading {
		return store.Reading{
			Bucket: bkt("alice", "api"), Source: source, ID: id, At: noon.Add(time.Duration(minutes) * time.Minute),
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
	_, hours := e.usage(store.OfBucket, "alice", "api", "tpm", store.Hourly)
	if len(hours) != 2 || hours[0].Refused != 8 || hours[1].Refused != 9 || hours[1].RefusedTokens != 63 {
		e.Fatalf("hours %+v, want 8 and 9 refused", hours)
	}
}

func usagePages(e *env) {
	u := e.usageStore()
	if u == nil {
		return
	}
	l := still("tpm", 10)
	var want []string // by start, then ID, then Sub
	for _, month := range []string{"2028-02", "2028-03"} {
		if e.h.Caps.HandClock {
			at, _ := time.Parse("2006-01", month)
			e.clock.Set(at)
		} else if want != nil {
			break
		}
		for _, id := range []string{"a", "a#b", "a/b", "b", "ttl", "é"} {
			for _, sub := range []string{"api", "batch"} {
				e.allow(debit(bkt(id, sub), charge(l, 1)))
				want = append(want, id+" "+sub)
			}
		}
	}
	for size := 1; size <= len(want)+1; size++ {
		q := store.UsageQuery{
			Namespace: "n", Of: store.OfBucket, Window: store.Monthly, From: noon.AddDate(-100, 0, 0),
			To: noon.AddDate(100, 0, 0), Max: size,
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

func usageEpoch(e *env) {
	if e.usageStore() == nil {
		return
	}
	epoch := func() uint64 {
		got, err := e.store.Get(e.Context(), store.Key{Namespace: "n", Kind: store.KindSystem})
		if err != nil {
			e.Fatalf("get: %v", err)
		}
		return got.Epoch
	}
	before := epoch()
	e.allow(debit(bkt("alice", "api"), charge(still("tpm", 10), 1)))
	e.wantConsumed(store.OfNamespace, "", "", 1)
	if after := epoch(); after != before {
		e.Errorf("usage has raised the epoch from %d to %d", before, after)
	}
}

func usageForgotten(e *env) {
	u := e.usageStore()
	if u == nil {
		return
	}
	l := still("tpm", 10)
	other := store.Bucket{Namespace: "n2", Entity: "alice", Resource: "api"}
	e.allow(debit(bkt("alice", "api"), charge(l, 1)))
	e.allow(debit(other, charge(l, 2)))
	e.wantConsumed(store.OfNamespace, "", "", 1)
	if err := u.ForgetUsage(e.Context(), "n2"); err != nil {
		e.Fatalf("forget: %v", err)
	}
	e.wantConsumed(store.OfNamespace, "", "", 1)
	e.wantConsumed(store.OfStore, "", "", 3)
	page, err := u.Usage(e.Context(), store.UsageQuery{
		Namespace: "n2", Of: store.OfBucket, Window: store.Monthly, From: noon.AddDate(-100, 0, 0),
		To: noon.AddDate(100, 0, 0),
	})
	if err != nil || len(page.Records) > 0 {
		e.Errorf("forgotten: %+v, %v", page.Records, err)
	}
}

func usageMistakes(e *env) {
	u := e.usageStore()
	if u == nil {
		return
	}
	if _, err := u.Usage(e.Context(), store.UsageQuery{
		Namespace: "n", Of: store.OfBucket, Window: "weekly", To: noon,
	}); err == nil {
		e.Errorf("a window that is none was accepted")
	}
	if _, err := u.Usage(e.Context(), store.UsageQuery{
		Namespace: "n", Of: store.OfBucket, Window: store.Daily, To: noon, After: "x",
	}); err == nil {
		e.Errorf("a cursor that is none was accepted")
	}
	if err := u.Count(e.Context(), store.Reading{Bucket: bkt("alice", "api"), ID: 1, At: noon}); err == nil {
		e.Errorf("a reading of nobody was accepted")
	}
}
