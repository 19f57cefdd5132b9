package simulate

import (
	"cmp"
	"slices"
)

// gather is a decision that takes its tokens from several shards, all or none.
type gather struct {
	whole *job
	parts []*job
	lanes []*lane
	open  int // parts not answered yet
	no    bool
	yes   []bool
}

// elsewhere tries other shards after one has refused: the two with the most room, then several together, as long as
// they seem to have enough between them. It does not while the bucket is short.
func (p *process) elsewhere(j *job, by *lane) bool {
	if p.short(j.m) {
		return false
	}
	if j.rounds == 0 && len(j.tried) < 3 {
		j.tried = append(j.tried, by)
		if l := p.roomiest(j); l != nil && len(j.tried) < 3 {
			j.hoped = true
			l.add(j)
			return true
		}
	}
	return p.gather(j)
}

// roomiest returns the untried shard with the most room, if that is enough.
func (p *process) roomiest(j *job) (best *lane) {
	most, first := j.amount-1, p.s.dice.IntN(j.m.n)
	for k := range j.m.n {
		l := j.m.lane(p, (first+k)%j.m.n)
		if slices.Contains(j.tried, l) {
			continue
		}
		if room := l.room(); room > most {
			best, most = l, room
		}
	}
	return best
}

func (p *process) gather(j *job) bool {
	if j.rounds++; j.rounds > 4 || p.short(j.m) {
		return false
	}
	g := &gather{whole: j}
	left := j.amount
	for _, l := range p.byRoom(j.m) {
		if got := min(left, l.room()); got > 0 {
			g.parts = append(g.parts, &job{
				p: p, m: j.m, amount: got, hoped: true, began: j.began, expires: j.expires, of: g,
			})
			g.lanes = append(g.lanes, l)
			left -= got
		}
	}
	if left > 0 {
		return false
	}
	g.open, g.yes = len(g.parts), make([]bool, len(g.parts))
	for i, l := range g.lanes {
		l.add(g.parts[i])
	}
	return true
}

// byRoom returns a bucket's lanes, the one with the most room first.
func (p *process) byRoom(m *memory) []*lane {
	type ranked struct {
		*lane

		room int64
	}
	all, first := make([]ranked, m.n), p.s.dice.IntN(m.n)
	for k := range all {
		l := m.lane(p, (first+k)%m.n)
		all[k] = ranked{l, l.room()}
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(b.room, a.room) })
	lanes := make([]*lane, m.n)
	for k, r := range all {
		lanes[k] = r.lane
	}
	return lanes
}

// told handles the answer to a part.
func (g *gather) told(p *process, part *job, allowed bool) {
	g.open--
	g.yes[slices.Index(g.parts, part)] = allowed
	g.no = g.no || !allowed
	switch {
	case g.open > 0:
	case g.whole.answered, g.no:
		g.undo()
		p.s.after(0, func() {
			if !g.whole.answered && !p.gather(g.whole) {
				p.answer(g.whole, false)
			}
		})
	default:
		at := p.s.now
		for _, part := range g.parts {
			at = min(at, part.at)
		}
		p.cell.admitted(g.whole.m.entity, g.whole.amount, at)
		p.answer(g.whole, true)
	}
}

// late ends the decision when the time of a part is up.
func (g *gather) late(p *process) {
	g.open--
	p.late(g.whole)
	if g.open == 0 {
		g.undo()
	}
}

// undo returns what was taken.
func (g *gather) undo() {
	for i, part := range g.parts {
		if g.yes[i] {
			g.yes[i] = false
			g.lanes[i].giveBack(part.amount)
		}
	}
}
