package governor

import (
	"context"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
)

// claim is what a call takes from one budget.
type claim struct {
	b        *budget
	estimate int64
	cost     int64
	known    bool // whether the cost was reported
}

// reserve debits all claims, or waits until it can: in the order of the budgets' ranks, on each in turn. A call that
// has waited for one budget keeps its turn there while it waits for the next, so at most one call is on its way
// through.
func (g *Governor) reserve(ctx context.Context, claims []claim) error {
	now := g.now()
	if allFree(claims, now) {
		return nil
	}
	until, err := g.deadline(ctx, claims, now)
	if err != nil {
		return err
	}
	for i, c := range claims {
		if err := c.b.enter(ctx, g, c.estimate, until); err != nil {
			for _, entered := range claims[:i] {
				entered.b.leave(entered.estimate, g.now())
			}
			return err
		}
	}
	now = g.now()
	for _, c := range claims {
		c.b.mu.Lock()
		// The debit was made when the turn came, and counts as made now: what was issued beyond the burst since is
		// lost.
		clock := c.b.params.Clock(now)
		c.b.level = max(c.b.level, clock+min(c.estimate, c.b.params.Burst))
		c.b.meter.waited += time.Since(until.began)
		c.b.pass(now)
		c.b.mu.Unlock()
	}
	return nil
}

// allFree debits all claims in one step, if every one fits.
func allFree(claims []claim, now int64) bool {
	fits := true
	for _, c := range claims {
		c.b.mu.Lock()
		fits = c.b.free(now, c.estimate) && fits
	}
	for _, c := range claims {
		if fits {
			c.b.debit(now, c.estimate)
		}
		c.b.mu.Unlock()
	}
	return fits
}

// patience is how long a call waits. Zero times mean no limit.
type patience struct {
	began, until time.Time
	max          time.Duration
}

// deadline refuses a call at once if it would have to wait longer than it may.
func (g *Governor) deadline(ctx context.Context, claims []claim, now int64) (patience, error) {
	p := patience{began: time.Now(), max: g.cfg.MaxWait}
	if p.max > 0 {
		p.until = p.began.Add(p.max)
	}
	for _, c := range claims {
		c.b.mu.Lock()
		wait, known := c.b.wait(now, c.b.queued+c.estimate)
		end, limited := ctx.Deadline()
		err := error(nil)
		switch {
		case !known:
		case p.max > 0 && wait > p.max:
			e := c.b.refuse(wait, p.max, nil)
			e.Never = c.estimate > c.b.most(p.max)
			err = e
		case limited && wait > end.Sub(p.began):
			err = c.b.refuse(wait, 0, context.DeadlineExceeded)
		}
		if err != nil {
			c.b.meter.refused++
		}
		c.b.mu.Unlock()
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// most returns the amount that a full budget allows within a time, at its configured rate.
func (b *budget) most(within time.Duration) int64 {
	return rateParams(b.limit, b.hold).Burst + int64(float64(b.limit)*within.Seconds())
}

func (b *budget) refuse(wait, most time.Duration, err error) *WaitError {
	return &WaitError{Table: b.table, Index: b.index, Direction: b.dir, Wait: wait, MaxWait: most, Err: err}
}

// enter waits for the turn, debits, and waits until the debit is covered. The caller then has the turn, and must call
// pass or leave. After an error nothing is debited, and the turn belongs to another call.
func (b *budget) enter(ctx context.Context, g *Governor, a int64, until patience) error {
	var expired <-chan time.Time
	if !until.until.IsZero() {
		t := time.NewTimer(time.Until(until.until))
		defer t.Stop()
		expired = t.C
	}
	b.mu.Lock()
	b.meter.waiting++
	if b.turn {
		w := &waiter{a, make(chan struct{})}
		b.queue, b.queued = append(b.queue, w), b.queued+a
		b.mu.Unlock()
		var err error
		select {
		case <-w.ready:
		case <-ctx.Done():
			err = b.refuse(0, 0, ctx.Err())
		case <-expired:
			err = b.refuse(until.max, until.max, nil)
		}
		b.mu.Lock()
		if err != nil {
			b.abandon(w, g.now())
			b.mu.Unlock()
			return err
		}
	}
	now := g.now()
	if !b.turn {
		b.turn, b.meter.busySince = true, now
	}
	b.debit(now, a)
	if err := b.covered(ctx, g, until, expired); err != nil {
		b.meter.refused++
		b.giveUp(a, g.now())
		b.mu.Unlock()
		return err
	}
	b.mu.Unlock()
	return nil
}

// covered waits, holding the turn, until the debit is covered.
func (b *budget) covered(ctx context.Context, g *Governor, until patience, expired <-chan time.Time) error {
	for {
		now := g.now()
		b.raise(now)
		wait, known := b.wait(now, 0)
		if known && wait == 0 {
			return nil
		}
		if b.ceiling > 0 {
			wait = min(wait, raiseEvery)
		}
		if !known {
			wait = clock.MaxPeriod // until there is a share
		}
		t := time.NewTimer(wait)
		b.mu.Unlock()
		var err error
		select {
		case <-t.C:
		case <-b.poke:
		case <-ctx.Done():
			err = b.refuse(0, 0, ctx.Err())
		case <-expired:
			err = b.refuse(until.max, until.max, nil)
		case <-g.closed:
			err = b.refuse(0, 0, ErrClosed)
		}
		t.Stop()
		b.mu.Lock()
		if err != nil {
			return err
		}
	}
}

// abandon removes a waiter, which may have got the turn in the meantime.
func (b *budget) abandon(w *waiter, now int64) {
	b.meter.waiting--
	b.meter.refused++
	if i := slices.Index(b.queue, w); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
		b.queued -= w.amount
		return
	}
	b.next(now)
}

// giveUp returns the debited amount and the turn.
func (b *budget) giveUp(a, now int64) {
	b.level = clock.Credit(b.level, a)
	b.pass(now)
}

// leave is giveUp, but takes the lock.
func (b *budget) leave(a, now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.giveUp(a, now)
}

// pass gives the turn to the next waiter.
func (b *budget) pass(now int64) {
	b.meter.waiting--
	b.next(now)
}

func (b *budget) next(now int64) {
	if len(b.queue) == 0 {
		b.turn = false
		b.meter.pause(now, true)
		return
	}
	w := b.queue[0]
	b.queue, b.queued = b.queue[1:], b.queued-w.amount
	close(w.ready)
}
