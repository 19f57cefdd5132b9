package outage

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
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
	// settlers is how many buckets are settled at a time, maxUrgent of how many more right after a decision on them.
	settlers, maxUrgent = 4, 64
	// remembered is how long a settle whose outcome is unknown may be repeated.
	remembered = 24 * time.Hour
	// minPause is how long a debt rests if its bucket, but not the store, cannot be charged; twice as long each
	// time, and at most maxPause.
	minPause, maxPause = time.Second, time.Minute
)

// debts are what was admitted from the shares and is missing in the store. Once the store answers again, each bucket
// is settled: the store is charged the part that [share.Shares.Bill] returns.
type debts struct {
	some, armed atomic.Bool
	mu          sync.Mutex
	of          map[store.Bucket]*debt
	closed      bool
	timer       *time.Timer
	running     sync.WaitGroup
	urgent      int // buckets that are being settled right after a decision

	charged, lost uint64 // millitokens
}

// debt is what is owed for a bucket.
type debt struct {
	charges []store.Charge // not yet billed
	epoch   uint64
	due     [][]store.Charge // billed, each to be charged by a settle of its own
	sending *store.Settle    // charges the first of due; its outcome is not known
	wait    []store.Charge   // billed, but there is no room for them in the bucket
	busy    bool             // it is being sent
	pause   time.Duration
	until   time.Time // the end of the pause
}

