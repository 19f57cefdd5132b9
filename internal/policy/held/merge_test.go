package held_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/policy/held"
	"github.com/weirlimits/weir/store"
)

func requestOn(epoch uint64, entity string, amount int64, limits ...store.Limit) []store.Debit {
	d := store.Debit{Bucket: store.Bucket{Namespace: "n", Entity: entity, Resource: "r"}, Epoch: epoch}
	for i := range limits {
		d.Charges = append(d.Charges, store.Charge{Limit: &limits[i], Amount: amount})
	}
	return []store.Debit{d}
}

func limitOf(name string, amount int64, override bool) store.Limit {
	return store.Limit{Name: name, Amount: amount, Period: time.Minute, Burst: amount, Override: override}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	own, own2, over := limitOf("rpm", 5000, false), limitOf("tpm", 7000, false), limitOf("rpm", 5000, true)
	m := held.Merge([][]store.Debit{
		requestOn(0, "a", 1000, over), requestOn(3, "a", 2000, own, own2), requestOn(4, "b", 1000, own), requestOn(2, "a", 500, own, own2),
		requestOn(0, "a", 250, over),
	})
	if m.Stale || len(m.Debits) != 2 {
		t.Fatalf("%+v", m)
	}
	a, b := m.Debits[0], m.Debits[1]
	if a.Epoch != 3 || b.Epoch != 4 { // equal limits: the newer epoch applies
		t.Errorf("epochs %d and %d", a.Epoch, b.Epoch)
	}
	want := []store.Charge{{Limit: &over, Amount: 1250}, {Limit: &own, Amount: 2500}, {Limit: &own2, Amount: 2500}}
	for i, c := range a.Charges {
		if *c.Limit != *want[i].Limit || c.Amount != want[i].Amount {
			t.Errorf("charge %d: %+v of %d", i, *c.Limit, c.Amount)
		}
	}
	if len(a.Charges) != 3 || len(b.Charges) != 1 {
		t.Errorf("%+v", m)
	}
}

// TestMergeSlots checks that a full limit of slots refuses merged requests only if one of them takes some.
func TestMergeSlots(t *testing.T) {
	t.Parallel()
	parallel := *store.Slots("parallel", 1000, time.Minute)
	none := requestOn(1, "a", 0, parallel)
	none[0].Charges[0].Force = true
	for _, with := range [][]store.Debit{none, requestOn(1, "a", 1000, parallel)} {
		m := held.Merge([][]store.Debit{none, with})
		if c := m.Debits[0].Charges[0]; c.Force != with[0].Charges[0].Force || c.Amount != with[0].Charges[0].Amount {
			t.Errorf("%d, forced %v", c.Amount, c.Force)
		}
	}
}

// TestMergeMany merges as many buckets as a batch may name, each of two requests.
func TestMergeMany(t *testing.T) {
	t.Parallel()
	rpm, requests := limitOf("rpm", 5000, false), [][]store.Debit(nil)
	for n := range 1000 {
		requests = append(requests, requestOn(1, fmt.Sprint(n/2), int64(n), rpm))
	}
	m := held.Merge(requests)
	if len(m.Debits) != 500 || m.Stale {
		t.Fatalf("%d buckets", len(m.Debits))
	}
	for n, from := range m.From {
		c := m.Debits[n/2].Charges
		if len(from) != 1 || from[0] != n/2 || len(c) != 1 || c[0].Amount != int64(n/2*4+1) {
			t.Fatalf("request %d: %v of %+v", n, from, c)
		}
	}
}

// A bucket cannot have two sets of limits: one of the requests was resolved from outdated records.
func TestMergeStale(t *testing.T) {
	t.Parallel()
	rpm, tpm, lower := limitOf("rpm", 5000, false), limitOf("tpm", 7000, false), limitOf("rpm", 3000, false)
	for name, other := range map[string][]store.Debit{
		"other parameters": requestOn(2, "a", 0, lower, tpm),
		"one more":         requestOn(2, "a", 0, rpm, tpm, limitOf("x", 1000, false)),
		"one less":         requestOn(2, "a", 0, rpm),
	} {
		first := requestOn(1, "a", 0, rpm, tpm)
		if m := held.Merge([][]store.Debit{first, other}); !m.Stale {
			t.Errorf("%s: not noticed", name)
		}
		if m := held.Merge([][]store.Debit{requestOn(0, "a", 0, limitOf("o", 1000, true)), other, first}); !m.Stale {
			t.Errorf("%s: not noticed in the other order", name)
		}
	}
	if m := held.Merge([][]store.Debit{requestOn(1, "a", 0, rpm), requestOn(2, "b", 0, lower)}); m.Stale {
		t.Error("other buckets may have other limits")
	}
}

func TestMergeDoesNotWrap(t *testing.T) {
	t.Parallel()
	most := store.Limit{Name: "x", Amount: 1000, Period: time.Minute, Burst: clock.MaxBurst}
	var requests [][]store.Debit
	for n := range 64 {
		requests = append(requests, requestOn(1, "a", clock.MaxBurst, most))
		if sum := held.Merge(requests).Debits[0].Charges[0].Amount; (sum > clock.MaxBurst) != (n > 0) || sum < clock.MaxBurst {
			t.Fatalf("%d bursts: %d", n+1, sum)
		}
	}
}
