package inmem_test

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
)

// TestTakeOneOfSlots checks that TakeOne, which has no hold to answer with, leaves limits of slots to Take.
func TestTakeOneOfSlots(t *testing.T) {
	t.Parallel()
	r := setup(t, 10)
	d := debit(named("alice"), store.Slots("parallel", 60_000, time.Minute), 30)
	r.take(d)
	if allowed, ok := r.TakeOne(r.Find(d.Bucket), &d.Charges[0]); allowed || ok {
		t.Errorf("allowed %t, ok %t", allowed, ok)
	}
	if !r.take(d) || r.take(d) {
		t.Error("want the other half of the slots")
	}
}
