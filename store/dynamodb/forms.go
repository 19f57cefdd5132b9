package dynamodb

import "time"

// choose picks the form in which a debit finds its limit's level: by what was last seen, and where others write too,
// by how much of the limit they have used lately.
//
// The guard lets the RUNNING form serve a level that has just fallen under the clock, without knowing whether it has:
// it is debited on top, so that the level cannot come to lie lower than it should. A write asks for as much as keeps
// the level about where the clock is: what would else have been refilled for nothing. What is given away so stays
// within a tenth of the burst, however many writers there are, since the form then also asks for a level of at most
// that much above the clock.
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

// pace tells by how much of a limit was used lately, by all processes.
type pace struct{ from, next *item }

// paceOver is over how long it is told at least, and twice that at most.
const paceOver = int64(time.Second)

func (pc *pace) read(it *item) {
	if pc.next == nil || pc.next.id != it.id || it.at < pc.next.at {
		pc.from, pc.next = it, it
	} else if it.at-pc.next.at >= paceOver {
		pc.from, pc.next = pc.next, it
	}
}

// spare returns what each write would have to debit of a limit on top so that nine tenths of what the clock issues
// are used. It is negative where that is not known.
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
