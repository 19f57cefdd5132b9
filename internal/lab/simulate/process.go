package simulate

import (
	"math"
	"strconv"

	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/internal/outage/breaker"
	"github.com/weirlimits/weir/internal/outage/share"
	"github.com/weirlimits/weir/store"
)

// process is one deciding process.
type process struct {
	s       *sim
	cell    *cell
	number  int // counted from 0
	skew    int64
	breaker *breaker.Breaker
	buckets map[int]*memory
	known   bool          // the store has answered it
	shares  *share.Shares // of a process that began without the store; nil: those shared by all others

	due    []*memory // buckets that owe the store what was admitted from shares
	paying bool      // a payment is scheduled
	hurry  bool      // soon, because the store answers again
	unpaid int       // consecutive failed payments
	back   bool      // it has called successfully since the last outage
}

// memory is what a process remembers of a bucket.
type memory struct {
	entity  int
	n       int // known shards
	lanes   []*lane
	debits  []store.Debit // of a decision
	owed    int64
	sending int64 // being paid, or to be paid again: the outcome is unknown
	paying  bool

	moving  []*job // that wait until the number of shards is known
	growing bool   // being split by this process
}

// job is a decision requested from the store, a part of one, or the payment of a debt.
type job struct {
	m        *memory
	amount   int64
	plan     plan.Job
	began    int64
	expires  int64
	tried    []*lane // lanes that refused it
	rounds   int     // in which it was gathered from several shards
	known    bool    // its lane had seen the item when it was placed there
	at       int64   // when the write that admitted it was sent
	took     plan.Answer
	of       *gather // of which it is a part
	call     breaker.Call
	answered bool
}

// forced reports whether a job pays a debt.
func (j *job) forced() bool { return j.plan.Kind == plan.Settle }

// take returns a job that takes an amount.
func (c *cell) take(amount int64) plan.Job {
	return plan.Job{Kind: plan.Take, View: c.view, Amounts: []int64{amount}, Counts: true}
}

// clock returns the time by the process's clock, in nanoseconds since clock.Epoch.
func (p *process) clock() int64 { return begin + p.s.now + p.skew }

func (p *process) memory(entity int) *memory {
	m := p.buckets[entity]
	if m == nil {
		m = &memory{entity: entity, n: 1, debits: []store.Debit{{
			// Each process has its own shares.
			Bucket:  store.Bucket{Namespace: strconv.Itoa(p.number), Entity: strconv.Itoa(entity)},
			Charges: []store.Charge{{Limit: &p.cell.limit, Amount: p.s.cfg.Tokens * 1000}},
		}}}
		p.buckets[entity] = m
	}
	return m
}

func (m *memory) lane(p *process, k int) *lane {
	for len(m.lanes) <= k {
		state := plan.State{Rules: &p.s.rules, Latest: math.MinInt64}
		m.lanes = append(m.lanes, &lane{p: p, m: m, k: len(m.lanes), state: state})
	}
	return m.lanes[k]
}

// anybody is whose every call is: outages concern all buckets alike.
func anybody() breaker.Key { return breaker.Key{} }

// decide starts a decision.
func (p *process) decide(entity int) {
	s := p.s
	j := &job{
		m: p.memory(entity), amount: s.cfg.Tokens * 1000, began: s.now, expires: s.now + int64(s.cfg.Within),
	}
	j.plan = p.cell.take(j.amount)
	j.plan.MayMove = s.cfg.MaxShards > 1
	var ok bool
	if j.call, ok = p.breaker.Begin(anybody); !ok {
		p.degrade(j)
		return
	}
	s.at(j.expires, func() { p.late(j) })
	p.pick(j.m, nil).submit(j)
}

// pick returns a shard's lane: of two random ones, the one with more room.
func (p *process) pick(m *memory, but *lane) *lane {
	if m.n == 1 {
		return m.lane(p, 0)
	}
	random := func() *lane {
		if but == nil {
			return m.lane(p, p.s.dice.IntN(m.n))
		}
		return m.lane(p, (but.k+1+p.s.dice.IntN(m.n-1))%m.n)
	}
	a, b := random(), random()
	if a.room() < b.room() {
		return b
	}
	return a
}

// submit lets a lane decide.
func (l *lane) submit(j *job) {
	if l.local(j) {
		j.known = false // it did not reach the item
		l.p.refused(j, l)
		return
	}
	l.add(j)
}

// refused ends a decision that a shard refused, unless others have room for it: see elsewhere.go.
func (p *process) refused(j *job, by *lane) {
	switch {
	case j.answered:
	case j.of != nil:
		j.answered = true
		p.s.after(0, func() { j.of.partDone(p, j, false) })
	case j.m.n == 1:
		p.answer(j, false)
	default: // deferred: the lane is in the middle of its planning
		p.s.after(0, func() {
			if !j.answered && !p.elsewhere(j, by) {
				p.answer(j, false)
			}
		})
	}
}

// takeAnswer handles a lane's answer to a job.
func (p *process) takeAnswer(j *job, l *lane, a plan.Answer) {
	switch {
	case j.plan.Kind == plan.Undo:
	case a.Verdict == plan.Moved:
		p.moved(j, l, a.Item)
	case a.Verdict == plan.Refused:
		p.refused(j, l)
	case a.Verdict != plan.Allowed:
	case j.answered && j.plan.Kind == plan.Take: // its caller has left: return the tokens
		l.undo(a)
	case j.answered: // it was paid all the same
		j.m.sending = 0
	default:
		if j.took = a; j.plan.Kind == plan.Take && j.of == nil {
			p.s.admitted(j.m.entity, j.amount, j.at)
		}
		p.answer(j, true)
	}
}

// answer ends a decision with the store's answer.
func (p *process) answer(j *job, allowed bool) {
	j.answered = true
	if j.of != nil {
		j.of.partDone(p, j, allowed)
		return
	}
	j.call.Done(breaker.Key{}, breaker.Succeeded)
	if j.forced() {
		p.unpaid = 0
		p.s.called(1) // the marker that makes it apply only once
		p.s.wrote(1)
		if j.m.paying, j.m.sending = false, 0; j.m.owed > 0 {
			p.owes(j.m)
		}
		p.paid()
		return
	}
	p.s.record(p, j, allowed, false)
	p.warm(j, allowed)
}

// late ends a decision whose time is up.
func (p *process) late(j *job) {
	if j.answered {
		return
	}
	j.call.Done(breaker.Key{}, breaker.Failed)
	if j.forced() {
		p.unpaid++
		j.answered, j.m.paying = true, false
		p.owes(j.m)
		return
	}
	p.degrade(j)
}
