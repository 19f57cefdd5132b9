package outage

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

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

const (
	// maxDebts bounds the number of buckets whose debts are remembered, maxCharges the limits of one.
	maxDebts, maxCharges = 65_536, 64 + store.MaxOverrides
	// spread is the longest pause before debts are settled once the store answers, so that a fleet does not settle in
	// step.
	spread = 100 * time.Millisecond
	// settlers is how many buckets are settled at a time.
	settlers = 4
	// remembered is how long a settle whose outcome is unknown may be repeated.
	remembered = 24 * time.Hour
)

// debts are what was admitted from the shares and is missing in the store. Once the store answers again, each bucket
// is settled: the store is charged the part that the share's clock has not covered since.
type debts struct {
	some, armed atomic.Bool
	mu          sync.Mutex
	of          map[store.Bucket]*debt
	closed      bool
	timer       *time.Timer
	running     sync.WaitGroup

	charged, lost uint64 // millitokens
}

// debt is what is owed for a bucket.
type debt struct {
	charges []store.Charge
	epoch   uint64
	sending *store.Settle // its outcome is not known
}

// owe records what was taken from the shares or, if negative, came back. What the store was charged already is not
// given back to it. Charges that were refused, according to their levels, are left out.
func (f *Fallback) owe(debits []store.Debit, levels []store.Level) {
	o, n := &f.debts, 0
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range debits {
		d := o.of[debits[i].Bucket]
		if d == nil && !o.closed && len(o.of) < maxDebts {
			d = &debt{}
			o.of[debits[i].Bucket] = d
		}
		for _, c := range debits[i].Charges {
			if n++; len(levels) > 0 && levels[n-1].Refused {
				continue
			}
			f.admitted.Add(uint64(max(c.Amount, 0)))
			if d != nil && len(d.charges) == maxCharges {
				// Its share was full, and made room.
				d.charges = slices.DeleteFunc(d.charges, func(o store.Charge) bool {
					return !f.shares.Has(debits[i].Bucket, o.Limit)
				})
			}
			if d == nil || !d.add(c) {
				o.lost += uint64(max(c.Amount, 0))
			}
		}
		if d != nil {
			d.epoch = max(d.epoch, debits[i].Epoch)
			o.tidy(debits[i].Bucket, d)
		}
	}
	o.some.Store(len(o.of) > 0)
}

// add adds a charge, and reports whether there was room. A limit that has changed is the same one, as in the store.
func (d *debt) add(c store.Charge) bool {
	at := slices.IndexFunc(d.charges, func(o store.Charge) bool {
		return o.Limit.Name == c.Limit.Name && o.Limit.Override == c.Limit.Override && (!c.Limit.Override ||
			*o.Limit == *c.Limit)
	})
	switch {
	case at >= 0:
		d.charges[at].Limit = c.Limit
		d.charges[at].Amount = max(0, min(clock.MaxLevel, d.charges[at].Amount+c.Amount))
	case c.Amount <= 0:
	case len(d.charges) == maxCharges:
		return false
	default:
		d.charges = append(d.charges, store.Charge{Limit: c.Limit, Amount: c.Amount})
	}
	return true
}

// tidy forgets a debt of nothing.
func (o *debts) tidy(b store.Bucket, d *debt) {
	owes := slices.ContainsFunc(d.charges, func(c store.Charge) bool { return c.Amount > 0 })
	if !owes && d.sending == nil {
		delete(o.of, b)
	}
}

// answered settles debts soon after the store has answered.
func (f *Fallback) answered() {
	o := &f.debts
	if !o.some.Load() || !o.armed.CompareAndSwap(false, true) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	o.running.Add(1)
	o.timer = time.AfterFunc(mathrand.N(spread), func() {
		defer o.running.Done()
		f.settleAll()
		o.armed.Store(false)
	})
}

// settleAll settles debts for as long as the store answers.
func (f *Fallback) settleAll() {
	o := &f.debts
	o.mu.Lock()
	buckets := make([]store.Bucket, 0, len(o.of))
	for b := range o.of {
		buckets = append(buckets, b)
	}
	o.mu.Unlock()
	var next atomic.Int64
	var all sync.WaitGroup
	for range settlers {
		all.Go(func() {
			for i := next.Add(1); i <= int64(len(buckets)); i = next.Add(1) {
				if !f.settle(buckets[i-1]) {
					next.Store(int64(len(buckets)))
				}
			}
		})
	}
	all.Wait()
}

// settle charges a debt to the store, and reports whether the store answered. If the outcome is unknown, the same
// charge is sent again when the store answers next: the store applies it once.
func (f *Fallback) settle(b store.Bucket) (answered bool) {
	o := &f.debts
	o.mu.Lock()
	d := o.of[b]
	if d == nil {
		o.mu.Unlock()
		return true
	}
	if d.sending == nil {
		d.sending = f.bill(b, d)
	}
	sending := d.sending
	o.mu.Unlock()
	var err error
	if sending != nil {
		_, err = f.cfg.Settle(context.Background(), *sending)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case sending == nil:
	case err == nil, errors.Is(err, store.ErrSettled):
		o.charged += sum(sending.Debits[0].Charges)
	case isAnswer(err):
		o.lost += sum(sending.Debits[0].Charges)
	default:
		return false
	}
	d.sending = nil
	o.tidy(b, d)
	o.some.Store(len(o.of) > 0)
	return true
}

// bill returns the settle that charges a debt; nil if the shares' clocks have covered everything.
func (f *Fallback) bill(b store.Bucket, d *debt) *store.Settle {
	now, n := time.Now(), f.instances()
	var due []store.Charge
	for _, c := range d.charges {
		if c.Amount = f.shares.Bill(b, c.Limit, n, now, c.Amount); c.Amount > 0 {
			due = append(due, c)
		}
	}
	d.charges = nil
	if len(due) == 0 {
		return nil
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return &store.Settle{
		ID: "owed-" + hex.EncodeToString(id[:]), Expires: now.Add(remembered),
		Debits: []store.Debit{{Bucket: b, Charges: due, Epoch: d.epoch}},
	}
}

// isAnswer reports whether a store that returned err has answered, so that repeating the settle is pointless.
func isAnswer(err error) bool {
	return slices.ContainsFunc([]error{
		store.ErrExpired, store.ErrOverflow, store.ErrTooManyOverrides, store.ErrTooManyBuckets, store.ErrInvalid,
	}, func(target error) bool { return errors.Is(err, target) })
}

func sum(charges []store.Charge) (n uint64) {
	for _, c := range charges {
		n += uint64(max(c.Amount, 0))
	}
	return n
}

// Close settles what can be settled. What remains is lost.
func (f *Fallback) Close() {
	if f == nil {
		return
	}
	o := &f.debts
	o.mu.Lock()
	o.closed = true
	if o.timer != nil && o.timer.Stop() {
		o.running.Done()
	}
	o.mu.Unlock()
	o.running.Wait()
	f.settleAll() // the store may answer again although no request has found out
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range o.of {
		o.lost += sum(d.charges)
		if d.sending != nil {
			o.lost += sum(d.sending.Debits[0].Charges)
		}
	}
	clear(o.of)
}
