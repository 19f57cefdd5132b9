package simulate

import (
	"strconv"

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

// memory is what a process knows about a bucket.
type memory struct {
	entity  int
	n       int // known shards
	lanes   []*lane
	debits  []store.Debit // of a decision
	owed    int64
	sending int64 // being paid, or to be paid again: the outcome is unknown
	paying  bool

	flat      int   // generation of which a shard was last found missing, by its first shard; 0: none
	flatAt    int64 // when that was
	doubts    int
	doubtedAt int64
}

// job is a decision requested from the store.
type job struct {
	p        *process
	m        *memory
	amount   int64
	forced   bool // it pays a debt
	began    int64
	expires  int64
	since    int     // number of writes sent when it arrived
	came     int64   // when it arrived, by the process's clock
	tried    []*lane // lanes that refused it
	rounds   int     // in which it was gathered from several shards
	at       int64   // when the write that admitted it was sent
	of       *gather // of which it is a part
	call     breaker.Call
	answered bool

	heats  int  // throttled shards met in a bucket known to be split
	moves  int  // away from shards that were throttled or missing
	sought int  // first shard of the last generation that was tried
	hoped  bool // its shard was last seen to have room for it
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
		m.lanes = append(m.lanes, &lane{p: p, m: m, k: len(m.lanes)})
	}
	return m.lanes[k]
}

// decide starts a decision.
func (p *process) decide(entity int) {
	s := p.s
	j := &job{
		p: p, m: p.memory(entity), amount: s.cfg.Tokens * 1000, began: s.now, expires: s.now + int64(s.cfg.Within),
	}
	var ok bool
	if j.call, ok = p.breaker.Begin(); !ok {
		p.degrade(j)
		return
	}
	p.pick(j.m, nil).ask(j)
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

// ask lets a lane decide.
func (l *lane) ask(j *job) {
	j.hoped = j.m.n > 1 && l.room() >= j.amount
	if l.local(j) {
		j.hoped = false
		l.p.refused(j, l)
		return
	}
	l.add(j)
}

// refused ends a decision that a shard refused, unless others have room for it: see elsewhere.go.
func (p *process) refused(j *job, by *lane) {
	if by.alone == 0 { // otherwise its own debits explain the refusal
		p.judge(j, false)
	}
	switch {
	case j.of != nil:
		j.answered = true
		j.of.told(p, j, false)
	case j.m.n == 1:
		p.answer(j, false)
	default: // deferred: the lane is in the middle of its planning
		p.s.after(0, func() {
			if !p.elsewhere(j, by) {
				p.answer(j, false)
			}
		})
	}
}

// answer ends a decision with the store's answer.
func (p *process) answer(j *job, allowed bool) {
	j.answered = true
	if allowed {
		p.judge(j, true)
	}
	if j.of != nil {
		j.of.told(p, j, allowed)
		return
	}
	j.call.Done(breaker.Succeeded)
	if j.forced {
		p.unpaid = 0
		p.s.called(1) // the marker that makes it apply only once
		p.s.count.units++
		if j.m.paying, j.m.sending = false, 0; j.m.owed > 0 {
			p.owes(j.m)
		}
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
		p.unpaid++
		j.answered, j.m.paying = true, false
		p.owes(j.m)
		return
	}
	p.degrade(j)
}
