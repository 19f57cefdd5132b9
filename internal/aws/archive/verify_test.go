package archive_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/aws/archive"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// chained returns a store with 40 events by eight processes at once.
func chained(t *testing.T) store.Store {
	t.Helper()
	st := memory.New(nil)
	var all sync.WaitGroup
	for p := range 8 {
		lim, err := weir.New(weir.Config{Store: st})
		must(t, err)
		t.Cleanup(func() { _ = lim.Close() })
		ctx := admin.WithSource(admin.WithPrincipal(t.Context(), "a<b>&\u2028"), "192.0.2.7")
		all.Go(func() {
			for i := range 5 {
				must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: fmt.Sprint(p, "<&>", i)}))
			}
		})
	}
	all.Wait()
	return st
}

// eventsOf returns the records of a chain in its order.
func eventsOf(t *testing.T, st store.Store) []store.Record {
	t.Helper()
	page, err := st.List(t.Context(), store.Query{Namespace: "default", Kind: store.KindAudit, Max: 1000})
	must(t, err)
	slices.SortFunc(page.Records, func(a, b store.Record) int { return int(line(t, a).Number) - int(line(t, b).Number) })
	return page.Records
}

func line(t *testing.T, r store.Record) record.AuditLine {
	t.Helper()
	l, err := record.LineOf(r)
	must(t, err)
	return l
}

// Processes that write at once share a chain without gaps, in the store as in an archive. Whatever is done to an event
// afterwards is found, and named by its number.
func TestVerify(t *testing.T) {
	t.Parallel()
	change := func(edit func(*record.Audit)) func(*testing.T, store.Record) []store.Write {
		return func(t *testing.T, r store.Record) []store.Write {
			t.Helper()
			var e record.Audit
			must(t, record.Decode(r, &e))
			edit(&e)
			w := record.Put(r.Key, r.Version, e)
			w.Record.Expires = r.Expires
			return []store.Write{w}
		}
	}
	for name, tt := range map[string]struct {
		do      func(*testing.T, store.Record) []store.Write
		at      int
		fault   string // in the store
		archive string // in an archive
	}{
		"nothing":           {},
		"the principal":     {change(func(e *record.Audit) { e.Principal = "eve" }), 7, "event 9 (", "event 9 ("},
		"the source":        {change(func(e *record.Audit) { e.Source = "" }), 7, "event 9 (", "event 9 ("},
		"the time":          {change(func(e *record.Audit) { e.At = e.At.Add(time.Second) }), 7, "event 9 (", "event 9 ("},
		"what came of it":   {change(func(e *record.Audit) { e.After = nil }), 0, "event 2 (", "event 2 ("},
		"the newest":        {change(func(e *record.Audit) { e.Action = "" }), 39, "event 40 is not the one that was written last", ""},
		"its number":        {change(func(e *record.Audit) { e.Number = 3 }), 7, "event 3 (", "event 3 ("},
		"its place":         {change(func(e *record.Audit) { e.Link = record.Link{} }), 7, "event 8 is missing", "event 8 is missing"},
		"remove one":        {func(_ *testing.T, r store.Record) []store.Write { return []store.Write{record.Remove(r)} }, 7, "event 8 is missing", "event 8 is missing"},
		"remove the newest": {func(_ *testing.T, r store.Record) []store.Write { return []store.Write{record.Remove(r)} }, 39, "event 40 is missing", ""},
		"another of its own": {func(_ *testing.T, r store.Record) []store.Write {
			r.Key.ID += "X"
			r.Version = 0
			return []store.Write{{Record: r}}
		}, 7, "event 8 (", "event 8 ("},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := chained(t)
				all := eventsOf(t, st)
				if l := line(t, all[8]); l.Previous != line(t, all[7]).Hash() || l.Source != "192.0.2.7" {
					t.Fatalf("event 9 is %+v", l)
				}
				if tt.do != nil {
					must(t, st.Commit(t.Context(), tt.do(t, all[tt.at])...))
				}
				got, err := archive.VerifyStore(t.Context(), st, "default")
				must(t, err)
				found(t, "store", got, tt.fault)
				dir := archive.Dir(t.TempDir())
				_, err = archive.Live(t.Context(), st, dir, "default", time.Time{})
				must(t, err)
				time.Sleep(370 * 24 * time.Hour) // until all have expired
				got, err = archive.VerifyArchive(t.Context(), dir, "default")
				must(t, err)
				found(t, "archive", got, tt.archive)
			})
		})
	}
}

func found(t *testing.T, where string, c archive.Chain, fault string) {
	t.Helper()
	faults := strings.Join(c.Faults, "; ")
	if fault == "" && (faults != "" || c.Events < 39 || c.First != 1) || !strings.Contains(faults, fault) {
		t.Errorf("%s: %d events from %d, faults %q, want %q", where, c.Events, c.First, faults, fault)
	}
}

// Events that expired are not missed, and those that earlier versions wrote before have no place in the chain.
func TestVerifyExpired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(nil)
		old := record.Put(store.Key{Namespace: "default", Kind: store.KindAudit, ID: "0", Sub: "system"}, 0,
			record.Audit{At: time.Now(), Action: "limits.set"})
		must(t, st.Commit(t.Context(), old))
		lim, err := weir.New(weir.Config{Store: st, AuditRetention: time.Hour})
		must(t, err)
		defer func() { _ = lim.Close() }()
		for i := range 20 {
			must(t, admin.New(lim).Entities.Create(t.Context(), admin.Entity{ID: fmt.Sprint(i)}))
			time.Sleep(10 * time.Minute)
		}
		c, err := archive.VerifyStore(t.Context(), st, "default")
		must(t, err)
		if c.First != 16 || c.Last != 20 || c.Events != 5 || c.Unchained != 1 || len(c.Faults) > 0 {
			t.Errorf("%+v", c)
		}
		time.Sleep(time.Hour)
		if c, err = archive.VerifyStore(t.Context(), st, "default"); err != nil || c.Events != 0 || len(c.Faults) > 0 {
			t.Errorf("all have expired: %+v, %v", c, err)
		}
	})
}

