package plan

import "time"

// choose picks the form in which a debit expects its limit's level. It goes by the last item and, if others write too,
// by how much of the limit they have used lately.
//
// With a guard, the running form also works for a level that has just fallen below the clock, without knowing whether
// it has. The guard is debited in addition, so that the level cannot end up lower than it should. A write chooses the
// guard so that the level stays close to the clock: it takes what would otherwise have been refilled unused. What is
// given away in total stays within ten times [Rules.Guard], by default a tenth of the burst, however many writers there
// are, because the form also asserts that the level is at most that far above the clock.
func (p *planner) choose(part *Part) {
	on, now := p.w.On, p.w.Now
	clock, burst := on.Clock(part.Params, now), on.Burst(part.Params)
	if !part.Has {
		return
	}
	if part.Level >= clock {
		part.Form = Running
	}
	most := int64(p.s.Rules.Guard * float64(burst))
	if part.Sum == 0 || part.Bound < part.Sum || most <= 0 ||
		p.s.Others.Alone >= aloneAfter || part.Level > clock+5*most {
		return
	}
	var g int64
	if p.s.Misses > 0 { // the last item is a round trip old
		g = min(on.Clock(part.Params, now+int64(10*time.Millisecond))-clock, burst/10)
		if part.Level < clock-g || part.Level > clock+g {
			return
		}
	} else if g = p.s.Others.Pace.spare(&p.w, part); g < 0 || g > most {
		return
	}
	if clock+burst-part.Bound-g >= clock {
		part.Form, part.Guard, part.Ceiling = Running, g, clock+max(10*most, g)
	}
}

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
func (pc *Pace) spare(w *Write, part *Part) int64 {
	it, from := w.Last, pc.from
	if from == nil || it.ID != from.ID || it.Writes-from.Writes < 8 {
		return -1
	}
	is, was := it.Find(part.Name), from.Find(part.Name)
	if is == nil || was == nil {
		return -1
	}
	used := is.Debited - is.Returned - (was.Debited - was.Returned)
	issued := w.On.Clock(part.Params, it.At) - w.On.Clock(part.Params, from.At)
	return max(0, int64(paceShare*float64(issued))-used) / (it.Writes - from.Writes)
}

const paceShare = 0.95
