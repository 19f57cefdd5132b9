package weir

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

func partOn(epoch uint64, entity string, amount int64, limits ...store.Limit) part {
	d := store.Debit{Bucket: store.Bucket{Namespace: "n", Entity: entity, Resource: "r"}, Epoch: epoch}
	for i := range limits {
		d.Charges = append(d.Charges, store.Charge{Limit: &limits[i], Amount: amount})
	}
	return part{debits: []store.Debit{d}}
}

func limit(name string, amount int64, override bool) store.Limit {
	return store.Limit{Name: name, Amount: amount, Period: time.Minute, Burst: amount, Override: override}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	own, own2, over := limit("rpm", 5000, false), limit("tpm", 7000, false), limit("rpm", 5000, true)
	m := merge([]part{
		partOn(0, "a", 1000, over), partOn(3, "a", 2000, own, own2), partOn(4, "b", 1000, own), partOn(2, "a", 500, own, own2),
		partOn(0, "a", 250, over),
	})
	if m.stale || len(m.debits) != 2 {
		t.Fatalf("%+v", m)
	}
	a, b := m.debits[0], m.debits[1]
	if a.Epoch != 3 || b.Epoch != 4 { // equal limits: the newer epoch applies
		t.Errorf("epochs %d and %d", a.Epoch, b.Epoch)
	}
	want := []store.Charge{{Limit: &over, Amount: 1250}, {Limit: &own, Amount: 2500}, {Limit: &own2, Amount: 2500}}
	for i, c := range a.Charges {
		if *c.Limit != *want[i].Limit || c.Amount != want[i].Amount {
			t.Errorf("charge %d: %+v of %d", i, *c.Limit, c.Amount)
		}
	}
	if len(a.Charges) != 3 || len(b.Charges) != 1 || m.check() != nil {
		t.Errorf("%+v", m)
	}
}

// A bucket cannot have two sets of limits: one of the parts was resolved from outdated records.
func TestMergeStale(t *testing.T) {
	t.Parallel()
	rpm, tpm, lower := limit("rpm", 5000, false), limit("tpm", 7000, false), limit("rpm", 3000, false)
	for name, other := range map[string]part{
		"other parameters": partOn(2, "a", 0, lower, tpm),
		"one more":         partOn(2, "a", 0, rpm, tpm, limit("x", 1000, false)),
		"one less":         partOn(2, "a", 0, rpm),
	} {
		first := partOn(1, "a", 0, rpm, tpm)
		if m := merge([]part{first, other}); !m.stale {
			t.Errorf("%s: not noticed", name)
		}
		if m := merge([]part{partOn(0, "a", 0, limit("o", 1000, true)), other, first}); !m.stale {
			t.Errorf("%s: not noticed in the other order", name)
		}
	}
	if m := merge([]part{partOn(1, "a", 0, rpm), partOn(2, "b", 0, lower)}); m.stale {
		t.Error("other buckets may have other limits")
	}
}

func TestMergeDoesNotWrap(t *testing.T) {
	t.Parallel()
	most := store.Limit{Name: "x", Amount: 1000, Period: time.Minute, Burst: clock.MaxBurst}
	var parts []part
	for n := range 64 {
		parts = append(parts, partOn(1, "a", clock.MaxBurst, most))
		if m := merge(parts); (m.check() != nil) != (n > 0) {
			t.Fatalf("%d bursts: %v", n+1, m.check())
		}
	}
}
