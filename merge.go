package weir

import (
	"slices"

	"github.com/weirlimits/weir/internal/bucket"
	"github.com/weirlimits/weir/store"
)

// merged is one take for several leases: a store accepts each bucket only once.
type merged struct {
	debits []store.Debit
	from   [][]position // by lease, by its charges in order: their place in debits
	by     *degradation // why the store did not decide
	stale  bool         // two leases know different limits of the same bucket
}

type position struct{ debit, charge int }

func merge(leases []*Lease) merged {
	debits, charges := 0, 0
	for _, le := range leases {
		debits += len(le.debits)
		for i := range le.debits {
			charges += len(le.debits[i].Charges)
		}
	}
	m := merged{debits: make([]store.Debit, 0, debits), from: make([][]position, len(leases))}
	own := make([][]store.Charge, 0, debits) // by debit: its bucket's own limits, as the first lease knows them
	room := make([]store.Charge, charges)    // for the charges of buckets that are not shared
	places := make([]position, 0, charges)
	for i, le := range leases {
		from := len(places)
		for _, d := range le.debits {
			at := slices.IndexFunc(m.debits, func(o store.Debit) bool { return o.Bucket == d.Bucket })
			if at < 0 {
				at = len(m.debits)
				m.debits = append(m.debits, store.Debit{Bucket: d.Bucket, Ref: d.Ref, Charges: room[:0:len(d.Charges)]})
				room = room[len(d.Charges):]
				own = append(own, nil)
			}
			if !d.Charges[0].Limit.Override { // then none of them overrides
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
				to.Charges[j].Amount = min(to.Charges[j].Amount+c.Amount, 2*bucket.MaxBurst) // the sum must not overflow
				places = append(places, position{at, j})
			}
		}
		m.from[i] = places[from:len(places):len(places)]
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

// spread distributes the outcome to the leases, and returns the decision over all of them, with statuses if seen is
// set.
func (m *merged) spread(out store.Outcome, leases []*Lease, seen bool) Decision {
	first := make([]int, len(m.debits))
	for i := 1; i < len(first); i++ {
		first[i] = first[i-1] + len(m.debits[i-1].Charges)
	}
	charges := 0
	for i := range m.from {
		charges += len(m.from[i])
	}
	levels := make([]store.Level, 0, charges)
	for i, le := range leases {
		from := len(levels)
		for _, pos := range m.from[i] {
			levels = append(levels, out.Levels[first[pos.debit]+pos.charge])
		}
		le.at, le.levels = out.At, levels[from:len(levels):len(levels)]
	}
	d := Decision{Allowed: out.Allowed, At: out.At}
	d.degraded(m.by)
	if !seen {
		return d
	}
	d.Statuses = make([]LimitStatus, 0, len(out.Levels))
	now := nanosOf(out.At)
	for i, md := range m.debits {
		for j, c := range md.Charges {
			from := m.origin(leases, position{i, j})
			st := statusOf(md.Bucket.Entity, md.Bucket.Resource, from, c, out.Levels[first[i]+j], now)
			m.by.describe(&st, c.Limit)
			d.Statuses = append(d.Statuses, st)
		}
	}
	d.RetryAfter = longest(d.Statuses)
	d.over()
	return d
}

// each splits the decision over all requests into one for each lease.
func (m *merged) each(d *Decision) []Decision {
	first := make([]int, len(m.debits))
	for i := 1; i < len(first); i++ {
		first[i] = first[i-1] + len(m.debits[i-1].Charges)
	}
	all := make([]Decision, len(m.from))
	for i, charges := range m.from {
		e := &all[i]
		e.Allowed, e.At = true, d.At
		e.degraded(m.by)
		for _, pos := range charges {
			st := d.Statuses[first[pos.debit]+pos.charge]
			e.Allowed = e.Allowed && !st.Refused
			e.Statuses = append(e.Statuses, st)
		}
		e.RetryAfter = longest(e.Statuses)
		e.over()
	}
	return all
}

// origin returns a charge's origin from the first lease that has it.
func (m *merged) origin(leases []*Lease, at position) origin {
	for i, le := range leases {
		if n := slices.Index(m.from[i], at); n >= 0 {
			return le.originOf(n)
		}
	}
	return origin{}
}
