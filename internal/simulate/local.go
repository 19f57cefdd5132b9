package simulate

import (
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/breaker"
	"github.com/weirlimits/weir/internal/bucket"
	"github.com/weirlimits/weir/store"
)

// payEvery is after what time what is owed is paid, give or take a half: as in the limiter.
const payEvery = int64(time.Second)

// degrade answers without the store.
func (p *process) degrade(j *job) {
	j.answered = true
	allowed := false
	switch p.s.cfg.OnUnavailable {
	case Allow:
		allowed = true
	case Local:
		out, ok := p.s.shares.Take(j.m.debits, p.s.healthy(p.cell), bucket.Time(p.clock()))
		if allowed = ok && out.Allowed; allowed {
			p.owe(j.m, j.amount)
		}
	case Deny:
	}
	if allowed {
		p.cell.admitted(j.m.entity, j.amount, p.s.now)
	}
	p.s.tell(p, j, allowed, true)
}

// warm has what the store decided count against the process's own part.
func (p *process) warm(j *job, allowed bool) {
	if !p.s.trouble || p.s.cfg.OnUnavailable != Local {
		return
	}
	now := p.clock()
	level := p.cell.params.Clock(now)
	for _, l := range j.m.lanes {
		if l.known && l.seen.exists {
			level += bucket.Outstanding(l.seen.level, l.place().clock(l.params(), now))
		}
	}
	out := store.Outcome{Allowed: allowed, At: bucket.Time(now), Levels: []store.Level{{Limit: &p.cell.limit, Level: level, Refused: !allowed}}}
	p.s.shares.Warm(j.m.debits, &out, p.s.healthy(p.cell), out.At)
}

// owe notes what the store is to be told.
func (p *process) owe(m *memory, amount int64) {
	m.owed += amount
	if !slices.Contains(p.due, m) {
		p.due = append(p.due, m)
	}
	p.paySoon()
}

// paySoon has what is owed paid, at random: or a fleet would ask in step.
func (p *process) paySoon() {
	s := p.s
	if p.paying || len(p.due) == 0 || s.now > int64(s.cfg.For) {
		return
	}
	p.paying = true
	s.after(payEvery/2+s.dice.Int64N(payEvery), func() {
		p.paying = false
		if call, ok := p.breaker.Begin(); ok && !p.pay(call) {
			call.Done(breaker.Unknown)
		}
		p.paySoon()
	})
}

// pay charges the first of what is owed to the store: as much as the share's clock has not covered.
func (p *process) pay(call breaker.Call) bool {
	for len(p.due) > 0 {
		m := p.due[0]
		p.due = p.due[1:]
		amount := p.s.shares.Bill(m.debits[0].Bucket, &p.cell.limit, p.s.healthy(p.cell), bucket.Time(p.clock()), m.owed)
		m.owed = 0
		if amount <= 0 {
			continue
		}
		p.s.called(1) // the marker that has it applied once
		p.s.count.units++
		j := &job{p: p, m: m, amount: amount, forced: true, began: p.s.now, expires: p.s.now + callTimeout, call: call}
		p.pick(m).add(j)
		return true
	}
	return false
}

// paid goes on once the store has answered.
func (p *process) paid() {
	if len(p.due) == 0 {
		return
	}
	if call, ok := p.breaker.Begin(); ok && !p.pay(call) {
		call.Done(breaker.Unknown)
	}
}

// time returns the virtual time for the breaker.
func (s *sim) time() time.Time { return time.Unix(0, s.now) }
