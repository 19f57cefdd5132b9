package inmem_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/inmem"
)

// broken is a journal that makes no change durable.
type broken struct{ now bool }

func (j *broken) Changed(_ *inmem.Bucket, c inmem.Change) inmem.Ticket {
	if c == inmem.Debited && j.now {
		return j
	}
	return nil
}
func (j *broken) Once(string, time.Time, []*inmem.Bucket) inmem.Ticket { return nil }
func (j *broken) Credited(*inmem.Bucket, string, int64) inmem.Ticket   { return nil }
func (j *broken) Recorded(string) (int64, error)                       { return 0, nil }
func (j *broken) Evicted(*inmem.Bucket)                                {}
func (j *broken) Wait(context.Context) error                           { return errBroken }

var errBroken = errors.New("not durable")

// TestUndo checks that an unanswered take does not count. Compared with a table in which it never happened, nothing more
// is admitted, and no more is missing than what the clock issued in the meantime.
func TestUndo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &fakeClock{now: noon}
		j := &broken{}
		undone := inmem.New(inmem.Config{Now: c.Now, MaxBuckets: 10, Journal: j})
		ideal := inmem.New(inmem.Config{Now: c.Now, MaxBuckets: 10})
		l, b := perMinute(60), named("alice")
		p := clock.Params{Amount: l.Amount, Period: int64(l.Period), Burst: l.Burst}
		take := func(tab *inmem.Table, tokens int64) (store.Take, bool, inmem.Tickets) {
			tk := store.Take{Debits: []store.Debit{debit(b, l, tokens)}}
			out, tickets, err := tab.Take(tk)
			if err != nil {
				t.Fatal(err)
			}
			return tk, out.Allowed, tickets
		}
		issued := int64(0)
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			if tokens := rapid.Int64Range(0, 60).Draw(t, "before"); true {
				if _, ok, _ := take(undone, tokens); ok {
					if _, ok, _ := take(ideal, tokens); !ok {
						t.Fatal("admitted more than had it never happened")
					}
				}
			}
			j.now = true
			tk, ok, tickets := take(undone, rapid.Int64Range(0, 60).Draw(t, "lost"))
			j.now = false
			then := p.Clock(undone.Now())
			for range rapid.IntRange(0, 3).Draw(t, "others") {
				c.Advance(time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(t, "pause")))
				tokens := rapid.Int64Range(0, 30).Draw(t, "other")
				if _, ok, _ := take(undone, tokens); ok {
					if _, ok, _ := take(ideal, tokens); !ok {
						t.Fatal("admitted more than had it never happened")
					}
				}
			}
			if ok {
				if err := tickets.Wait(context.Background()); !errors.Is(err, errBroken) {
					t.Fatal(err)
				}
				undone.Undo(tk, tickets)
			}
			issued += p.Clock(undone.Now()) - then
			left := func(tab *inmem.Table) int64 {
				snap := tab.Peek([]store.Bucket{b})
				if len(snap.States[0].Limits) == 0 {
					return p.Burst
				}
				return p.Available(snap.States[0].Limits[0].Level, p.Clock(clock.Nanos(snap.At)))
			}
			if r, i := left(undone), left(ideal); r > i || i-r > issued {
				t.Fatalf("%d left, %d had it never happened; %d were issued meanwhile", r, i, issued)
			}
		}
	})
}

// TestUndoOfTheDead checks that neither a forgotten bucket nor its successor gets anything back.
func TestUndoOfTheDead(t *testing.T) {
	t.Parallel()
	j := &broken{true}
	c := &fakeClock{now: noon}
	tab := inmem.New(inmem.Config{Now: c.Now, MaxBuckets: 10, Journal: j})
	l := perMinute(60)
	tk := store.Take{Debits: []store.Debit{debit(named("alice"), l, 60), debit(named("bob"), l, 60)}}
	_, tickets, err := tab.Take(tk)
	if err != nil || tickets.None() {
		t.Fatal(err)
	}
	tab.Forget([]store.Bucket{named("alice")})
	again := store.Take{Debits: []store.Debit{debit(named("alice"), l, 60)}}
	if out, _, err := tab.Take(again); err != nil || !out.Allowed {
		t.Fatal(out, err)
	}
	tab.Undo(tk, tickets)
	snap := tab.Peek([]store.Bucket{named("alice"), named("bob")})
	if st := snap.States[0].Limits[0]; st.Returned != 0 {
		t.Errorf("the bucket in its place got %d back", st.Returned)
	}
	if st := snap.States[1].Limits[0]; st.Returned != 60_000 {
		t.Errorf("got %d back", st.Returned)
	}
}

// TestUndoShadow checks that nothing is returned for shadow charges that were left out.
func TestUndoShadow(t *testing.T) {
	t.Parallel()
	c := &fakeClock{now: noon}
	tab := inmem.New(inmem.Config{Now: c.Now, MaxBuckets: 10, Journal: &broken{true}})
	b, rpm, tpm := named("alice"), perMinute(60), perMinute(60)
	tpm.Name = "tpm"
	take := func(tokens int64) (store.Take, inmem.Tickets) {
		tk := store.Take{Debits: []store.Debit{{Bucket: b, Epoch: 1, Charges: []store.Charge{
			{Limit: rpm, Amount: 1000}, {Limit: tpm, Amount: tokens * 1000, Shadow: true},
		}}}}
		out, tickets, err := tab.Take(tk)
		if err != nil || !out.Allowed {
			t.Fatal(out, err)
		}
		return tk, tickets
	}
	take(40)
	for _, tt := range []struct{ tokens, returned int64 }{{30, 0}, {20, 20_000}} {
		tab.Undo(take(tt.tokens))
		if st := tab.Peek([]store.Bucket{b}).States[0].Limits[1]; st.Returned != tt.returned || st.Debited-st.Returned != 40_000 {
			t.Errorf("%d in shadow: debited %d, returned %d", tt.tokens, st.Debited, st.Returned)
		}
	}
}
