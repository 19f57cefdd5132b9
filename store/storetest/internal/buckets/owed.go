package buckets

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// owedScenarios check that a bucket is kept for as long as any of its limits owes anything, whichever limit that is and
// whichever call has charged it.
func owedScenarios() []Scenario {
	return []Scenario{
		{Name: "several limits", Run: OnStore(owedLimits)},
		{Name: "settled", Run: OnStore(owedSettled)},
		{Name: "one limit after another", Run: OnStore(owedAfter)},
		{Name: "takes at once", Run: OnStore(owedAtOnce)},
	}
}

// owing returns limits of which a token is owed for a second, and for an hour, a day and a year.
func owing() []*store.Limit {
	return []*store.Limit{
		Per("rps", 1, time.Second), Per("rph", 1, time.Hour), Per("rpd", 1, 24*time.Hour),
		Per("rpy", 1, 365*24*time.Hour),
	}
}

// owingOrders calls f with a bucket of its own and the limits, once for each limit that comes first.
func owingOrders(name string, f func(b store.Bucket, limits []*store.Limit)) {
	for i := range owing() {
		limits := owing()
		f(Bucket(fmt.Sprint(name, "-", i), "api"), slices.Concat(limits[i:], limits[:i]))
	}
}

// wantKept checks that the store keeps what a bucket owes until it owes nothing.
func wantKept(e *Env, buckets ...store.Bucket) {
	e.Helper()
	for _, b := range buckets {
		st, now := e.State(b)
		if st.ID == 0 {
			e.Fatalf("%v is gone", b)
		}
		if e.Harness.Kept == nil {
			continue
		}
		kept := e.Harness.Kept(e.Outer, e.Store, b)
		for _, m := range st.Limits {
			if owed := reckon.Outstanding(m.Limit, m.Level, now.Add(kept)); owed > 0 {
				e.Fatalf("%v is kept for %v, when it still owes %d millitokens of %s", b, kept, owed, m.Limit.Name)
			}
		}
	}
	if !e.Harness.Caps.HandClock {
		return
	}
	// A year less a day later, after births that make a store look for what it can forget.
	e.Clock.Advance(364 * 24 * time.Hour)
	for i := range e.Some(2000) {
		e.Allow(Debit(Bucket(fmt.Sprint("newcomer-", i), "api"), Charge(PerMinute("rpm", 60), 1)))
	}
	for _, b := range buckets {
		if st, _ := e.State(b); st.ID == 0 {
			e.Fatalf("%v is forgotten a day before its last limit is full", b)
		}
	}
}

func owedLimits(e *Env) {
	var buckets []store.Bucket
	owingOrders("taken", func(b store.Bucket, limits []*store.Limit) {
		d := Debit(b)
		for _, l := range limits {
			d.Charges = append(d.Charges, Charge(l, 1))
		}
		e.Allow(d)
		buckets = append(buckets, b)
	})
	wantKept(e, buckets...)
}

// owedSettled forces debts, in a settle, on buckets that owed nothing for long.
func owedSettled(e *Env) {
	var buckets []store.Bucket
	owingOrders("settled", func(b store.Bucket, limits []*store.Limit) {
		born, debts := Debit(b), Debit(b)
		for _, l := range limits {
			born.Charges = append(born.Charges, Charge(l, 0))
			debts.Charges = append(debts.Charges, Charge(l, 1))
		}
		e.Allow(born)
		e.Settle(debts)
		buckets = append(buckets, b)
	})
	wantKept(e, buckets...)
}

// owedAfter charges one limit after another, so that later charges are of limits that owe for a shorter time.
func owedAfter(e *Env) {
	var buckets []store.Bucket
	owingOrders("after", func(b store.Bucket, limits []*store.Limit) {
		for _, charged := range limits {
			d := Debit(b)
			for _, l := range limits {
				c := Charge(l, 0)
				if l == charged {
					c = Charge(l, 1)
				}
				d.Charges = append(d.Charges, c)
			}
			e.Allow(d)
		}
		buckets = append(buckets, b)
	})
	wantKept(e, buckets...)
}

// owedAtOnce takes from one bucket at once, so that a store that shares writes among takes lengthens its life again.
func owedAtOnce(e *Env) {
	b := Bucket("alice", "api")
	l := &store.Limit{Name: "rpy", Amount: Token, Period: 365 * 24 * time.Hour, Burst: 100 * Token}
	e.Each(100, func(int) {
		if out := e.TakeQuietly(Debit(b, Charge(l, 1))); !out.Allowed {
			e.Errorf("refused: %s", Show(out))
		}
	})
	if e.Failed() {
		return
	}
	wantKept(e, b)
}
