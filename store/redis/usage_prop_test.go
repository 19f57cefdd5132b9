package redis_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
	"github.com/weirlimits/weir/store/storetest"
)

// dying is the context of a process that dies between two calls, after the context was checked a given number of times.
type dying struct {
	context.Context //nolint:containedctx // the type is a context

	left *atomic.Int64
}

// Err reports whether the process has died.
func (d dying) Err() error {
	if d.left.Add(-1) < 0 {
		return context.Canceled
	}
	return d.Context.Err()
}

// Done is checked by each call.
func (d dying) Done() <-chan struct{} {
	if d.left.Add(-1) < 0 {
		return ended
	}
	return d.Context.Done()
}

var ended = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// sums holds what was consumed and requested, by subject, limit, window type and window start.
type sums map[string]int64

func (s sums) add(of store.UsageOf, id, sub, limit string, at time.Time, n int64) {
	for _, w := range store.Windows {
		start := at.Truncate(time.Hour)
		switch w {
		case store.Hourly:
		case store.Daily:
			start = at.Truncate(24 * time.Hour)
		case store.Monthly:
			start = time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
		}
		s[fmt.Sprintf("%c %s/%s %q %s %s", of, id, sub, limit, w, start.Format("0102 15"))] += n
	}
}

// ledger is the model of a state machine: what was admitted and so must be booked.
type ledger struct {
	*rapid.T

	s       *redis.Store
	readers [2]*redis.Ledger
	clock   *storetest.Clock
	want    sums
	refused map[string]int64 // by entity
	ids     map[string]uint64
	died    *int
}

var propLimits = []*store.Limit{still(1_000_000), {Name: "tpm", Amount: 1_000_000, Period: 366 * 24 * time.Hour, Burst: 1_000_000_000}}

func (l *ledger) bucket() store.Bucket {
	return store.Bucket{
		Namespace: "n", Entity: rapid.SampledFrom([]string{"kid", "kin", "team", "é"}).Draw(l.T, "entity"),
		Resource: rapid.SampledFrom([]string{"api", "batch"}).Draw(l.T, "resource"),
	}
}

// book records an amount in the model.
func (l *ledger) book(b store.Bucket, limit string, n int64) {
	at := l.clock.Now()
	l.want.add(store.OfBucket, b.Entity, b.Resource, limit, at, n)
	l.want.add(store.OfResource, b.Resource, "", limit, at, n)
	l.want.add(store.OfNamespace, "", "", limit, at, n)
	l.want.add(store.OfStore, "", "", limit, at, n)
	for up := b.Entity; parentsOf[up] != ""; {
		up = parentsOf[up]
		l.want.add(store.OfChildren, up, b.Resource, limit, at, n)
	}
}

var parentsOf = map[string]string{"kid": "team", "kin": "team", "team": "org"}

func (l *ledger) take(t *rapid.T) {
	l.T = t
	b := l.bucket()
	d := store.Debit{Bucket: b}
	for _, lim := range propLimits {
		d.Charges = append(d.Charges, store.Charge{Limit: lim, Amount: 1000 * rapid.Int64Range(0, 5).Draw(t, "tokens")})
	}
	if rapid.Bool().Draw(t, "override") {
		over := &store.Limit{Name: "tpm", Amount: rapid.Int64Range(1, 30).Draw(t, "amount") * 1000, Period: time.Second, Burst: 60_000, Override: true}
		d.Charges = append(d.Charges, store.Charge{Limit: over, Amount: 1000})
	}
	out, err := l.s.Take(t.Context(), store.Take{Debits: []store.Debit{d}})
	if err != nil || !out.Allowed {
		t.Fatalf("allowed %t, error %v", out.Allowed, err)
	}
	for _, c := range d.Charges {
		l.book(b, c.Limit.Name, c.Amount)
	}
	l.book(b, "", 1)
}

