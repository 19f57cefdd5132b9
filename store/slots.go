package store

import (
	"fmt"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/slots"
)

// ErrNoSlots reports a charge on a limit of slots to a store that has none. Nothing was charged. It matches
// [ErrInvalid].
var ErrNoSlots = fmt.Errorf("%w: this store cannot limit how much is held at once", ErrInvalid)

// Hold identifies the slots of a lease after a take or a renewal: all that it took of one limit of one bucket.
//
// They count until End, by the clocks of all processes, and are then free unless they were renewed. Renewing and giving
// back need the hold, and neither the bucket's limits nor its epoch. A hold whose slots no longer count cannot be
// renewed, and giving it back changes nothing.
//
// A take whose answer is lost may have taken slots, until they heal. One whose caller has gone, because its context has
// ended, gives them back when its answer arrives: see [GiveBack]. A renewal whose answer is lost changes nothing for
// the lease, and may be repeated. A return may not, unless the settle has an ID.
type Hold struct {
	Birth uint64 // of what the bucket has counted without a gap
	End   time.Time
	// Valid is how long the lease may use the slots, from when the request was sent that brought the hold, by whichever
	// of its clocks is earlier. Afterwards, others may hold them.
	Valid time.Duration
}

// Slots returns a limit of how much is held at once, in millislots.
func Slots(name string, most int64, heal time.Duration) *Limit {
	return &Limit{Name: name, Burst: most, Heal: heal}
}

// IsSlots reports whether a limit is one of slots. Such a limit and another one of the same name are different limits
// of a bucket, so that a limit that becomes one of slots, or ceases to be one, forgets nothing that is held.
func (l *Limit) IsSlots() bool { return l.Heal != 0 }

// HoldOf returns the hold of a lease whose slots count until end, by a decision at a time of a clock that is at most
// skew from true time, for drivers.
func HoldOf(l *Limit, birth uint64, end, at, skew int64) Hold {
	return Hold{
		Birth: birth, End: clock.Time(end), Valid: time.Duration(l.Params().Slots(skew).Valid(end, at)),
	}
}

// SetHeld sets Level and NextEnd of a limit of slots by what is held at a time of a clock that is at most skew from
// true time, for drivers.
func (s *LimitState) SetHeld(h slots.Held, now, skew int64) {
	s.Level, s.NextEnd = h.At(now, skew).Total(), time.Time{}
	if end, ok := h.Next(now, skew); ok {
		s.NextEnd = clock.Time(end)
	}
}

// GiveBack returns the debits of a settle that gives back the slots of a take, according to its levels; none if it took
// none. It is for an answer whose caller has gone.
func GiveBack(debits []Debit, levels []Level) (back []Debit) {
	for i := range debits {
		d := Debit{Bucket: debits[i].Bucket, Epoch: debits[i].Epoch}
		for _, c := range debits[i].Charges {
			if len(levels) == 0 {
				return back
			}
			if hold := levels[0].Hold; hold != nil {
				d.Charges = append(d.Charges, Charge{Limit: c.Limit, Amount: -c.Amount, Hold: hold})
			}
			levels = levels[1:]
		}
		if len(d.Charges) > 0 {
			back = append(back, d)
		}
	}
	return back
}

// RefuseSlots returns [ErrNoSlots] if a debit has a charge on a limit of slots, for drivers that have none.
func RefuseSlots(debits []Debit) error {
	for i := range debits {
		for j := range debits[i].Charges {
			if l := debits[i].Charges[j].Limit; l != nil && l.IsSlots() {
				return ErrNoSlots
			}
		}
	}
	return nil
}
