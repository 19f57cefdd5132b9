package history

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// hold is a debit of a lease, as far as it is kept.
type hold struct {
	at     time.Time
	kept   int64
	issued int64 // by the limits in force, until the debit
}

// strictLease is a lease of a strict limit.
type strictLease struct {
	since time.Time
	epoch uint64
	limit *store.Limit
	holds []int // its debits, by index
}

// strictPlay is a history of leases of one strict limit, whose parameters change.
type strictPlay struct {
	e      *Env
	limit  *store.Limit
	unit   time.Duration // of waits
	epoch  uint64
	issued int64 // until now
	last   time.Time
	holds  []hold
	leases []strictLease
}

// strictKeeps checks that over any stretch of time that ends with an admitted take, what leases keep of debits made
// within it never exceeds the burst and what was issued in it: with several leases, partial returns, debits forced on a
// lease, and changes of the limit.
func strictKeeps(t testing.TB, h Harness) {
	t.Helper()
	strictly(t, h, Per("rps", 4, time.Second), time.Millisecond)
}

// quotaKeeps is strictKeeps with a quota of an hour, which does not change: what was spent within the former one counts
// at most as one whole window.
func quotaKeeps(t testing.TB, h Harness) {
	t.Helper()
	strictly(t, h, Quota("rph", 20, "hour@UTC"), time.Hour/1000)
}

func strictly(t testing.TB, h Harness, limit *store.Limit, unit time.Duration) {
	t.Helper()
	Property(t, h, func(rt *rapid.T) {
		e, done := openOnce(rt, t, h, Noon)
		defer done()
		p := &strictPlay{e: e, epoch: 1, last: e.Clock.Now(), limit: limit, unit: unit}
		for range rapid.IntRange(5, 30).Draw(rt, "operations") {
			if err := p.step(rt); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

func (p *strictPlay) step(rt *rapid.T) error {
	wait := rapid.SampledFrom([]int64{0, 0, 1, 125, 250, 333, 1000}).Draw(rt, "wait")
	p.e.Clock.Advance(time.Duration(wait) * p.unit)
	p.pass()
	b := Bucket("alice", "api")
	switch what := rapid.IntRange(0, 9).Draw(rt, "what"); {
	case what == 0 && !reckon.Quota(p.limit): // other limits, in force at once
		p.limit = Per("rps", rapid.SampledFrom([]int64{1, 4, 4, 20}).Draw(rt, "rate"), time.Second)
		p.epoch++
		p.e.Take(At(p.epoch, Debit(b, Charge(p.limit, 0))))
	case what < 5 || len(p.leases) == 0:
		n := rapid.Int64Range(1, p.limit.Burst/Token).Draw(rt, "take")
		out := p.e.Take(At(p.epoch, Debit(b, Charge(p.limit, n))))
		if !out.Allowed {
			return nil
		}
		p.leases = append(p.leases, strictLease{since: out.At, epoch: p.epoch, limit: p.limit})
		p.debit(&p.leases[len(p.leases)-1], n*Token)
		return p.check()
	case what == 5:
		l := &p.leases[rapid.IntRange(0, len(p.leases)-1).Draw(rt, "lease")]
		n := rapid.Int64Range(1, 5).Draw(rt, "more")
		p.e.Settle(At(p.epoch, Debit(b, p.charge(p.limit, n*Token))))
		p.debit(l, n*Token)
	default:
		p.giveBack(rt, b, &p.leases[rapid.IntRange(0, len(p.leases)-1).Draw(rt, "lease")])
	}
	return nil
}

// charge returns a strict charge. That on a quota is strict without being marked.
func (*strictPlay) charge(l *store.Limit, amount int64) store.Charge {
	return store.Charge{Limit: l, Amount: amount, Strict: !reckon.Quota(l)}
}

// pass counts what was issued since the last step.
func (p *strictPlay) pass() {
	now := p.e.Clock.Now()
	p.issued += reckon.Reading(p.limit, now) - reckon.Reading(p.limit, p.last)
	p.last = now
}

func (p *strictPlay) debit(l *strictLease, amount int64) {
	l.holds = append(l.holds, len(p.holds))
	p.holds = append(p.holds, hold{p.last, amount, p.issued})
}

// giveBack returns a part of a lease. Which of its debits that is a part of makes no difference to the bound.
func (p *strictPlay) giveBack(rt *rapid.T, b store.Bucket, l *strictLease) {
	total := int64(0)
	for _, i := range l.holds {
		total += p.holds[i].kept
	}
	if total == 0 {
		return
	}
	amount := rapid.Int64Range(1, total/Token).Draw(rt, "return") * Token
	left := amount
	backwards := rapid.Bool().Draw(rt, "of the last")
	for n := range l.holds {
		i := l.holds[n]
		if backwards {
			i = l.holds[len(l.holds)-1-n]
		}
		part := min(left, p.holds[i].kept)
		p.holds[i].kept -= part
		left -= part
	}
	p.e.SettleOnce(store.Settle{
		Debits: []store.Debit{At(l.epoch, Debit(b, p.charge(l.limit, -amount)))},
		Since:  l.since,
	})
}

// check checks every stretch that ends now. Each change of the limit may cost a millitoken, but never grants one.
func (p *strictPlay) check() error {
	kept := int64(0)
	for i := len(p.holds) - 1; i >= 0; i-- {
		kept += p.holds[i].kept
		if most := p.limit.Burst + p.issued - p.holds[i].issued; kept > most {
			return fmt.Errorf("%d are kept of what was debited from %v to %v, at most %d were to be had",
				kept, p.holds[i].at, p.last, most)
		}
	}
	return nil
}
