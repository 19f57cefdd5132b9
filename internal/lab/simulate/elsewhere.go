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
	moved bool // a part must be placed anew
	yes   []bool
}

// elsewhere tries other shards after one has refused: the two with the most room, then several together, as long as
// they seem to have enough between them. It does not if other processes take what the shard seemed to have.
func (p *process) elsewhere(j *job, by *lane) bool {
	if p.contended(j, by) {
		return false
	}
	if j.rounds == 0 && len(j.tried) < 3 {
		j.tried = append(j.tried, by)
		if l := p.roomiest(j); l != nil && len(j.tried) < 3 {
			l.add(j)
			return true
		}
	}
	return p.gather(j)
}

// contended reports whether a shard refused although it seemed to have room, because other processes write to it.
func (p *process) contended(j *job, by *lane) bool {
	return j.known && by.state.Others.Alone == 0 && p.s.cfg.Hold > 0
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
	if j.rounds++; j.rounds > 4 {
		return false
	}
	g := &gather{whole: j}
	left := j.amount
	for _, l := range p.byRoom(j.m) {
		if got := min(left, l.room()); got > 0 {
			part := &job{m: j.m, amount: got, began: j.began, expires: j.expires, of: g}
			part.plan = p.cell.take(got)
			part.plan.Counts = len(g.parts) == 0
			g.parts = append(g.parts, part)
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

// partDone handles the answer to a part.
func (g *gather) partDone(p *process, part *job, allowed bool) {
	g.open--
	g.yes[slices.Index(g.parts, part)] = allowed
	g.no = g.no || !allowed
	switch {
	case g.open > 0:
	case g.whole.answered, g.no:
		g.undo()
		p.s.after(0, func() {
			switch {
			case g.whole.answered:
			case g.moved:
				g.whole.m.relayout(p, g.whole)
			default:
				p.again(g.whole)
			}
		})
	default:
		at := p.s.now
		for _, part := range g.parts {
			at = min(at, part.at)
		}
		p.s.admitted(g.whole.m.entity, g.whole.amount, at)
		p.answer(g.whole, true)
	}
}

// again gathers a decision's tokens again after some shards refused, unless other processes take them.
func (p *process) again(j *job) {
	if !p.gather(j) {
		p.answer(j, false)
	}
}

// undo returns what was taken.
func (g *gather) undo() {
	for i, part := range g.parts {
		if g.yes[i] {
			g.yes[i] = false
			g.lanes[i].undo(part.took)
		}
	}
}
