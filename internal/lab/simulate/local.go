package simulate

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/outage/breaker"
	"github.com/weirlimits/weir/internal/outage/share"
	"github.com/weirlimits/weir/store"
)

// payEvery is the time after which debts are paid, plus or minus a half. It doubles with each consecutive failed
// payment, up to maxWaits times, as in the limiter.
const (
	payEvery = int64(time.Second)
	maxWaits = 4
)

// degrade answers without the store.
func (p *process) degrade(j *job) {
	j.answered = true
	allowed := false
	switch p.s.cfg.OnUnavailable {
	case Allow:
		allowed = true
	case Local:
		out, ok := p.own().Take(j.m.debits, p.s.healthy(p.cell), clock.Time(p.clock()))
		if allowed = ok && out.Allowed; allowed {
			p.owe(j.m, j.amount)
		}
	case Deny:
	}
	if allowed {
		p.s.admitted(j.m.entity, j.amount, p.s.now)
	}
	p.s.record(p, j, allowed, true)
}

// own returns the process's shares. A process that the store has never answered has shares of its own, which begin when
// it does: see [share.Shares.Begin].
func (p *process) own() *share.Shares {
	if p.shares == nil && !p.known {
		p.shares = share.New(math.MaxInt)
		p.shares.Begin(clock.Time(begin + p.s.joinedAt(p.number) + p.skew))
	}
	return cmp.Or(p.shares, p.s.shares)
}

// warm charges the store's decision to the process's shares.
func (p *process) warm(j *job, allowed bool) {
	if !p.s.trouble || p.s.cfg.OnUnavailable != Local {
		return
	}
	if len(p.due) > 0 && !p.hurry { // the store answers: until it is paid, it admits what it believes to be left
		p.hurry = true
		p.s.after(p.s.dice.Int64N(payEvery/10), func() {
			p.hurry = false
			p.paid()
		})
	}
	now := p.clock()
	level := p.cell.params.Clock(now)
	for _, l := range j.m.lanes {
		if l.state.Last == nil {
			continue
		}
		if at, ok := l.state.Last.Level(p.cell.view.Names[0], now); ok {
			level += clock.Outstanding(at, l.place().Clock(p.cell.params, now))
		}
	}
	out := store.Outcome{
		Allowed: allowed, At: clock.Time(now),
		Levels: []store.Level{{Limit: &p.cell.limit, Level: level, Refused: !allowed}},
	}
	if !p.known {
		if p.known = true; p.shares != nil {
			p.shares.Begin(time.Time{})
		}
	}
	p.own().Warm(j.m.debits, &out, p.s.healthy(p.cell), out.At)
}

// owe records an amount that the store has to be charged.
func (p *process) owe(m *memory, amount int64) {
	m.owed += amount
	p.owes(m)
}

func (p *process) owes(m *memory) {
	if !slices.Contains(p.due, m) {
		p.due = append(p.due, m)
	}
	p.paySoon()
}

// paySoon schedules payment of what is owed, at a random time so that a fleet does not pay in step.
func (p *process) paySoon() {
	s := p.s
	if p.paying || len(p.due) == 0 || s.now > int64(s.cfg.For) {
		return
	}
	p.paying = true
	every := payEvery << min(p.unpaid, maxWaits)
	s.after(every/2+s.dice.Int64N(every), func() {
		p.paying = false
		if call, ok := p.breaker.Begin(anybody); ok && !p.pay(call) {
			call.Done(breaker.Key{}, breaker.Unknown)
		}
		p.paySoon()
	})
}

// pay charges the store for the first debt: as much as the share's clock has not covered. A payment whose outcome is
// unknown is repeated unchanged.
func (p *process) pay(call breaker.Call) bool {
	for i := 0; i < len(p.due); {
		m := p.due[i]
		if m.paying {
			i++
			continue
		}
		p.due = slices.Delete(p.due, i, i+1)
		if m.sending == 0 {
			m.sending = p.own().Bill(
				m.debits[0].Bucket, &p.cell.limit, p.s.healthy(p.cell), clock.Time(p.clock()), m.owed,
			)
			m.owed = 0
		}
		amount := m.sending
		if amount <= 0 {
			continue
		}
		m.paying = true
		j := &job{m: m, amount: amount, began: p.s.now, expires: p.s.now + callTimeout, call: call}
		j.plan = plan.Job{Kind: plan.Settle, View: p.cell.view, Amounts: []int64{amount}}
		p.s.at(j.expires, func() { p.late(j) })
		p.pick(m, nil).add(j)
		return true
	}
	return false
}

// paid continues to pay once the store has answered.
func (p *process) paid() {
	if len(p.due) == 0 {
		return
	}
	if call, ok := p.breaker.Begin(anybody); ok && !p.pay(call) {
		call.Done(breaker.Key{}, breaker.Unknown)
	}
}

// time returns the virtual time for the breaker.
func (s *sim) time() time.Time { return time.Unix(0, s.now) }
