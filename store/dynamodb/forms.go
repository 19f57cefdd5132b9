package dynamodb

import "time"

// choose picks the form in which a debit expects its limit's level. It goes by the last sight and, if others write too,
// by how much of the limit they have used lately.
//
// With a guard, the running form also works for a level that has just fallen below the clock, without knowing whether
// it has. The guard is debited in addition, so that the level cannot end up lower than it should. A write chooses the
// guard so that the level stays close to the clock: it takes what would otherwise have been refilled unused. What is
// given away in total stays within ten times [Config.Guard], by default a tenth of the burst, however many writers
// there are, because the form also asserts that the level is at most that far above the clock.
func (sh *shard) choose(b *batch, p *part) {
	clock, burst := b.place.clock(p.params, b.now), b.place.burst(p.params)
	p.form, p.guard = full, 0
	if !p.has {
		return
	}
	if p.level >= clock {
		p.form = running
	}
	most := int64(sh.s.cfg.Guard * float64(burst))
	if p.sum == 0 || p.bound < p.sum || most <= 0 || !sh.busy() || p.level > clock+5*most {
		return
	}
	var g int64
	if sh.misses > 0 { // the sight is a round trip old
		g = min(b.place.clock(p.params, b.now+int64(10*time.Millisecond))-clock, burst/10)
		if p.level < clock-g || p.level > clock+g {
			return
		}
	} else if g = sh.pace.spare(b, p); g < 0 || g > most {
		return
	}
	if clock+burst-p.bound-g >= clock {
		p.form, p.guard, p.ceiling = running, g, clock+max(10*most, g)
	}
}

// pace measures how much of a limit all processes used lately.
type pace struct{ from, next *item }

// paceOver is the shortest time that pace measures over. If writes are frequent, the longest is twice that.
const paceOver = int64(time.Second)

func (pc *pace) read(it *item) {
	if pc.next == nil || pc.next.id != it.id || it.at < pc.next.at {
		pc.from, pc.next = it, it
	} else if it.at-pc.next.at >= paceOver {
		pc.from, pc.next = pc.next, it
	}
}

// spare returns how much each write would have to debit of a limit in addition, so that 95 % of what the clock issues
// is used. It is negative if that is unknown.
func (pc *pace) spare(b *batch, p *part) int64 {
	it, from := b.seen, pc.from
	if from == nil || it.id != from.id || it.writes-from.writes < 8 {
		return -1
	}
	is, was := it.find(p.name), from.find(p.name)
	if is == nil || was == nil {
		return -1
	}
	used := is.debited - is.returned - (was.debited - was.returned)
	issued := b.place.clock(p.params, it.at) - b.place.clock(p.params, from.at)
	return max(0, int64(paceShare*float64(issued))-used) / (it.writes - from.writes)
}

const paceShare = 0.95
