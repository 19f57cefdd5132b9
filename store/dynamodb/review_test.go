package dynamodb_test

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
)

// TestPrefetchMeltsOnce checks that however many takes a surplus serves, the part that the clock has passed is not handed
// out.
func TestPrefetchMeltsOnce(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s, other := st.open(noGuard, ahead(1)), st.open(noGuard)
	l, alice := per("rps", 10, time.Second, 10), bkt("alice")
	st.surplus(s, alice, l)
	st.clock.Advance(850 * time.Millisecond)
	got := 0
	for _, client := range []store.Store{other, s} {
		for range 20 {
			if st.take(client, of(alice, l, 1)).Allowed {
				got++
			}
		}
	}
	if got > 10 {
		t.Errorf("%d of 10 at one instant", got)
	}
}

// TestForcedZeroOverride checks that forcing an override by 0 does not use up places among the overrides again and again.
func TestForcedZeroOverride(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.open()
	b, rpm, over := bkt("a"), per("rpm", 6000, time.Minute, 6000), per("tpm", 100, time.Minute, 100)
	over.Override = true
	for range 40 {
		st.want(s, true, store.Debit{Bucket: b, Epoch: 1, Charges: []store.Charge{{Limit: rpm, Amount: 1000}, {Limit: over, Force: true}}})
	}
}

// TestSplitLevelComesMeanwhile checks that a limit in force has a level from the first debit on, even a debit of 0, so
// that a split divides all limits.
func TestSplitLevelComesMeanwhile(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	b, rpm, tpm := bkt("a"), per("rpm", 60, time.Minute, 60), per("tpm", 100, time.Minute, 100)
	d := func(n int64, force bool) store.Debit {
		return store.Debit{Bucket: b, Epoch: 1, Charges: []store.Charge{{Limit: rpm, Amount: 1000 * n}, {Limit: tpm, Force: force}}}
	}
	s, p := st.join()
	peer, _ := st.join()
	st.want(s, true, d(20, true))
	st.want(peer, true, d(1, true))
	p.before = func(string, any) error { p.before = nil; st.want(peer, true, d(1, false)); return nil }
	st.split(s, b, 2)
	if got := st.outstanding(b, "tpm"); got > 1 { // the millitoken that a split adds to a new half
		t.Errorf("%d outstanding", got)
	}
}

// TestForeignParameters checks that a limit that a process does not know keeps the parameters under which it was debited.
func TestForeignParameters(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s, _ := st.join()
	peer, _ := st.join()
	b, rpm := bkt("a"), per("rpm", 60, time.Minute, 60)
	x, y := per("tpm", 10, time.Hour, 10), per("tpm", 1000, time.Minute, 1000)
	st.want(s, true, of(b, rpm, 20))
	st.settle(peer, of(b, x, 10))
	st.settle(s, store.Debit{Bucket: b, Epoch: 1, Charges: []store.Charge{{Limit: rpm, Amount: 1000}, {Limit: y, Amount: -1000}}})
	fresh, _ := st.join()
	st.want(fresh, false, store.Debit{Bucket: b, Epoch: 2, Charges: []store.Charge{{Limit: rpm}, {Limit: x, Amount: 10_000}}})
}
