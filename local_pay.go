package weir

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/breaker"
	"github.com/weirlimits/weir/store"
)

// pay charges debts to the store if it answers. The first payment finds out; it serves as the probe of an open breaker.
func (lo *local) pay() {
	call, ok := lo.core.begin()
	if !ok {
		return
	}
	answered, some := lo.payOne()
	switch {
	case !some:
		lo.core.done(call, breaker.Unknown)
		return
	case !answered:
		lo.core.done(call, breaker.Failed)
		return
	}
	lo.core.done(call, breaker.Succeeded)
	lo.payAll()
}

// payAll pays debts for as long as the store answers.
func (lo *local) payAll() {
	var all sync.WaitGroup
	for range payers {
		all.Go(func() {
			for answered, some := true, true; answered && some; {
				answered, some = lo.payOne()
			}
		})
	}
	all.Wait()
}

// payOne pays a debt, if there is one, and reports whether the store answered. A payment in doubt is retried under the
// same id, and the store applies it once.
func (lo *local) payOne() (answered, some bool) {
	o := &lo.owed
	b, d := lo.bill()
	if d == nil {
		return false, false
	}
	_, err := lo.core.store.Settle(context.Background(), *d.sending)
	charges := d.sending.Debits[0].Charges
	paid := err == nil || errors.Is(err, store.ErrSettled)
	o.mu.Lock()
	defer o.mu.Unlock()
	d.paying = false
	switch {
	case paid:
		for _, c := range charges {
			o.paid += uint64(max(c.Amount, 0))
		}
	case isAnswer(err):
		o.lose(charges)
	default:
		o.failed++
		o.queue(b, d)
		return false, true
	}
	o.failed, d.sending = 0, nil
	for i := range d.limits {
		d.limits[i].settled(paid)
	}
	if slices.ContainsFunc(d.limits, func(ol owedLimit) bool { return ol.admitted > 0 || ol.back > 0 }) {
		o.queue(b, d)
	}
	return true, true
}

// isAnswer reports whether a store that returned err has answered, so that repeating the settle is pointless.
func isAnswer(err error) bool {
	return slices.ContainsFunc([]error{
		store.ErrExpired, store.ErrOverflow, store.ErrTooManyOverrides, store.ErrTooManyBuckets, store.ErrInvalid,
	}, func(target error) bool { return errors.Is(err, target) })
}

// bill returns a debt that is due, with the settle to send; nil if there is none.
func (lo *local) bill() (store.Bucket, *debt) {
	o := &lo.owed
	now := time.Now()
	n := lo.core.instances()
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.due) > 0 {
		b := o.due[0]
		o.due = o.due[1:]
		d := o.debts[b]
		d.queued = false
		if d.sending == nil {
			d.sending = d.bill(b, now, func(l *store.Limit, admitted int64) int64 { return lo.shares.Bill(b, l, n, now, admitted) })
		}
		if d.sending != nil {
			d.paying = true
			return b, d
		}
	}
	return store.Bucket{}, nil
}

// bill returns the settle to send; nil if the shares' clocks have covered everything.
func (d *debt) bill(b store.Bucket, now time.Time, due func(l *store.Limit, admitted int64) int64) *store.Settle {
	var charges []store.Charge
	for i := range d.limits {
		ol := &d.limits[i]
		debit := due(ol.limit, ol.admitted)
		if net := debit - ol.back; net != 0 {
			charges = append(charges, store.Charge{Limit: ol.limit, Amount: net})
		}
		ol.admitted, ol.paid, ol.sent, ol.back = 0, ol.paid+debit, debit, 0
	}
	if len(charges) == 0 {
		return nil
	}
	return &store.Settle{
		ID: paymentID(), Expires: now.Add(owedFor),
		Debits: []store.Debit{{Bucket: b, Charges: charges, Epoch: d.epoch}},
	}
}

func paymentID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return "owed-" + hex.EncodeToString(id[:])
}

// close pays what can be paid.
func (lo *local) close() {
	if lo == nil {
		return
	}
	o := &lo.owed
	o.mu.Lock()
	o.closed = true
	if o.timer != nil && o.timer.Stop() {
		o.payments.Done()
	}
	o.mu.Unlock()
	o.payments.Wait()
	lo.payAll() // the store may answer again although no request has found out
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range o.due {
		d := o.debts[b]
		if d.sending != nil {
			o.lose(d.sending.Debits[0].Charges)
		}
		for _, ol := range d.limits {
			o.lost += uint64(ol.admitted)
		}
		d.queued = false
	}
	o.due = nil
}