// owe records what was taken from the shares or, if negative, came back. What the store was charged already is not
// given back to it. Charges that were refused, according to their levels, are left out, and slots, which leases take
// themselves.
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
			if n++; c.Limit.IsSlots() || len(levels) > 0 && levels[n-1].Refused {
				continue
			}
			f.admitted.Add(uint64(max(c.Amount, 0)))
			if d != nil && len(d.charges) == maxCharges {
				// Its share was full, and made room.
				d.charges = slices.DeleteFunc(d.charges, func(o store.Charge) bool {
					return !f.shares.Has(debits[i].Bucket, o.Limit)
				})
			}
			if d == nil || !add(&d.charges, c) {
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
func add(charges *[]store.Charge, c store.Charge) bool {
	all := *charges
	at := slices.IndexFunc(all, func(o store.Charge) bool {
		return o.Limit.Name == c.Limit.Name && o.Limit.Override == c.Limit.Override && (!c.Limit.Override ||
			*o.Limit == *c.Limit)
	})
	switch {
	case at >= 0:
		all[at].Limit = c.Limit
		all[at].Amount = max(0, min(clock.MaxLevel, all[at].Amount+c.Amount))
	case c.Amount <= 0:
	case len(all) == maxCharges:
		return false
	default:
		*charges = append(*charges, store.Charge{Limit: c.Limit, Amount: c.Amount})
	}
	return true
}

// tidy forgets a debt of nothing.
func (o *debts) tidy(b store.Bucket, d *debt) {
	owes := slices.ContainsFunc(d.charges, func(c store.Charge) bool { return c.Amount > 0 })
	if !owes && len(d.due)+len(d.wait) == 0 && !d.busy {
		delete(o.of, b)
	}
}

// answered settles the buckets of a decision now that the store has answered, and all others soon after.
func (f *Fallback) answered(debits []store.Debit) {
	o := &f.debts
	if !o.some.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	for i := range debits {
		b := debits[i].Bucket
		d := o.of[b]
		if d == nil || d.busy || o.urgent >= maxUrgent ||
			len(d.charges)+len(d.due) == 0 && f.now().Before(d.until) {
			continue
		}
		o.urgent++
		o.running.Go(func() {
			f.settle(b, true)
			o.mu.Lock()
			defer o.mu.Unlock()
			o.urgent--
		})
	}
	if !o.armed.CompareAndSwap(false, true) {
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
	buckets := slices.Collect(maps.Keys(o.of))
	o.mu.Unlock()
	var next atomic.Int64
	var all sync.WaitGroup
	for range settlers {
		all.Go(func() {
			for i := next.Add(1); i <= int64(len(buckets)); i = next.Add(1) {
				if !f.settle(buckets[i-1], false) {
					next.Store(int64(len(buckets)))
				}
			}
		})
	}
	all.Wait()
}

// settle charges a debt to the store, and reports whether the store answers. A debt that rests is charged only if it is
// urgent, because the store has made a decision on the bucket. If the outcome is unknown, the same charge is sent again
// when the store answers next: the store applies it once.
func (f *Fallback) settle(b store.Bucket, urgent bool) (answers bool) {
	o := &f.debts
	o.mu.Lock()
	defer o.mu.Unlock()
	d := o.of[b]
	if d == nil || d.busy {
		return true
	}
	rests := f.now().Before(d.until) && !o.closed
	if rests && !urgent {
		return true
	}
	d.busy = true
	if d.sending == nil {
		f.bill(b, d)
	}
	if !rests && len(d.wait) > 0 {
		d.due, d.wait = append(d.due, d.wait), nil
	}
	var err error
	for err == nil && len(d.due) > 0 {
		if d.sending == nil {
			d.sending = charging(b, d)
		}
		sending := *d.sending
		o.mu.Unlock()
		_, err = f.cfg.Settle(context.Background(), sending)
		o.mu.Lock()
		if err = o.settled(d, err); err == nil {
			d.sending = nil
		}
	}
	d.busy = false
	ofKey := store.ExtentOf(err) == store.ExtentKey
	switch {
	case ofKey, !rests && len(d.wait) > 0:
		d.pause = min(max(2*d.pause, minPause), maxPause)
		d.until = f.now().Add(d.pause)
	case err == nil && len(d.wait) == 0:
		d.pause, d.until = 0, time.Time{}
	}
	o.tidy(b, d)
	o.some.Store(len(o.of) > 0)
	return err == nil || ofKey
}

// settled removes from a debt what a settle charged, or can never charge, and returns err if that is not known. If the
// bucket holds too many other overriding limits, nothing was charged: its own limits, and each of the others, are
// charged without the rest, and those that do not fit alone wait until others are full.
func (o *debts) settled(d *debt, err error) error {
	sent := d.due[0]
	own := slices.DeleteFunc(slices.Clone(sent), func(c store.Charge) bool { return c.Limit.Override })
	switch {
	case err == nil, errors.Is(err, store.ErrSettled):
		o.charged += sum(sent)
	case errors.Is(err, store.ErrTooManyOverrides) && len(sent) == 1:
		if !add(&d.wait, sent[0]) {
			o.lost += sum(sent)
		}
	case errors.Is(err, store.ErrTooManyOverrides) && len(own) < len(sent):
		if len(own) > 0 {
			d.due = append(d.due, own)
		}
		for _, c := range sent {
			if c.Limit.Override {
				d.due = append(d.due, []store.Charge{c})
			}
		}
	case IsAnswer(err):
		o.lost += sum(sent)
	default:
		return err
	}
	d.due = d.due[1:]
	return nil
}

// bill adds to what is due the part of a debt that the shares' clocks have not covered.
func (f *Fallback) bill(b store.Bucket, d *debt) {
	now, n := f.now(), f.parts()
	var due []store.Charge
	for _, c := range d.charges {
		if c.Amount = f.shares.Bill(b, c.Limit, n, now, c.Amount); c.Amount > 0 {
			due = append(due, c)
		}
	}
	if d.charges = nil; len(due) > 0 {
		d.due = append(d.due, due)
	}
}

// Owed begins the IDs of settles that charge what was admitted without the store.
const Owed = "owed-"

// charging returns the settle that charges the first of what is due.
func charging(b store.Bucket, d *debt) *store.Settle {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return &store.Settle{
		// The store compares Expires with its own time, so the machine's clock counts, as it is now.
		ID: Owed + hex.EncodeToString(id[:]), Expires: time.Now().Add(remembered),
		Debits: []store.Debit{{Bucket: b, Charges: d.due[0], Epoch: d.epoch}},
	}
}

// IsAnswer reports whether a store that returned err can never apply the settle.
func IsAnswer(err error) bool {
	return slices.ContainsFunc([]error{
		store.ErrExpired, store.ErrOverflow, store.ErrTooManyBuckets, store.ErrBucketQuota, store.ErrInvalid,
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
		o.lost += sum(d.charges) + sum(slices.Concat(d.due...)) + sum(d.wait)
	}
	clear(o.of)
}
