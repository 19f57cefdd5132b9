package redis_test

import (
	"math"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
)

// swift is an override that refills one token per second.
func swift(name string) *store.Limit {
	return &store.Limit{Name: name, Override: true, Amount: 1000, Period: time.Second, Burst: 5000}
}

// together makes takes in one run, all of which must be allowed.
func (b *books) together(takes ...store.Take) {
	b.Helper()
	outs, errs := b.s.Together(takes)
	for i := range takes {
		if errs[i] != nil || !outs[i].Allowed {
			b.Fatalf("take %d: allowed %t, error %v", i, outs[i].Allowed, errs[i])
		}
	}
}

func with(d store.Debit, more ...*store.Limit) store.Debit {
	for _, l := range more {
		d.Charges = append(d.Charges, store.Charge{Limit: l, Amount: 1000})
	}
	return d
}

// A birth that ends during a run is booked even if later takes of the run bring other limits.
func TestRunEndsBirth(t *testing.T) {
	t.Parallel()
	b := bookkeeping(t, shared(t).Addr, store.Retention{})
	b.together(store.Take{Debits: []store.Debit{with(one("alice", still(100), 5), swift("x"))}})
	b.clock.Advance(time.Hour)
	later := one("alice", &store.Limit{Name: "rpm", Amount: 1000, Period: 300 * 24 * time.Hour, Burst: 200_000}, 1)
	later.Epoch = 1
	b.together(store.Take{Debits: []store.Debit{with(one("alice", still(100), 2), swift("y"))}}, store.Take{Debits: []store.Debit{later}})
	pass(t, b.l)
	b.want(store.OfNamespace, "", store.Daily, map[string]int64{"03-31 00": 8})
}

// A run that ends two births of one bucket loses neither. The second take includes a bucket with a later time, so it runs
// at a later time.
func TestRunEndsTwoBirths(t *testing.T) {
	t.Parallel()
	b := bookkeeping(t, shared(t).Addr, store.Retention{})
	b.together(store.Take{Debits: []store.Debit{with(one("alice", still(100), 5), swift("x"))}})
	b.clock.Advance(time.Minute)
	b.together(store.Take{Debits: []store.Debit{one("bob", still(100), 1)}})
	b.clock.Advance(-30 * time.Second)
	b.together(
		store.Take{Debits: []store.Debit{with(one("alice", still(100), 2), swift("y"))}},
		store.Take{Debits: []store.Debit{with(one("alice", still(100), 3), swift("z")), one("bob", still(100), 1)}},
	)
	pass(t, b.l)
	b.want(store.OfBucket, "alice", store.Daily, map[string]int64{"03-31 00": 10})
}

// A bucket's debited counter stays at its maximum and does not turn negative.
func TestDebitedEnds(t *testing.T) {
	t.Parallel()
	b := bookkeeping(t, shared(t).Addr, store.Retention{})
	d := one("alice", still(100), 0)
	for _, amount := range []int64{1 << 62, 1<<62 - 1<<40, 1 << 41} {
		d.Charges[0] = store.Charge{Limit: d.Charges[0].Limit, Amount: amount, Force: true}
		b.together(store.Take{Debits: []store.Debit{d}})
		d.Charges[0].Force, d.Charges[0].Amount = false, -amount
		if _, err := b.s.Settle(t.Context(), store.Settle{Debits: []store.Debit{d}}); err != nil {
			t.Fatal(err)
		}
	}
	snap, err := b.s.Peek(t.Context(), d.Bucket)
	if err != nil || snap.States[0].Limits[0].Debited != math.MaxInt64 {
		t.Errorf("%+v, %v: want %d debited", snap.States[0].Limits[0], err, int64(math.MaxInt64))
	}
}

// An account is kept while the end of a birth waits to be booked: otherwise the birth would be booked from the start.
func TestSweepKeepsWhatEnds(t *testing.T) {
	t.Parallel()
	b := bookkeeping(t, shared(t).Addr, store.Retention{})
	b.take("alice", still(100), 5)
	pass(t, b.l)
	b.clock.Advance(7 * time.Hour)
	if err := b.s.Forget(t.Context(), one("alice", nil, 0).Bucket); err != nil {
		t.Fatal(err)
	}
	if err := b.s.Sweep(t.Context(), "n"); err != nil { // by a pass that looked for ended births before this one ended
		t.Fatal(err)
	}
	pass(t, b.l)
	b.want(store.OfNamespace, "", store.Monthly, map[string]int64{"03-01 00": 5})
}

// A key that holds something other than a string where a bucket should be is reported, and the other buckets are booked.
func TestUsageOfAnotherType(t *testing.T) {
	t.Parallel()
	srv := shared(t)
	b := bookkeeping(t, srv.Addr, store.Retention{})
	for _, e := range []string{"a", "b", "c"} {
		b.take(e, still(100), 1)
	}
	key := b.s.Key(one("a", nil, 0).Bucket)
	srv.do(t, "DEL", key)
	srv.do(t, "SADD", key, "x")
	if p, err := b.l.Pass(t.Context()); err != nil || len(p.Bad) != 1 {
		t.Errorf("%v, error %v, want one that cannot be read", p.Bad, err)
	}
	b.want(store.OfNamespace, "", store.Monthly, map[string]int64{"03-01 00": 2})
}

// A bucket whose head states its slots wrongly fails only the takes that ask for it.
func TestTogetherWrongHead(t *testing.T) {
	t.Parallel()
	srv := shared(t)
	b := bookkeeping(t, srv.Addr, store.Retention{})
	b.take("a", still(100), 1)
	srv.do(t, "SETRANGE", b.s.Key(one("a", nil, 0).Bucket), "35", "\xff\xff")
	outs, errs := b.s.Together([]store.Take{{Debits: []store.Debit{one("a", still(100), 1)}}, {Debits: []store.Debit{one("b", still(100), 1)}}})
	if errs[0] == nil || errs[1] != nil || !outs[1].Allowed {
		t.Errorf("%+v, %v: want the first an error, the second allowed", outs, errs)
	}
}
