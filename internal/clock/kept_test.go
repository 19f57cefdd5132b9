package clock_test

import (
	"slices"
	"testing"

	"github.com/weirlimits/weir/internal/clock"
)

// keptPlay is a history of leases of a limit with a burst of keptBurst that issues one unit each time unit.
type keptPlay struct {
	strict bool
	now    int64
	level  int64
	debits []keptDebit
}

type keptDebit struct {
	at, kept int64
	lease    int   // index of the lease's first debit
	since    int64 // of the lease
}

const keptBurst = 3

// explore tries every history of at most so many further steps: takes, debits forced on a lease, partial returns, and
// time that passes. After each take, what is kept of the debits since any earlier one must be covered.
func (p keptPlay) explore(steps int, found *bool, count *int) {
	*count++
	if steps == 0 || *found {
		return
	}
	params := clock.Params{Amount: 1, Period: 1, Burst: keptBurst}
	next := p
	next.now++
	next.explore(steps-1, found, count)
	for a := int64(1); a <= keptBurst; a++ {
		level, ok := params.Debit(p.level, p.now, a)
		if !ok {
			break
		}
		next := p
		next.level = level
		next.debits = p.with(keptDebit{p.now, a, len(p.debits), p.now})
		if !next.covered() {
			*found = true
			return
		}
		next.explore(steps-1, found, count)
	}
	for i := range p.debits {
		d := p.debits[i]
		if d.lease == i && len(p.debits) < 4 { // force two more on the lease
			next := p
			next.level = clock.Spend(p.level, p.now, 2)
			next.debits = p.with(keptDebit{p.now, 2, i, d.since})
			next.explore(steps-1, found, count)
		}
		for r := int64(1); r <= d.kept; r++ { // of any of its debits
			next := p
			next.debits = p.with()
			next.debits[i].kept -= r
			back := r
			if p.strict {
				back = clock.Unissued(r, d.since, p.now)
			}
			next.level = clock.Credit(p.level, back)
			next.explore(steps-1, found, count)
		}
	}
}

// with returns a copy of the debits, and more.
func (p *keptPlay) with(more ...keptDebit) []keptDebit { return slices.Concat(p.debits, more) }

// covered reports whether what is kept of the debits since any of them is at most the burst and what was issued since.
func (p *keptPlay) covered() bool {
	kept := int64(0)
	for i := len(p.debits) - 1; i >= 0; i-- {
		if kept += p.debits[i].kept; kept > keptBurst+p.now-p.debits[i].at {
			return false
		}
	}
	return true
}

// TestUnissuedBoundsWhatIsKept tries every short history: if returns give back only what was not issued again, no
// stretch of time keeps more than the burst and what it issues. If they give back all, some does.
func TestUnissuedBoundsWhatIsKept(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{true, false} {
		found, count := false, 0
		keptPlay{strict: strict}.explore(8, &found, &count)
		if found == strict {
			t.Errorf("strict %t: a history keeps more than it may: %t, of %d", strict, found, count)
		}
	}
}
