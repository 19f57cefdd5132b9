package plan

import "time"

// Pace measures how much of a limit all processes used lately.
type Pace struct{ from, next *Item }

// paceOver is the shortest time that a pace measures over. If writes are frequent, the longest is twice that.
const paceOver = int64(time.Second)

func (pc *Pace) read(it *Item) {
	if pc.next == nil || pc.next.ID != it.ID || it.At < pc.next.At {
		pc.from, pc.next = it, it
	} else if it.At-pc.next.At >= paceOver {
		pc.from, pc.next = pc.next, it
	}
}

// spare returns how much each write would have to debit of a limit in addition, so that 95 % of what the clock issues
// is used. It is negative if that is unknown.
func (pc *Pace) spare(w *Write, total *Total) int64 {
	it, from := w.Last, pc.from
	if from == nil || it.ID != from.ID || it.Writes-from.Writes < 8 {
		return -1
	}
	is, was := it.Find(total.Name), from.Find(total.Name)
	if is == nil || was == nil {
		return -1
	}
	used := is.Debited - is.Returned - (was.Debited - was.Returned)
	issued := w.On.Clock(total.Params, it.At) - w.On.Clock(total.Params, from.At)
	return max(0, int64(paceTarget*float64(issued))-used) / (it.Writes - from.Writes)
}

const paceTarget = 0.95