func (l *ledger) giveBack(t *rapid.T) {
	l.T = t
	b := l.bucket()
	snap, err := l.s.Peek(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	if snap.States[0].ID == 0 {
		return
	}
	n := 1000 * rapid.Int64Range(-3, 3).Draw(t, "change")
	if _, err := l.s.Settle(t.Context(), store.Settle{Debits: []store.Debit{{Bucket: b, Charges: []store.Charge{{Limit: propLimits[0], Amount: n}}}}}); err != nil {
		t.Fatal(err)
	}
	l.book(b, "rpm", n)
}

// pass makes one of the readers do a pass. The pass completes if life is 0.
func (l *ledger) pass(t *rapid.T, life int64) {
	reader := l.readers[rapid.IntRange(0, 1).Draw(t, "reader")]
	ctx := t.Context()
	if life > 0 {
		left := new(atomic.Int64)
		left.Store(life)
		ctx = dying{ctx, left}
	}
	p, err := reader.Pass(ctx)
	if len(p.Bad) > 0 || err != nil && life == 0 {
		t.Fatalf("bad %v, error %v", p.Bad, err)
	}
	if err != nil {
		*l.died++
	}
}

func (l *ledger) tell(t *rapid.T) {
	l.T = t
	b := l.bucket()
	b.Resource = "api"
	more := rapid.Int64Range(0, 3).Draw(t, "refused")
	l.refused[b.Entity] += more
	if l.ids[b.Entity] == 0 || rapid.IntRange(0, 5).Draw(t, "anew") == 0 {
		l.ids[b.Entity]++
		l.refused[b.Entity] = more
	}
	r := store.Reading{
		Bucket: b, Source: "p1", ID: l.ids[b.Entity], At: l.clock.Now(),
		Counts: []store.LimitFigures{{Limit: "refused", Figures: store.Figures{Refused: l.refused[b.Entity]}}},
	}
	for range rapid.IntRange(1, 2).Draw(t, "times") {
		if err := l.s.Count(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	l.book(b, "refused", more)
}

// check reads all windows and compares them with what was admitted.
func (l *ledger) check(t *rapid.T) {
	l.pass(t, 0)
	got := make(sums)
	for _, of := range []store.UsageOf{store.OfBucket, store.OfChildren, store.OfResource, store.OfNamespace, store.OfStore} {
		for _, w := range store.Windows {
			q := store.UsageQuery{Namespace: "n", Of: of, Window: w, From: evening.AddDate(-1, 0, 0), To: evening.AddDate(1, 0, 0), Max: rapid.IntRange(5, 60).Draw(t, "page")}
			for {
				page, err := l.s.Usage(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range page.Records {
					for _, c := range r.Counts {
						key := fmt.Sprintf("%c %s/%s %q %s %s", of, r.ID, r.Sub, c.Limit, w, r.Start.Format("0102 15"))
						got[key] += c.Requests + c.Consumed() + c.Refused
					}
				}
				if q.After = page.Next; q.After == "" {
					break
				}
			}
		}
	}
	maps.DeleteFunc(l.want, func(_ string, n int64) bool { return n == 0 })
	maps.DeleteFunc(got, func(_ string, n int64) bool { return n == 0 })
	if maps.Equal(got, l.want) {
		return
	}
	var wrong []string
	for _, k := range slices.Sorted(maps.Keys(l.want)) {
		if got[k] != l.want[k] {
			wrong = append(wrong, fmt.Sprintf("%s: %d, want %d", k, got[k], l.want[k]))
		}
	}
	for k := range got {
		if l.want[k] == 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %d, want none", k, got[k]))
		}
	}
	t.Fatalf("booked\n%s", strings.Join(wrong, "\n"))
}

// TestUsageExact checks that whatever is taken, returned, reset, swept and reported, and whatever happens to the readers,
// what is booked equals what was admitted: each amount in its own hour, if a reader ran when that hour ended.
func TestUsageExact(t *testing.T) {
	t.Parallel()
	addr := shared(t).Addr
	died := 0
	rapid.Check(t, func(rt *rapid.T) {
		l := &ledger{T: rt, clock: storetest.NewClock(evening), want: make(sums), refused: make(map[string]int64), ids: make(map[string]uint64), died: &died}
		s, err := redis.Open(t.Context(), redis.Config{Address: "redis://" + addr, Prefix: prefix(), Connections: 1, CallTimeout: time.Minute, Now: l.clock.Now})
		if err != nil {
			rt.Fatal(err)
		}
		defer s.Close()
		l.s, l.readers = s, [2]*redis.Ledger{s.Ledger(store.Retention{Hourly: -1, Daily: -1}), s.Ledger(store.Retention{Hourly: -1, Daily: -1})}
		for child, parent := range parentsOf {
			k := store.Key{Namespace: "n", Kind: store.KindEntity, ID: child}
			if err := s.Commit(t.Context(), store.Write{Record: store.Record{Key: k, Parent: parent, Value: []byte{}}}); err != nil {
				rt.Fatal(err)
			}
		}
		known(t, s, l.readers[0], "n")
		rt.Repeat(map[string]func(*rapid.T){
			"take": l.take, "take too": l.take, "give back": l.giveBack, "tell": l.tell,
			"pass": func(t *rapid.T) { l.pass(t, 0) },
			"dies": func(t *rapid.T) { l.pass(t, rapid.Int64Range(1, 60).Draw(t, "life")) },
			"reset": func(t *rapid.T) {
				l.T = t
				if err := s.Forget(t.Context(), l.bucket()); err != nil {
					t.Fatal(err)
				}
			},
			"expires": func(t *rapid.T) {
				l.pass(t, 0) // otherwise its account would remain for an hour
				l.T = t
				if err := s.Expire(t.Context(), l.bucket()); err != nil {
					t.Fatal(err)
				}
			},
			"time": func(t *rapid.T) {
				d := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "time"))
				if rapid.IntRange(0, 3).Draw(t, "long") == 0 {
					d *= 60
				}
				if now := l.clock.Now(); now.Add(d).Truncate(time.Hour) != now.Truncate(time.Hour) {
					l.pass(t, 0)
				}
				l.clock.Advance(d)
			},
		})
		l.check(rt)
	})
	if died == 0 {
		t.Error("no reader has died: nothing was put to the test")
	}
}
