package simulate

import (
	"time"

	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/batch/plan"
)

// patience is the shortest time for which a process waits until others have split a bucket. The longest is three times
// that.
const patience = int64(250 * time.Millisecond)

// follow makes the bucket have n shards, and drops what was seen of shards when there was another number.
func (m *memory) follow(n int) {
	m.n = n
	for _, l := range m.lanes {
		if l.state.On = l.place(); l.state.Outdated() {
			l.state.Last, l.state.Refused.At = nil, time.Time{}
		}
	}
}

// moved places a job anew whose lane was outdated or throttled.
func (p *process) moved(j *job, from *lane, it *plan.Item) {
	p.s.after(0, func() { // deferred: a lane is in the middle of its planning
		m := j.m
		hot := it == nil && from.k < m.n
		if hot {
			j.plan.MayMove = false
		}
		switch {
		case j.answered:
		case j.of != nil:
			j.answered, j.of.moved = true, true
			j.of.partDone(p, j, false)
		case hot && m.n > 1:
			p.pick(m, from).add(j)
		case from.k == 0 && it != nil && !it.Frozen && it.Shards != m.n:
			m.follow(it.Shards)
			p.pick(m, nil).add(j)
		default:
			m.relayout(p, j)
		}
	})
}

// relayout places a job once shard 0 has shown how many shards there are.
func (m *memory) relayout(p *process, j *job) {
	if m.moving = append(m.moving, j); len(m.moving) == 1 {
		m.look(p, p.s.now, p.s.now+patience+p.s.dice.Int64N(2*patience))
	}
}

// look reads shard 0 until it is not frozen. If that takes too long, the process completes the split itself.
func (m *memory) look(p *process, begun, until int64) {
	s := p.s
	s.after(s.latency(), func() {
		root := p.cell.item(m.entity, 0).seen
		again := func() { m.look(p, begun, until) }
		switch {
		case s.down(p.cell) && s.now < begun+int64(writeTimeout):
			s.after(callTimeout, again)
		case !root.Frozen || s.now >= begun+int64(writeTimeout):
			if !root.Frozen {
				m.follow(root.Shards)
			}
			moving := m.moving
			m.moving = nil
			for _, j := range moving {
				if j.answered {
					continue
				}
				if j.plan.Kind == plan.Take && m.n > 1 && j.rounds > 0 {
					p.again(j)
				} else {
					p.pick(m, nil).add(j)
				}
			}
		case s.now < until:
			s.after(s.dice.Int64N(readPause)+1, again)
		default:
			m.double(p, root, again)
		}
	})
}

// grow splits the bucket into n shards, unless that is under way. Of several processes, only the one that freezes
// shard 0 makes the steps.
func (m *memory) grow(p *process, n int) {
	if m.growing || n > p.s.cfg.MaxShards {
		return
	}
	m.growing = true
	p.s.after(p.s.latency(), func() {
		done := func() { m.growing = false }
		root := p.cell.item(m.entity, 0).seen
		switch {
		case root.Frozen:
			done()
		case root.Exists && root.Shards < n:
			m.step(p, 0, root.FreezeRoot(p.clock()), func(it *plan.Item, applied bool) {
				if applied {
					m.double(p, it, done)
				} else {
					done()
				}
			})
		default:
			m.follow(root.Shards)
			done()
		}
	})
}

// double makes the steps that double the number of a bucket's shards, or those that are left, once shard 0 is frozen.
func (m *memory) double(p *process, root *plan.Item, done func()) {
	n, now := root.Shards, p.clock
	frozen := make([]*plan.Item, n)
	frozen[0] = root
	convert := func(k int) (int, *expr.Update) { return k, frozen[k].Convert(k, now()) }
	end := func() {
		if root := p.cell.item(m.entity, 0).seen; !root.Frozen {
			m.follow(root.Shards)
		}
		done()
	}
	steps := []struct {
		from, to int
		update   func(k int) (int, *expr.Update)
	}{
		{1, n, func(k int) (int, *expr.Update) { return k, plan.Freeze(plan.Place{K: k, N: n}, now()) }},
		{0, 1, func(int) (int, *expr.Update) { return 0, root.Outlive(plan.RootTTL(frozen, now()), now()) }},
		{0, n, func(k int) (int, *expr.Update) {
			p.s.births++
			return k + n, frozen[k].PutHalf(k, p.s.births, now())
		}},
		{1, n, convert},
		{0, 1, convert},
	}
	var next func(i int)
	next = func(i int) {
		if i == len(steps) {
			end()
			return
		}
		st := steps[i]
		open := st.to - st.from
		if open == 0 {
			next(i + 1)
		}
		for k := st.from; k < st.to; k++ {
			closed := func(it *plan.Item, _ bool) {
				if i == 0 {
					frozen[k] = it
				}
				if open--; open == 0 {
					next(i + 1)
				}
			}
			if i > 0 && !frozen[k].FrozenAs(n) {
				p.s.after(0, func() { closed(nil, false) }) // converted already
				continue
			}
			to, u := st.update(k)
			if u == nil {
				p.s.after(0, func() { closed(nil, false) })
				continue
			}
			m.step(p, to, u, closed)
		}
	}
	next(0)
}

// step makes a write until it is answered.
func (m *memory) step(p *process, k int, u *expr.Update, then func(it *plan.Item, applied bool)) {
	p.cell.update(m.entity, k, u, func(got plan.Got) {
		if got.Item == nil && p.s.now < int64(p.s.cfg.For) {
			p.s.after(p.s.dice.Int64N(int64(plan.StepPause)), func() { m.step(p, k, u, then) })
			return
		}
		if got.Item == nil {
			got.Item = plan.Missing // the simulation ends
		}
		if got.Applied && k == 0 && !got.Item.Frozen {
			p.s.count.splits++
		}
		then(got.Item, got.Applied)
	})
}
