package holds

import (
	"context"
	"slices"
	"time"
	"weak"

	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/policy/held"
	"github.com/weirlimits/weir/store"
)

// Lease is what a lease of the limiter holds of limits of slots. It is a part of that lease, whose slots are renewed
// until it is collected. The zero value holds nothing.
type Lease struct{ *state }

// Terms are how long a lease holds its slots.
type Terms struct {
	Ctx    context.Context //nolint:containedctx // the request's: slots are renewed until it ends
	Who    outage.Who
	GoesOn bool // without slots while the store does not answer, until they are taken again
}

type state struct {
	Terms
	holds *Holds
	owner *Lease // until the first renewal is due; most leases have ended by then
	weak  weak.Pointer[Lease]
	began time.Time // when its request was sent
	slots []*slot
	lost  bool
	ended bool

	own    context.Context //nolint:containedctx // what Context has returned
	cancel context.CancelCauseFunc
	room   struct {
		slot slot
		ref  [1]*slot
	}
}

// Add makes a lease hold what a take of debits has taken, according to the levels, by a request that was sent at a
// time, zero if it was not. What has no hold was admitted without the store, and is taken once it answers.
func (h *Holds) Add(le *Lease, t Terms, debits []store.Debit, levels []store.Level, sent time.Time) {
	if sent.IsZero() {
		sent = time.Now()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range debits {
		for j := range debits[i].Charges {
			c, l := &debits[i].Charges[j], &levels[0]
			if levels = levels[1:]; !c.Limit.IsSlots() || c.Amount <= 0 || c.Shadow && l.Refused {
				continue
			}
			var s *slot
			if st := le.state; st == nil {
				st = &state{Terms: t, holds: h, owner: le, began: sent}
				le.state, st.slots, s = st, st.room.ref[:0], &st.room.slot
			} else {
				s = new(slot)
			}
			*s = slot{state: le.state, epoch: debits[i].Epoch, of: c.Limit, amount: c.Amount, sent: h.moment(sent)}
			if l.Hold != nil {
				s.hold = *l.Hold
			}
			le.slots = append(le.slots, s)
			h.list(s, debits[i].Bucket, sent)
		}
	}
}

// disown lets the lease be collected.
func (st *state) disown() { st.weak, st.owner = weak.Make(st.owner), nil }

// gone reports whether the lease is not renewed any more.
func (st *state) gone(now time.Time) bool {
	return st.Ctx.Err() != nil || st.owner == nil && st.weak.Value() == nil || now.Sub(st.began) >= st.holds.cfg.Max
}

// Context returns the request's context, or one that also ends when the lease loses a slot, or ends.
func (le *Lease) Context(ctx context.Context) context.Context {
	st := le.state
	if st == nil {
		return ctx
	}
	h := st.holds
	h.mu.Lock()
	defer h.mu.Unlock()
	if st.own == nil && len(st.slots) == 0 {
		return ctx // it has left
	}
	if st.own == nil {
		st.own, st.cancel = context.WithCancelCause(st.Ctx)
		h.watch(st)
		for _, s := range st.slots {
			s.check(time.Now())
		}
		switch {
		case h.closed:
			h.unwatch(st, store.ErrClosed)
		case st.lost:
			h.unwatch(st, held.ErrSlotLost)
		case st.ended:
			h.unwatch(st, context.Canceled)
		}
	}
	return st.own
}

// Behind reports whether the lease goes on without slots, because the store does not answer.
func (le *Lease) Behind() bool {
	if le.state == nil || le.holds.behind.Load() == 0 {
		return false
	}
	le.holds.mu.Lock()
	defer le.holds.mu.Unlock()
	return slices.ContainsFunc(le.slots, func(s *slot) bool { return s.behind })
}

// Current sets in what the lease has spent by what it now holds its slots, for a return; nil if they are lost.
func (le *Lease) Current(debits []store.Debit) {
	if le.state == nil {
		return
	}
	le.holds.mu.Lock()
	defer le.holds.mu.Unlock()
	now := time.Now()
	le.each(debits, func(s *slot, c *store.Charge) {
		if c.Hold = nil; s.left(now) > 0 {
			hold := s.hold
			c.Hold = &hold
		}
	})
}

// leave ends the renewal of a lease, and its context. It sets in what the lease has spent by what it held its slots
// last. The caller has locked.
func (le *Lease) leave(debits []store.Debit, now time.Time) {
	le.each(debits, func(s *slot, c *store.Charge) {
		if c.Hold = nil; s.left(now) > 0 {
			c.Hold = &s.hold // which changes no more
		}
	})
	for _, s := range le.slots {
		le.holds.unlist(s)
	}
	le.holds.unwatch(le.state, context.Canceled)
}

// Update follows what the lease now holds.
func (le *Lease) Update(debits []store.Debit) {
	if le.state == nil {
		return
	}
	le.holds.mu.Lock()
	defer le.holds.mu.Unlock()
	le.each(debits, func(s *slot, c *store.Charge) {
		if s.at >= 0 {
			s.in.held -= s.amount - c.Amount
		}
		if s.amount = c.Amount; s.amount <= 0 {
			le.holds.unlist(s)
		}
	})
}

// each calls f with the charge of each slot.
func (st *state) each(debits []store.Debit, f func(*slot, *store.Charge)) {
	for _, s := range st.slots {
		for i := range debits {
			for j := range debits[i].Charges {
				if c := &debits[i].Charges[j]; debits[i].Bucket == s.in.key.Bucket && c.Limit == s.of {
					f(s, c)
				}
			}
		}
	}
}

// End ends the lease and its context, and sets in what it has spent by what it held its slots, for their return. They
// are not renewed any more.
func (le *Lease) End(debits []store.Debit) {
	if le.state == nil {
		return
	}
	h, now := le.holds, time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range le.slots {
		if s.at >= 0 {
			s.in.recent.add(now.Sub(le.began))
		}
	}
	le.ended = true
	le.leave(debits, now)
}

// Leave ends the renewal of a lease that leaves the process, and its context. Somebody else renews it from now on, or
// nobody. What was admitted without the store counts as held by this process for another two heal times: nobody can
// renew that.
func (le *Lease) Leave(debits []store.Debit) {
	if le.state == nil {
		return
	}
	h, now := le.holds, time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range le.slots {
		if s.behind {
			h.count(s)
		}
	}
	le.leave(debits, now)
	le.slots = nil
}

// durations are the last ones for which slots were held.
type durations struct {
	of [15]time.Duration
	n  int
}

func (d *durations) add(took time.Duration) {
	d.of[d.n%len(d.of)] = took
	d.n++
}

// median returns 0 if there are none.
func (d *durations) median() time.Duration {
	if d.n == 0 {
		return 0
	}
	all := d.of
	some := all[:min(d.n, len(all))]
	slices.Sort(some)
	return some[len(some)/2]
}
