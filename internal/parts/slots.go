package parts

import (
	"sync/atomic"

	"github.com/weirlimits/weir/store"
)

// Slots counts what calls of a store changed of limits of slots. The zero value has counted nothing. It is safe for
// concurrent use.
type Slots struct{ taken, returned, lost atomic.Int64 }

// SlotStats are numbers of slots.
type SlotStats struct {
	Taken    int64
	Returned int64 // by who held them, in time or not
	Lost     int64 // because they were renewed too late
}

// Stats returns what has been counted.
func (s *Slots) Stats() SlotStats {
	return SlotStats{s.taken.Load() / 1000, s.returned.Load() / 1000, s.lost.Load() / 1000}
}

// count counts a take or settle that was answered. What was refused has no levels with holds.
func (s *Slots) count(debits []store.Debit, levels []store.Level) {
	for i := range debits {
		for j := range debits[i].Charges {
			if len(levels) == 0 {
				return
			}
			c, l := &debits[i].Charges[j], &levels[0]
			switch levels = levels[1:]; {
			case c.Hold == nil && l.Hold != nil:
				s.taken.Add(c.Amount)
			case c.Hold != nil && c.Amount < 0:
				s.returned.Add(-c.Amount)
			case c.Hold != nil && l.Refused:
				s.lost.Add(c.Amount)
			}
		}
	}
}
