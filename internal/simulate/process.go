package simulate

import (
	"strconv"

	"github.com/weirlimits/weir/internal/breaker"
	"github.com/weirlimits/weir/store"
)

// process is one that decides.
type process struct {
	s       *sim
	cell    *cell
	number  int // from 0
	skew    int64
	breaker *breaker.Breaker
	buckets map[int]*memory

	due    []*memory // those that owe the store what was admitted from shares
	paying bool      // somebody sees to it
	back   bool      // it asks again since the last outage
}

// memory is what a process knows of a bucket.
type memory struct {
	entity int
	n      int // shards that are known of
	lanes  []*lane
	debits []store.Debit // a decision's
	owed   int64
}

// job is a decision that is asked of the store.
type job struct {
	p        *process
	m        *memory
	amount   int64
	forced   bool // it pays what is owed
	began    int64
	expires  int64
	since    int     // how many writes had been sent when it came
	came     int64   // when that was, by the process's clock
	tried    []*lane // that refused
	rounds   int     // in which it was gathered from several
	at       int64   // when the write was sent that admitted it
	of       *gather // it is a part of that
	call     breaker.Call
	answered bool
}

// clock returns the time by the process's clock, in nanoseconds since bucket.Epoch.
func (p *process) clock() int64 { return begin + p.s.now + p.skew }

func (p *process) memory(entity int) *memory {
	m := p.buckets[entity]
	if m == nil {
		m = &memory{entity: entity, n: 1, debits: []store.Debit{{
			Bucket:  store.Bucket{Namespace: strconv.Itoa(p.number), Entity: strconv.Itoa(entity)}, // each process has its shares
			Charges: []store.Charge{{Limit: &p.cell.limit, Amount: p.s.cfg.Tokens * 1000}},
		}}}
		p.buckets[entity] = m
	}
	return m
}

func (m *memory) lane(p *process, k int) *lane {
	for len(m.lanes) <= k {
		m.lanes = append(m.lanes, &lane{p: p, m: m, k: len(m.lanes)})
	}
	return m.lanes[k]
}

// decide begins a decision.
func (p *process) decide(entity int) {
	s := p.s
	j := &job{p: p, m: p.memory(entity), amount: s.cfg.Tokens * 1000, began: s.now, expires: s.now + int64(s.cfg.Within)}
	var ok bool
	if j.call, ok = p.breaker.Begin(); !ok {
		p.degrade(j)
		return
	}
	p.pick(j.m).ask(j)
}

// pick returns a shard's lane: of two at random that with more room.
func (p *process) pick(m *memory) *lane {
	if m.n == 1 {
		return m.lane(p, 0)
	}
	a, b := m.lane(p, p.s.dice.IntN(m.n)), m.lane(p, p.s.dice.IntN(m.n))
	if a.room() < b.room() {
		return b
	}
	return a
}

// ask has a lane decide.
func (l *lane) ask(j *job) {
	if l.local(j) {
		l.p.refused(j, l)
		return
	}
	l.add(j)
}

// refused ends a decision that a shard refused, unless others have room for it: see elsewhere.go.
func (p *process) refused(j *job, by *lane) {
	switch {
	case j.of != nil:
		j.answered = true
		j.of.told(p, j, false)
	case j.m.n == 1:
		p.answer(j, false)
	default: // not here: the lane is in the midst of its planning
		p.s.after(0, func() {
			if !p.elsewhere(j, by) {
				p.answer(j, false)
			}
		})
	}
}

// answer ends a decision by what the store said.
func (p *process) answer(j *job, allowed bool) {
	j.answered = true
	if j.of != nil {
		j.of.told(p, j, allowed)
		return
	}
	j.call.Done(breaker.Succeeded)
	if j.forced {
		p.paid()
		return
	}
	p.s.tell(p, j, allowed, false)
	p.warm(j, allowed)
}

// late ends a decision whose time is up.
func (p *process) late(j *job) {
	if j.answered || p.s.now < j.expires {
		return
	}
	if j.of != nil {
		j.answered = true
		j.of.late(p)
		return
	}
	j.call.Done(breaker.Failed)
	if j.forced {
		j.answered = true
		p.owe(j.m, j.amount)
		return
	}
	p.degrade(j)
}
