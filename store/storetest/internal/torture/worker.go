package torture

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// worker is one caller.
type worker struct {
	*ground

	store     store.Store
	r         *rand.Rand
	limits    func(*rand.Rand) ([2]*store.Limit, uint64)
	calm      bool // nothing forced, nothing returned: I1 at its strictest
	tallies   map[slot]reckon.Tally
	held      []store.Debit // what may be returned
	decisions int
}

func (w *worker) work() error {
	for i := range calls {
		if w.Harness.Caps.HandClock && w.r.IntN(4) == 0 {
			w.Clock.Advance(time.Duration(w.r.Int64N(int64(100 * time.Microsecond))))
		}
		var err error
		switch n := w.r.IntN(16); {
		case n == 0:
			_, err = w.store.Peek(w.Context(), w.buckets[w.r.IntN(bucketCount)])
		case n == 1 && i%16 == 0:
			_, err = w.store.Buckets(w.Context(), store.BucketQuery{Namespace: "ns-0", Max: 2})
		case n <= 4 && !w.calm:
			err = w.settle()
		default:
			err = w.take()
		}
		if err != nil && !errors.Is(err, store.ErrStaleLimits) {
			return err
		}
	}
	return nil
}

func (w *worker) debit(i int, limits [2]*store.Limit, epoch uint64) store.Debit {
	d := store.Debit{Bucket: w.buckets[i], Epoch: epoch}
	for _, l := range on(i, limits) {
		burst := min(l.Burst, topUp) // of a balance, what it was topped up by
		c := store.Charge{Limit: l, Amount: w.r.Int64N(max(1, burst/16)) + 1}
		switch w.r.IntN(8) {
		case 0:
			c.Amount = 0
		case 1:
			c.Force = !w.calm
		case 2:
			c.Amount = w.r.Int64N(burst + 1)
		case 3:
			c.Amount, c.Shadow = w.r.Int64N(burst+burst/8+1), l != prepaid
		}
		d.Charges = append(d.Charges, c)
	}
	return d
}

func (w *worker) take() error {
	limits, epoch := w.limits(w.r)
	var debits []store.Debit
	n := max(1, w.r.IntN(6)-1) // usually one
	for _, i := range w.r.Perm(bucketCount)[:n] {
		debits = append(debits, w.debit(i, limits, epoch))
	}
	called := w.Clock.Now()
	out, err := w.store.Take(w.Context(), store.Take{Debits: debits})
	w.decisions++
	if err != nil {
		return err
	}
	if !out.Allowed {
		if n > 1 && !w.Harness.Caps.AtomicTake {
			w.mayStay(debits)
		}
		return nil
	}
	if err := leaveOut(debits, out); err != nil {
		return err
	}
	if n == 1 || w.Harness.Caps.AtomicTake || !w.Harness.Caps.HandClock {
		called = out.At
	} // otherwise each bucket was decided at its own time, between the call and the reported time
	for _, d := range debits {
		for _, c := range d.Charges {
			t := reckon.NewTally()
			if c.Force {
				t.Forced = c.Amount
			} else if c.Amount > 0 {
				t.Debited, t.First, t.Last = c.Amount, reckon.Reading(c.Limit, called), reckon.Reading(c.Limit, out.At)
			}
			count(w.tallies, slot{d.Bucket, c.Limit}, t)
		}
	}
	if !w.calm {
		w.held = append(w.held, debits[w.r.IntN(n)])
	}
	return nil
}

// mayStay counts debits of a refused take. Where several buckets take several steps, what another bucket refused stays
// debited if others keep writing to the bucket.
func (w *worker) mayStay(debits []store.Debit) {
	for _, d := range debits {
		for _, c := range d.Charges {
			t := reckon.NewTally()
			t.MaybeDebited = c.Amount
			count(w.tallies, slot{d.Bucket, c.Limit}, t)
		}
	}
}

// leaveOut sets to 0 the charges that a take has left out, according to its levels.
func leaveOut(debits []store.Debit, out store.Outcome) error {
	n := 0
	for _, d := range debits {
		for i := range d.Charges {
			if n == len(out.Levels) {
				return fmt.Errorf("%d levels of more charges", n)
			}
			if c := &d.Charges[i]; c.Shadow && out.Levels[n].Refused {
				c.Amount = 0
			}
			n++
		}
	}
	return nil
}

// settle returns what was taken, or a part of it, or takes more.
func (w *worker) settle() error {
	if len(w.held) == 0 {
		return nil
	}
	k := w.r.IntN(len(w.held))
	d := w.held[k]
	w.held[k] = w.held[len(w.held)-1]
	w.held = w.held[:len(w.held)-1]
	s := store.Settle{Debits: []store.Debit{{Bucket: d.Bucket, Epoch: d.Epoch}}}
	for _, c := range d.Charges {
		c.Force, c.Shadow = false, false
		if c.Amount = -w.r.Int64N(c.Amount + 1); w.r.IntN(4) == 0 {
			c.Amount *= -1
		}
		s.Debits[0].Charges = append(s.Debits[0].Charges, c)
	}
	_, err := w.store.Settle(w.Context(), s)
	w.decisions++
	if err != nil {
		return err
	}
	for _, c := range s.Debits[0].Charges {
		t := reckon.NewTally()
		switch {
		case c.Amount >= 0:
			t.Forced = c.Amount
		case !reckon.Quota(c.Limit): // to which a return of unknown time gives nothing
			t.Returned = -c.Amount
		}
		count(w.tallies, slot{d.Bucket, c.Limit}, t)
	}
	return nil
}

// count adds t to a tally.
func count(tallies map[slot]reckon.Tally, s slot, t reckon.Tally) {
	sum, ok := tallies[s]
	if !ok {
		sum = reckon.NewTally()
	}
	sum.Add(t)
	tallies[s] = sum
}
