package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// owedScenarios check that a bucket is kept for as long as any of its limits owes anything, whichever limit that is and
// whichever call has charged it.
func owedScenarios() []scenario {
	return []scenario{
		{name: "several limits", run: each(owedLimits)},
		{name: "settled", run: each(owedSettled)},
		{name: "one limit after another", run: each(owedAfter)},
		{name: "takes at once", run: each(owedAtOnce)},
	}
}

// owing returns limits of which a token is owed for a second, and for an hour, a day and a year.
func owing() []*store.Limit {
	return []*store.Limit{
		per("rps", 1, time.Second), per("rph", 1, time.Hour), per("rpd", 1, 24*time.Hour),
		per("rpy", 1, 365*24*time.Hour),
	}
}

// owingOrders calls f with a bucket of its own and the limits, once for each limit that comes first.
func owingOrders(name string, f func(b store.Bucket, limits []*store.Limit)) {
	for i := range owing() {
		limits := owing()
		f(bkt(fmt.Sprint(name, "-", i), "api"), slices.Concat(limits[i:], limits[:i]))
	}
}

// wantKept checks that the store keeps what a bucket owes until it owes nothing.
func (e *env) wantKept(buckets ...store.Bucket) {
	e.Helper()
	for _, b := range buckets {
		st, now := e.state(b)
		if st.ID == 0 {
			e.Fatalf("%v is gone", b)
		}
		if e.h.Kept == nil {
			continue
		}
		kept := e.h.Kept(e.outer, e.store, b)
		for _, m := range st.Limits {
			if owed := reckon.Outstanding(m.Limit, m.Level, now.Add(kept)); owed > 0 {
				e.Fatalf("%v is kept for %v, when it still owes %d millitokens of %s", b, kept, owed, m.Limit.Name)
			}
		}
	}
	if !e.h.Caps.HandClock {
		return
	}
	// A year less a day later, after births that make a store look for what it can forget.
	e.clock.Advance(364 * 24 * time.Hour)
	for i := range e.some(2000) {
		e.allow(debit(bkt(fmt.Sprint("newcomer-", i), "api"), charge(perMinute("rpm", 60), 1)))
	}
	for _, b := range buckets {
		if st, _ := e.state(b); st.ID == 0 {
			e.Fatalf("%v is forgotten a day before its last limit is full", b)
		}
	}
}

func owedLimits(e *env) {
	var buckets []store.Bucket
	owingOrders("taken", func(b store.Bucket, limits []*store.Limit) {
		d := debit(b)
		for _, l := range limits {
			d.Charges = append(d.Charges, charge(l, 1))
		}
		e.allow(d)
		buckets = append(buckets, b)
	})
	e.wantKept(buckets...)
}

// owedSettled forces debts, in a settle, on buckets that owed nothing for long.
func owedSettled(e *env) {
	var buckets []store.Bucket
	owingOrders("settled", func(b store.Bucket, limits []*store.Limit) {
		born, debts := debit(b), debit(b)
		for _, l := range limits {
			born.Charges = append(born.Charges, charge(l, 0))
			debts.Charges = append(debts.Charges, charge(l, 1))
		}
		e.allow(born)
		e.settle(debts)
		buckets = append(buckets, b)
	})
	e.wantKept(buckets...)
}

// owedAfter charges one limit after another, so that later charges are of limits that owe for a shorter time.
func owedAfter(e *env) {
	var buckets []store.Bucket
	owingOrders("after", func(b store.Bucket, limits []*store.Limit) {
		for _, charged := range limits {
			d := debit(b)
			for _, l := range limits {
				c := charge(l, 0)
				if l == charged {
					c = charge(l, 1)
				}
				d.Charges = append(d.Charges, c)
			}
			e.allow(d)
		}
		buckets = append(buckets, b)
	})
	e.wantKept(buckets...)
}

// owedAtOnce takes from one bucket at once, so that a store that shares writes among takes lengthens its life again.
func owedAtOnce(e *env) {
	b, l := bkt("alice", "api"), &store.Limit{Name: "rpy", Amount: tok, Period: 365 * 24 * time.Hour, Burst: 100 * tok}
	e.each(100, func(int) {
		if out := e.takeQuietly(debit(b, charge(l, 1))); !out.Allowed {
			e.Errorf("refused: %s", show(out))
		}
	})
	if e.Failed() {
		return
	}
	e.wantKept(b)
}
