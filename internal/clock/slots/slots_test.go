package slots_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/clock/slots"
)

const t0 = 1_000_000 * second

var five = slots.Limit{Slots: 5, Heal: 30 * second, Skew: 2 * second}

// TestHold checks for how long a lease is valid without a renewal.
func TestHold(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		now := r.Int64N(4*t0) - 2*t0 // also before the epoch
		h, ok := five.Take(slots.Held{Cur: 3, End: now - 3*second, Prev: 4, PrevEnd: now - 40*second}, now, 5)
		valid := five.Valid(h.End, now)
		if !ok || valid <= five.Heal-2*five.Skew || valid > 2*(five.Heal-five.Skew) || h.Total() != 5 {
			t.Fatalf("%+v, valid for %v", h, time.Duration(valid))
		}
	}
}

func TestTake(t *testing.T) {
	t.Parallel()
	h, _ := five.Take(slots.Held{}, t0, 3)
	if full, ok := five.Take(h, t0, 3); ok || full != h {
		t.Errorf("6 of 5: %+v", full)
	}
	if forced := five.Force(h, t0, 3); forced.Total() != 6 {
		t.Errorf("forced: %+v", forced)
	} else if _, ok := five.Take(forced, t0, 0); ok {
		t.Error("0 more than the limit allows were taken")
	}
	if later, ok := five.Take(h, t0+five.Heal, 2); !ok || later.Prev != 3 || later.Cur != 2 || later.PrevEnd != h.End {
		t.Errorf("in the next cohort: %+v", later)
	}
}

// TestHealsMeanwhile checks that the slots of a holder that is gone come back while others take and renew.
func TestHealsMeanwhile(t *testing.T) {
	t.Parallel()
	for _, skew := range []int64{-five.Skew, 0, five.Skew} { // of the others' clocks
		h := five.Force(slots.Held{}, t0+five.Skew, 2) // never renewed
		h, _ = five.Take(h, t0+skew, 3)
		end := h.End
		for now := t0; now <= t0+2*five.Heal+2*five.Skew; now += second {
			var ok bool
			if h, ok = five.Renew(h, now+skew, 3, end); !ok {
				t.Fatal("not renewed")
			}
			end = h.End
		}
		if n := h.Total(); n != 3 {
			t.Errorf("%d are held, want 3", n)
		}
	}
}

// TestReturns checks what a return gives back, of which cohort.
func TestReturns(t *testing.T) {
	t.Parallel()
	h := slots.Held{Cur: 2, End: t0 + 60*second, Prev: 3, PrevEnd: t0 + 30*second}
	for _, c := range []struct {
		what      string
		k, end    int64
		prev, cur int64
	}{
		{"current", 2, h.End, 3, 0},
		{"more than there is", 3, h.End, 3, 0},
		{"previous", 2, h.PrevEnd, 1, 2},
		{"renewed by a call without an answer", 4, h.PrevEnd, 0, 1},
		{"merged into the previous", 1, h.PrevEnd - five.Heal/2, 2, 2},
		{"dead by the clock of another", 1, t0 + five.Skew, 3, 2},
		{"in no cohort", 1, h.End + five.Heal, 3, 2},
	} {
		if got := five.Release(h, t0, c.k, c.end); got.Prev != c.prev || got.Cur != c.cur {
			t.Errorf("%s: %+v", c.what, got)
		}
	}
}

// TestAhead checks that what a clock has written that was far ahead does not stay.
func TestAhead(t *testing.T) {
	t.Parallel()
	far := five.Force(slots.Held{}, t0+24*int64(time.Hour), 2)
	if !five.Ahead(far, t0) || five.Ahead(five.Force(slots.Held{}, t0, 2), t0) {
		t.Error("not told apart")
	}
	hour := slots.Limit{Slots: 5, Heal: int64(slots.MaxHeal), Skew: five.Skew}
	if h := hour.Force(slots.Held{}, t0+hour.Skew, 2); five.Ahead(h, t0-five.Skew) {
		t.Error("a heal time that was lowered counts as a clock that is ahead")
	}
	h, ok := five.Take(far, t0, 3)
	if valid := five.Valid(h.End, t0); !ok || h.Total() != 5 || valid <= 2*(five.Heal-five.Skew) || valid > 3*five.Heal {
		t.Errorf("corrected: %+v", h)
	}
	if again, ok := five.Renew(h, t0, 2, far.End); ok || again != h {
		t.Errorf("renewed: %+v", again)
	}
	if again := five.Release(h, t0, 2, far.End); again != h {
		t.Errorf("given back: %+v", again)
	}
}
