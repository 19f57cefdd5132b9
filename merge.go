package weir

import (
	"slices"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// merged is one take for several parts: a store accepts each bucket only once.
type merged struct {
	debits []store.Debit
	from   [][]position // by part, by its charges in order: their place in debits
	stale  bool         // two parts know different limits of the same bucket
}

type position struct{ debit, charge int }

func merge(parts []part) merged {
	debits, charges := 0, 0
	for i := range parts {
		debits += len(parts[i].debits)
		charges += chargesIn(parts[i].debits)
	}
	m := merged{debits: make([]store.Debit, 0, debits), from: make([][]position, len(parts))}
	own := make([][]store.Charge, 0, debits) // by debit: its bucket's own limits, as the first part knows them
	room := make([]store.Charge, charges)    // for the charges of buckets that are not shared
	places := make([]position, 0, charges)
	for i := range parts {
		from := len(places)
		for _, d := range parts[i].debits {
			at := slices.IndexFunc(m.debits, func(o store.Debit) bool { return o.Bucket == d.Bucket })
			if at < 0 {
				at = len(m.debits)
				m.debits = append(m.debits, store.Debit{Bucket: d.Bucket, Charges: room[:0:len(d.Charges)]})
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
				to.Charges[j].Amount = min(to.Charges[j].Amount+c.Amount, 2*clock.MaxBurst) // the sum must not overflow
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
				return &BurstError{
					d.Bucket.Entity, d.Bucket.Resource, c.Limit.Name, c.Amount / 1000,
					c.Limit.Burst / 1000,
				}
			}
		}
	}
	return nil
}

// first returns the index of each debit's first charge among the charges of all.
func first(debits []store.Debit) []int {
	at := make([]int, len(debits))
	for i := 1; i < len(at); i++ {
		at[i] = at[i-1] + len(debits[i-1].Charges)
	}
	return at
}

func chargesIn(debits []store.Debit) (n int) {
	for i := range debits {
		n += len(debits[i].Charges)
	}
	return n
}

// spread hands the outcome to the parts and their leases.
func (d *decision) spread(parts []part) {
	if len(parts) == 1 || len(d.out.Levels) == 0 {
		parts[0].levels = d.out.Levels
	} else {
		at := first(d.debits)
		for i := range parts {
			pt := &parts[i]
			pt.levels = make([]store.Level, 0, len(d.merged.from[i]))
			for _, pos := range d.merged.from[i] {
				pt.levels = append(pt.levels, d.out.Levels[at[pos.debit]+pos.charge])
			}
		}
	}
	for i := range parts {
		if le := parts[i].lease; le != nil {
			le.at, le.levels, le.degraded = d.out.At, parts[i].levels, parts[i].by
		}
	}
}

// refusal returns the decision over all parts, with the status of each limit once.
func (d *decision) refusal(parts []part) Decision {
	var by *degradation // of the parts that were decided
	for i := range parts {
		if !parts[i].by.free() {
			by = parts[i].by
		}
	}
	all := Decision{At: d.out.At, Statuses: make([]LimitStatus, 0, len(d.out.Levels))}
	all.degraded(by)
	now := nanosOf(d.out.At)
	for i, md := range d.debits {
		for j, c := range md.Charges {
			from := d.origin(parts, position{i, j})
			st := statusOf(md.Bucket.Entity, md.Bucket.Resource, from, c, d.out.Levels[len(all.Statuses)], now)
			by.describe(&st, c.Limit)
			all.Statuses = append(all.Statuses, st)
		}
	}
	all.RetryAfter = longest(all.Statuses)
	all.over()
	return all
}

// each splits the decision over all parts into one for each.
func (d *decision) each(all *Decision, parts []part) []Decision {
	at := first(d.debits)
	split := make([]Decision, len(parts))
	for i, charges := range d.merged.from {
		e := &split[i]
		e.Allowed, e.At = true, all.At
		e.degraded(parts[i].by)
		for _, pos := range charges {
			st := all.Statuses[at[pos.debit]+pos.charge]
			e.Allowed = e.Allowed && !st.Refused
			e.Statuses = append(e.Statuses, st)
		}
		e.RetryAfter = longest(e.Statuses)
		e.over()
	}
	return split
}

// origin returns a charge's origin from the first part that has it.
func (d *decision) origin(parts []part, at position) origin {
	for i := range parts {
		if n := slices.Index(d.merged.from[i], at); n >= 0 {
			return parts[i].lease.originOf(n)
		}
	}
	return origin{}
}
