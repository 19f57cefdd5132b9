package weir

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/breaker"
	"github.com/weirlimits/weir/internal/bucket"
	"github.com/weirlimits/weir/store"
)

const (
	// maxOwed is of how many buckets it is remembered what is owed.
	maxOwed = 65_536
	// owedFor is how long the store remembers that a debt was paid, and how long that may be tried.
	owedFor  = 24 * time.Hour
	payEvery = time.Second // give or take a half
	// payers is how many debts are paid at a time.
	payers = 4
)

// owed is what was admitted from the shares and the store does not know of yet. It is charged to the store once that
// answers again: as much as the share's clock has not covered since, for so much would be outstanding in the store.
type owed struct {
	mu     sync.Mutex
	debts  map[store.Bucket]*debt
	due    []store.Bucket // those that owe, and are not paying
	armed  bool
	wait   atomic.Bool // for the timer
	timer  *time.Timer
	closed bool
	paid   uint64 // millitokens
	lost   uint64

	payments sync.WaitGroup
}

// debt is what a bucket is owed.
type debt struct {
	limits  []owedLimit
	epoch   uint64
	queued  bool
	paying  bool
	sending *store.Settle // whose outcome is not known yet
}

// owedLimit is what one limit of a bucket is owed, in millitokens.
type owedLimit struct {
	limit    *store.Limit
	admitted int64 // since the last payment
	paid     int64 // of which nothing was given back
	back     int64 // to be given back
}

func (d *debt) of(l *store.Limit) *owedLimit {
	i := slices.IndexFunc(d.limits, func(o owedLimit) bool { return *o.limit == *l })
	if i < 0 {
		i = len(d.limits)
		d.limits = append(d.limits, owedLimit{limit: l})
	}
	return &d.limits[i]
}

// owe notes what was taken from the shares or, negative, came back. No more comes back to the store than it was paid.
func (lo *local) owe(debits []store.Debit) {
	o := &lo.owed
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range debits {
		b := debits[i].Bucket
		d := o.debts[b]
		if d == nil {
			if len(o.debts) >= maxOwed && !o.drop() {
				o.lose(debits[i].Charges)
				continue
			}
			d = &debt{}
			o.debts[b] = d
		}
		d.epoch = max(d.epoch, debits[i].Epoch)
		due := false
		for _, c := range debits[i].Charges {
			due = d.owe(c) || due
			lo.admitted.Add(uint64(max(c.Amount, 0)))
		}
		if due {
			o.queue(b, d)
		}
	}
	lo.armLocked()
}

// owe reports whether the store is to be told something.
func (d *debt) owe(c store.Charge) bool {
	if c.Amount == 0 {
		return false
	}
	ol := d.of(c.Limit)
	if c.Amount > 0 {
		ol.admitted = min(bucket.MaxLevel, ol.admitted+c.Amount)
		return true
	}
	unpaid := min(ol.admitted, -c.Amount)
	back := min(ol.paid, -c.Amount-unpaid)
	ol.admitted, ol.paid, ol.back = ol.admitted-unpaid, ol.paid-back, ol.back+back
	return back > 0
}

// drop makes room by forgetting a debt that is paid: what comes back of it later is lost.
func (o *owed) drop() bool {
	n := 0
	for b, d := range o.debts {
		if !d.queued && !d.paying {
			delete(o.debts, b)
			return true
		}
		if n++; n == 64 {
			break
		}
	}
	return false
}

func (o *owed) lose(charges []store.Charge) {
	for _, c := range charges {
		o.lost += uint64(max(c.Amount, 0))
	}
}

func (o *owed) queue(b store.Bucket, d *debt) {
	if !d.queued && !d.paying {
		d.queued = true
		o.due = append(o.due, b)
	}
}

// armLocked has debts paid soon: at random, or a fleet would ask in step.
func (lo *local) armLocked() {
	o := &lo.owed
	if o.armed || o.closed || len(o.due) == 0 {
		return
	}
	o.armed = true
	o.wait.Store(true)
	o.payments.Add(1)
	o.timer = time.AfterFunc(payEvery/2+mathrand.N(payEvery), func() {
		defer o.payments.Done()
		o.wait.Store(false)
		lo.pay()
		o.mu.Lock()
		defer o.mu.Unlock()
		o.armed = false
		lo.armLocked()
	})
}

// answered has debts paid soon, for the store answers: until then it admits what it believes to be left, and it may go again.
func (o *owed) answered() {
	if !o.wait.Load() || !o.wait.CompareAndSwap(true, false) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer.Stop() {
		o.timer.Reset(mathrand.N(payEvery / 10))
	}
}

// pay charges what is owed to the store, if that answers: one debt finds out, which makes it the probe of an open breaker.
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

// payAll pays what is owed, for as long as the store answers.
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

// payOne pays a debt, if there is one, and reports whether the store has answered. In doubt it is tried again, under the same
// id: the store applies it once.
func (lo *local) payOne() (answered, some bool) {
	o := &lo.owed
	b, d := lo.bill()
	if d == nil {
		return false, false
	}
	_, err := lo.settle(*d.sending)
	charges := d.sending.Debits[0].Charges
	o.mu.Lock()
	defer o.mu.Unlock()
	d.paying = false
	switch {
	case err == nil, errors.Is(err, store.ErrSettled):
		for _, c := range charges {
			o.paid += uint64(max(c.Amount, 0))
		}
	case isAnswer(err):
		o.lose(charges)
	default:
		o.queue(b, d)
		return false, true
	}
	d.sending = nil
	if slices.ContainsFunc(d.limits, func(ol owedLimit) bool { return ol.admitted > 0 || ol.back > 0 }) {
		o.queue(b, d)
	}
	return true, true
}

// isAnswer reports whether a store that returns the error has answered: the same settle will not fare better.
func isAnswer(err error) bool {
	return slices.ContainsFunc([]error{
		store.ErrExpired, store.ErrOverflow, store.ErrTooManyOverrides, store.ErrTooManyBuckets, store.ErrInvalid,
	}, func(target error) bool { return errors.Is(err, target) })
}

func (lo *local) settle(s store.Settle) (store.Outcome, error) {
	c := lo.core
	bounded := c.bound(context.Background())
	defer bounded.end()
	began := time.Now()
	out, err := c.store.Settle(bounded, s)
	c.observeCall(bounded, "settle", began, err)
	return out, err
}

// bill takes a debt that is due, with what the store is to be told; nil if there is none.
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

// bill returns what the store is to be told; nil if the shares' clocks have covered it all.
func (d *debt) bill(b store.Bucket, now time.Time, due func(l *store.Limit, admitted int64) int64) *store.Settle {
	var charges []store.Charge
	for i := range d.limits {
		ol := &d.limits[i]
		debit := due(ol.limit, ol.admitted)
		if net := debit - ol.back; net != 0 {
			charges = append(charges, store.Charge{Limit: ol.limit, Amount: net})
		}
		ol.admitted, ol.paid, ol.back = 0, ol.paid+debit, 0
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
	lo.payAll() // it may answer again, though nobody has asked
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range o.due {
		if d := o.debts[b]; d.sending != nil {
			o.lose(d.sending.Debits[0].Charges)
		} else {
			for _, ol := range d.limits {
				o.lost += uint64(ol.admitted)
			}
		}
	}
	o.due = nil
}
