package weir

import (
	"slices"

	"github.com/weirlimits/weir/internal/bucket"
	"github.com/weirlimits/weir/store"
)

// merged is one take for several leases: a store wants each bucket once.
type merged struct {
	debits []store.Debit
	from   [][]position // by lease, by its charges in order: where they went
	stale  bool         // two leases know different limits of one bucket
}

type position struct{ debit, charge int }

func merge(leases []*Lease) merged {
	m := merged{from: make([][]position, len(leases))}
	var own [][]store.Charge // by debit: its bucket's own limits, as the first lease knows them
	for i, le := range leases {
		for _, d := range le.debits {
			at := slices.IndexFunc(m.debits, func(o store.Debit) bool { return o.Bucket == d.Bucket })
			if at < 0 {
				at = len(m.debits)
				m.debits = append(m.debits, store.Debit{Bucket: d.Bucket, Ref: d.Ref})
				own = append(own, nil)
			}
			if !d.Charges[0].Limit.Override { // then none of them is
				m.stale = m.stale || own[at] != nil && !slices.EqualFunc(own[at], d.Charges, sameLimit)
				own[at] = d.Charges
			}
			to := &m.debits[at]
			to.Epoch = max(to.Epoch, d.Epoch) // an override has none
			for _, c := range d.Charges {
				j := slices.IndexFunc(to.Charges, func(o store.Charge) bool { return *o.Limit == *c.Limit })
				if j < 0 {
					j = len(to.Charges)
					to.Charges = append(to.Charges, store.Charge{Limit: c.Limit, Shadow: c.Shadow})
				}
				to.Charges[j].Amount = min(to.Charges[j].Amount+c.Amount, 2*bucket.MaxBurst) // a sum must not wrap around
				m.from[i] = append(m.from[i], position{at, j})
			}
		}
	}
	return m
}

func sameLimit(a, b store.Charge) bool { return *a.Limit == *b.Limit && a.Shadow == b.Shadow }

// check refuses sums that can never pass.
func (m *merged) check() error {
	for _, d := range m.debits {
		for _, c := range d.Charges {
			if c.Amount > c.Limit.Burst && !c.Shadow {
				return &BurstError{d.Bucket.Entity, d.Bucket.Resource, c.Limit.Name, c.Amount / 1000, c.Limit.Burst / 1000}
			}
		}
	}
	return nil
}

// spread hands the outcome to the leases, and returns the decision over all.
func (m *merged) spread(out store.Outcome, leases []*Lease) Decision {
	first := make([]int, len(m.debits))
	for i := 1; i < len(first); i++ {
		first[i] = first[i-1] + len(m.debits[i-1].Charges)
	}
	for i, le := range leases {
		le.at = out.At
		le.levels = make([]store.Level, len(m.from[i]))
		for n, pos := range m.from[i] {
			le.levels[n] = out.Levels[first[pos.debit]+pos.charge]
		}
	}
	d := Decision{Allowed: out.Allowed, At: out.At}
	now := nanosOf(out.At)
	for i, md := range m.debits {
		for j, c := range md.Charges {
			src := m.source(leases, position{i, j})
			d.Statuses = append(d.Statuses, statusOf(md.Bucket.Entity, md.Bucket.Resource, src, c, out.Levels[first[i]+j], now))
		}
	}
	d.RetryAfter = longest(d.Statuses)
	return d
}

// source finds a charge's source in the first lease that has it.
func (m *merged) source(leases []*Lease, at position) Source {
	for i, le := range leases {
		if n := slices.Index(m.from[i], at); n >= 0 {
			return le.sourceOf(n)
		}
	}
	return ""
}
