package holds

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/store"
)

// pause returns how long to wait after a call for a limit, whatever it brought.
func pause(heal time.Duration) time.Duration {
	d := min(max(heal/32, 500*time.Millisecond), 10*time.Second)
	return d + mathrand.N(d/4)
}

// remembered is how long a call that takes slots again may be repeated.
const remembered = time.Hour

// taking is a call that takes slots again. It is repeated until its outcome is known, and applied once.
type taking struct {
	settle store.Settle
	slots  []*slot
}

// Restore takes again what this process holds of limits that are about to be charged, and has not in the store. So
// nobody else of this process is admitted beside the holders.
func (h *Holds) Restore(ctx context.Context, debits []store.Debit) error {
	if h.behind.Load() == 0 {
		return nil
	}
	for i := range debits {
		for _, c := range debits[i].Charges {
			if !c.Limit.IsSlots() {
				continue
			}
			h.mu.Lock()
			l := h.limits[key{debits[i].Bucket, c.Limit.Name}]
			h.mu.Unlock()
			if l == nil {
				continue
			}
			select {
			case l.calling <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			err := h.take(l, func(s store.Settle) (store.Outcome, error) { return h.cfg.Settle(ctx, s) })
			if <-l.calling; err != nil {
				return err
			}
		}
	}
	return nil
}

// call renews the slots of a limit that are due, and takes those that are behind. The caller has its turn to call.
func (h *Holds) call(l *limit) {
	h.mu.Lock()
	now := time.Now()
	if !l.calls(now) { // any more
		h.mu.Unlock()
		return
	}
	l.again = now.Add(pause(l.slots[0].of.Heal))
	cohorts, who := l.cohorts(now), l.slots[0].Who
	h.mu.Unlock()
	for i := range cohorts {
		h.renew(l, &cohorts[i], who)
	}
	_ = h.take(l, func(s store.Settle) (store.Outcome, error) { return h.settle(s, who) })
}

// cohort is what a limit's leases hold of one cohort of the bucket.
type cohort struct {
	charge store.Charge
	slots  []*slot
}

// cohorts returns those of which a slot is due. All their slots are renewed.
func (l *limit) cohorts(now time.Time) (all []cohort) {
	for _, due := range l.slots {
		of := func(hold *store.Hold) bool { return hold.Birth == due.hold.Birth && hold.End.Equal(due.hold.End) }
		if due.behind || due.gone(now) || now.Before(due.due()) ||
			slices.ContainsFunc(all, func(c cohort) bool { return of(c.charge.Hold) }) {
			continue
		}
		hold := due.hold
		c := cohort{charge: store.Charge{Limit: due.of, Hold: &hold}}
		for _, s := range l.slots {
			if of(&s.hold) && !s.gone(now) {
				c.charge.Amount += s.amount
				c.slots = append(c.slots, s)
			}
		}
		all = append(all, c)
	}
	return all
}

// renew renews a cohort. A renewal without an answer has not happened for the leases.
func (h *Holds) renew(l *limit, c *cohort, who outage.Who) {
	sent := h.moment(time.Now())
	debit := store.Debit{Bucket: l.key.Bucket, Charges: []store.Charge{c.charge}}
	out, err := h.settle(store.Settle{Debits: []store.Debit{debit}}, who)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range c.slots {
		switch {
		case s.at < 0 || s.behind: // given back or lost meanwhile
		case err != nil || len(out.Levels) == 0:
			s.failed = true
		case out.Levels[0].Hold != nil:
			s.hold, s.sent, s.failed = *out.Levels[0].Hold, sent, false
		case s.GoesOn && s.failed:
			s.hold = store.Hold{}
			h.setBehind(s, true)
		default:
			s.lose()
		}
	}
}

// take takes what is behind, whether it is free or not. The caller has its turn to call.
func (h *Holds) take(l *limit, settle func(store.Settle) (store.Outcome, error)) error {
	for {
		h.mu.Lock()
		if l.taking == nil {
			l.taking = l.behind(time.Now())
		}
		t := l.taking
		h.mu.Unlock()
		if t == nil {
			return nil
		}
		sent := h.moment(time.Now())
		out, err := settle(t.settle)
		again := errors.Is(err, store.ErrSettled) // it was taken, but by which hold is not known
		if err != nil && !again && !outage.IsAnswer(err) {
			return err // the outcome is not known: the same call is repeated
		}
		h.mu.Lock()
		l.taking = nil
		var unused int64
		if err == nil && len(out.Levels) > 0 && out.Levels[0].Hold != nil {
			unused = h.taken(l, t, *out.Levels[0].Hold, sent)
		}
		h.mu.Unlock()
		if err != nil && !again {
			return err
		}
		if unused > 0 {
			debit := t.settle.Debits[0]
			debit.Charges = []store.Charge{{Limit: debit.Charges[0].Limit, Amount: -unused, Hold: out.Levels[0].Hold}}
			_, _ = settle(store.Settle{Debits: []store.Debit{debit}}) // otherwise they come back by themselves
		}
	}
}

// behind returns a call that takes what is behind; nil if nothing is.
func (l *limit) behind(now time.Time) *taking {
	t := &taking{}
	c := store.Charge{}
	for _, s := range l.slots {
		if s.behind && !s.gone(now) {
			c.Limit = s.of
			c.Amount += s.amount
			t.slots = append(t.slots, s)
		}
	}
	if len(t.slots) == 0 {
		return nil
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	t.settle = store.Settle{
		ID: "held-" + hex.EncodeToString(id[:]), Expires: now.Add(remembered),
		Debits: []store.Debit{{Bucket: l.key.Bucket, Charges: []store.Charge{c}, Epoch: t.slots[0].epoch}},
	}
	return t
}

// taken records that slots were taken again. It returns how much of them nobody holds any more.
func (h *Holds) taken(l *limit, t *taking, hold store.Hold, sent moment) (unused int64) {
	unused = t.settle.Debits[0].Charges[0].Amount
	for _, s := range t.slots {
		if s.at >= 0 && s.behind {
			s.hold, s.sent, s.failed = hold, sent, false
			h.setBehind(s, false)
			unused -= s.amount
		}
	}
	h.wakeNext(l, false)
	return unused
}

// settle calls the store, if anybody may call it now.
func (h *Holds) settle(s store.Settle, of outage.Who) (store.Outcome, error) {
	who := func() outage.Who { return of }
	ctx, cancel := context.WithTimeout(h.ctx, h.cfg.Timeout)
	defer cancel()
	c, ok := h.cfg.Outage.Begin(ctx, who)
	if !ok {
		return store.Outcome{}, outage.ErrOpen
	}
	c.Called = time.Now()
	out, err := h.cfg.Settle(ctx, s)
	h.cfg.Outage.End(c, who, c.Result(err))
	return out, err
}
