package held

import (
	"slices"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Merged is one take for several requests: a store accepts each bucket only once.
type Merged struct {
	Debits []store.Debit
	// From has, for each request, an index for each of its charges in order: that of the charge in Debits that it is
	// part of, counting the charges of all Debits.
	From  [][]int
	Stale bool // two requests have different limits of the same bucket
}

// Merge adds up the debits of several requests. Sums above twice the largest burst are cut off there.
func Merge(requests [][]store.Debit) Merged {
	debits, charges := 0, 0
	for _, ds := range requests {
		debits += len(ds)
		for i := range ds {
			charges += len(ds[i].Charges)
		}
	}
	m := Merged{Debits: make([]store.Debit, 0, debits), From: make([][]int, len(requests))}
	own := make([][]store.Charge, 0, debits) // by debit: its bucket's own limits, as the first request has them
	room := make([]store.Charge, charges)    // for the charges of buckets that are not shared
	type place struct{ debit, charge int }
	places := make([]place, 0, charges)
	index := make(map[store.Bucket]int, debits)
	for _, ds := range requests {
		for _, d := range ds {
			at, shared := index[d.Bucket]
			if !shared {
				at = len(m.Debits)
				index[d.Bucket] = at
				m.Debits = append(m.Debits, store.Debit{Bucket: d.Bucket, Charges: room[:0:len(d.Charges)]})
				room = room[len(d.Charges):]
				own = append(own, nil)
			}
			if !d.Charges[0].Limit.Override { // then none of them overrides
				m.Stale = m.Stale || own[at] != nil && !slices.EqualFunc(own[at], d.Charges, sameLimit)
				own[at] = d.Charges
			}
			to := &m.Debits[at]
			if to.Epoch = max(to.Epoch, d.Epoch); d.Phase != nil { // an override has neither
				to.Phase = d.Phase
			}
			for _, c := range d.Charges {
				j := slices.IndexFunc(to.Charges, func(o store.Charge) bool { return *o.Limit == *c.Limit })
				if j < 0 {
					j = len(to.Charges)
					to.Charges = append(to.Charges, store.Charge{Limit: c.Limit, Shadow: c.Shadow, Force: true})
				}
				to.Charges[j].Force = to.Charges[j].Force && c.Force
				to.Charges[j].Amount = min(to.Charges[j].Amount+c.Amount, 2*clock.MaxBurst) // the sum must not overflow
				places = append(places, place{at, j})
			}
		}
	}
	first := make([]int, len(m.Debits)) // the index of each debit's first charge
	for i := 1; i < len(first); i++ {
		first[i] = first[i-1] + len(m.Debits[i-1].Charges)
	}
	for i, ds := range requests {
		for j := range ds {
			for range ds[j].Charges {
				m.From[i] = append(m.From[i], first[places[0].debit]+places[0].charge)
				places = places[1:]
			}
		}
	}
	return m
}

// Check returns an error for a take that is too large for stores, or can never pass.
func (m *Merged) Check() error {
	if err := (&store.Take{Debits: m.Debits}).CheckSize(); err != nil {
		return err
	}
	for i := range m.Debits {
		for _, c := range m.Debits[i].Charges {
			if c.Amount > c.Limit.Burst && !c.Shadow {
				return TooMuch(m.Debits[i].Bucket, c.Limit, c.Amount/1000)
			}
		}
	}
	return nil
}

// Levels returns those of the i-th request's charges.
func (m *Merged) Levels(i int, all []store.Level) []store.Level {
	levels := make([]store.Level, len(m.From[i]))
	for j, at := range m.From[i] {
		levels[j] = all[at]
	}
	return levels
}

func sameLimit(a, b store.Charge) bool { return *a.Limit == *b.Limit && a.Shadow == b.Shadow }
