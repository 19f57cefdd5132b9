package weir

import (
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

const (
	// maxOwed bounds the number of buckets whose debts are remembered.
	maxOwed = 65_536
	// owedFor is how long the store remembers that a debt was paid, and how long payment may be tried.
	owedFor  = 24 * time.Hour
	payEvery = time.Second // plus or minus a half; doubled after each failed payment in a row, up to maxWaits times
	maxWaits = 4
	// payers is how many debts are paid at a time.
	payers = 4
	// maxOwedLimits bounds the number of limits of a bucket whose debts are remembered: its own, and those brought by
	// requests for which there are shares.
	maxOwedLimits = maxLimits + store.MaxOverrides
)

// owed is what was admitted from the shares and is not known to the store yet. It is charged to the store once the
// store answers again: only the part that the share's clock has not covered since, because that is what would be
// outstanding in the store.
type owed struct {
	mu     sync.Mutex
	debts  map[store.Bucket]*debt
	due    []store.Bucket // buckets with debts that are not being paid
	armed  bool
	wait   atomic.Bool // the timer is pending
	timer  *time.Timer
	closed bool
	failed int    // failed payments in a row
	paid   uint64 // millitokens
	lost   uint64

	payments sync.WaitGroup
}

// debt is what is owed for a bucket.
type debt struct {
	limits  []owedLimit
	epoch   uint64
	queued  bool
	paying  bool
	sending *store.Settle // its outcome is not known yet
}

// owedLimit is what is owed for one limit of a bucket, in millitokens.
type owedLimit struct {
	limit    *store.Limit
	admitted int64 // since the last payment
	paid     int64 // charged to the store and not given back, including what is being paid
	sent     int64 // being paid, with unknown outcome
	back     int64 // to be given back
}

// of returns the debt of a limit; nil if there is no room. A limit that has changed is the same one, as in the store.
func (lo *local) of(d *debt, b store.Bucket, l *store.Limit) *owedLimit {
	same := func(o owedLimit) bool {
		return o.limit.Name == l.Name && o.limit.Override == l.Override && (!l.Override || *o.limit == *l)
	}
	i := slices.IndexFunc(d.limits, same)
	if i < 0 && len(d.limits) >= maxOwedLimits {
		d.limits = slices.DeleteFunc(d.limits, func(o owedLimit) bool {
			return o.sent == 0 && o.back == 0 && !lo.shares.Has(b, o.limit) // full: its share made room for another
		})
	}
	switch {
	case i >= 0:
		d.limits[i].limit = l
	case len(d.limits) >= maxOwedLimits:
		return nil
	default:
		i = len(d.limits)
		d.limits = append(d.limits, owedLimit{limit: l})
	}
	return &d.limits[i]
}

// owe records what was taken from the shares or, if negative, came back. The store is never given back more than it was
// paid.
func (lo *local) owe(debits []store.Debit) {
	o := &lo.owed
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range debits {
		b := debits[i].Bucket
		d := o.debts[b]
		if o.closed { // no payments are made any more
			o.lose(debits[i].Charges)
			continue
		}
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
		for j := range debits[i].Charges {
			c := &debits[i].Charges[j]
			if c.Amount == 0 {
				continue
			}
			if ol := lo.of(d, b, c.Limit); ol != nil {
				due = ol.owe(c.Amount) || due
			} else {
				o.lose(debits[i].Charges[j : j+1])
			}
			lo.admitted.Add(uint64(max(c.Amount, 0)))
		}
		if due {
			o.queue(b, d)
		}
	}
	lo.armLocked()
}

// owe reports whether there is something to tell the store.
func (ol *owedLimit) owe(amount int64) bool {
	if amount > 0 {
		ol.admitted = min(clock.MaxLevel, ol.admitted+amount)
		return true
	}
	unpaid := min(ol.admitted, -amount)
	back := min(ol.paid, -amount-unpaid)
	ol.admitted, ol.paid, ol.back = ol.admitted-unpaid, ol.paid-back, ol.back+back
	return back > 0
}

// settled records the outcome of a payment. Tokens of a payment that was never made are not given back.
func (ol *owedLimit) settled(paid bool) {
	if !paid {
		ol.back = max(0, ol.back-max(0, ol.sent-ol.paid))
		ol.paid = max(0, ol.paid-ol.sent)
	}
	ol.sent = 0
}

// drop makes room by forgetting a debt that is paid: tokens that come back for it later are lost.
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

// armLocked schedules the payment of debts: at random, so that a fleet does not pay in step, and later the longer the
// store has not answered, so that not all payments for one bucket arrive when it does.
func (lo *local) armLocked() {
	o := &lo.owed
	if o.armed || o.closed || len(o.due) == 0 {
		return
	}
	o.armed = true
	o.wait.Store(true)
	o.payments.Add(1)
	every := payEvery << min(o.failed, maxWaits)
	o.timer = time.AfterFunc(every/2+mathrand.N(every), func() {
		defer o.payments.Done()
		o.wait.Store(false)
		lo.pay()
		o.mu.Lock()
		defer o.mu.Unlock()
		o.armed = false
		lo.armLocked()
	})
}

// answered brings the payment of debts forward: until they are paid, the store admits tokens it believes are left, and
// it may fail again.
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