// Processes that keep their events for different times cause no faults: what has expired between others is not missed.
func TestVerifyMixed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(nil)
		for i, kept := range []time.Duration{0, time.Hour, time.Hour, 0, time.Hour, 0, 0, time.Hour} {
			lim, err := weir.New(weir.Config{Store: st, AuditRetention: kept})
			must(t, err)
			t.Cleanup(func() { _ = lim.Close() })
			must(t, admin.New(lim).Entities.Create(t.Context(), admin.Entity{ID: fmt.Sprint(i)}))
		}
		for _, events := range []int{8, 4} {
			c, err := archive.VerifyStore(t.Context(), st, "default")
			if err != nil || c.Events != events || len(c.Faults) > 0 {
				t.Errorf("%+v, %v; want %d events", c, err, events)
			}
			time.Sleep(2 * time.Hour)
		}
	})
}

// What is removed or added at either end of the chain is found, too.
func TestVerifyWhole(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*testing.T, store.Store){
		"the head is removed, event 8 changed": func(t *testing.T, st store.Store) {
			t.Helper()
			r := eventsOf(t, st)[7]
			var e record.Audit
			must(t, record.Decode(r, &e))
			e.Principal = "eve"
			w := record.Put(r.Key, r.Version, e)
			w.Record.Expires = r.Expires
			got, err := st.Get(t.Context(), record.AuditHeadKey("default"))
			must(t, err)
			must(t, st.Commit(t.Context(), w, record.Remove(got.Records[0])))
		},
		"all are removed": func(t *testing.T, st store.Store) {
			t.Helper()
			var ws []store.Write
			for _, r := range eventsOf(t, st) {
				ws = append(ws, record.Remove(r))
			}
			must(t, st.Commit(t.Context(), ws...))
		},
		"the oldest, a year before it expires, is removed": func(t *testing.T, st store.Store) {
			t.Helper()
			must(t, st.Commit(t.Context(), record.Remove(eventsOf(t, st)[0])))
		},
		"one without a number is inserted": func(t *testing.T, st store.Store) {
			t.Helper()
			r := eventsOf(t, st)[39]
			r.Key.ID, r.Version = "Z"+r.Key.ID[1:], 0
			var e record.Audit
			must(t, record.Decode(r, &e))
			e.Link, e.Principal = record.Link{}, "eve"
			w := record.Put(r.Key, 0, e)
			w.Record.Expires = r.Expires
			must(t, st.Commit(t.Context(), w))
		},
		"one with a number after the last is inserted": func(t *testing.T, st store.Store) {
			t.Helper()
			r := eventsOf(t, st)[39]
			r.Key.ID, r.Version = r.Key.ID+"X", 0
			var e record.Audit
			must(t, record.Decode(r, &e))
			e.Number, e.Principal = 1000, "eve"
			w := record.Put(r.Key, 0, e)
			w.Record.Expires = r.Expires
			must(t, st.Commit(t.Context(), w))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := chained(t)
				do(t, st)
				if c, err := archive.VerifyStore(t.Context(), st, "default"); err != nil || len(c.Faults) == 0 {
					t.Errorf("no fault: %+v, error %v", c, err)
				}
			})
		})
	}
}

// lags lists without one event for a while, like an index of DynamoDB.
type lags struct {
	store.Store
	without int
	lists   int
	t       *testing.T
}

func (l *lags) List(ctx context.Context, q store.Query) (store.Page, error) {
	p, err := l.Store.List(ctx, q)
	if l.lists++; l.lists == 1 {
		var keep []store.Record
		for _, r := range p.Records {
			if int(line(l.t, r).Number) != l.without {
				keep = append(keep, r)
			}
		}
		p.Records = keep
	}
	return p, err
}

// An event that the index does not have yet is not missed.
func TestVerifyLagging(t *testing.T) {
	t.Parallel()
	for _, n := range []int{40, 39} {
		synctest.Test(t, func(t *testing.T) {
			st := &lags{Store: chained(t), without: n, t: t}
			if c, err := archive.VerifyStore(t.Context(), st, "default"); err != nil || len(c.Faults) > 0 {
				t.Errorf("event %d not in the index in the first second: %q, error %v", n, c.Faults, err)
			}
		})
	}
}

// DynamoDB deletes expired items within two days, in any order; the aggregator archives them as they go.
func TestVerifyNotArchivedYet(t *testing.T) {
	t.Parallel()
	st := chained(t)
	var es []archive.Event
	for i, r := range eventsOf(t, st) {
		if i > 10 || i == 4 { // event 5 expired with its neighbours, and will be deleted within the day
			continue
		}
		e, err := archive.FromRecord(r.Key, r.Value)
		must(t, err)
		es = append(es, e)
	}
	dir := archive.Dir(t.TempDir())
	_, err := archive.Write(t.Context(), dir, es)
	must(t, err)
	c, err := archive.VerifyArchive(t.Context(), dir, "default")
	must(t, err)
	if len(c.Faults) > 0 {
		t.Errorf("not archived yet: %q", c.Faults)
	}
}
