package weir

import (
	"slices"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// spread hands the outcome to the items and their leases.
func (d *decision) spread(items []item) {
	if len(items) == 1 || len(d.out.Levels) == 0 {
		items[0].levels = d.out.Levels
	} else {
		for i, from := range d.merged.From {
			items[i].levels = make([]store.Level, len(from))
			for j, at := range from {
				items[i].levels[j] = d.out.Levels[at]
			}
		}
	}
	for i := range items {
		if le := items[i].lease; le != nil {
			le.at, le.levels, le.degraded = d.out.At, items[i].levels, items[i].by
		}
	}
}

// refusal returns the decision over all items, with the status of each limit once.
func (d *decision) refusal(items []item) Decision {
	var by *degradation // of the items that were decided
	for i := range items {
		if !items[i].by.free() {
			by = items[i].by
		}
	}
	all := Decision{At: d.out.At, Statuses: make([]LimitStatus, 0, len(d.out.Levels))}
	all.degraded(by)
	now := clock.Nanos(d.out.At)
	for _, md := range d.debits {
		for _, c := range md.Charges {
			n := len(all.Statuses)
			st := statusOf(md.Bucket.Entity, md.Bucket.Resource, d.origin(items, n), c, d.out.Levels[n], now)
			by.describe(&st, c.Limit)
			all.Statuses = append(all.Statuses, st)
		}
	}
	all.RetryAfter = longest(all.Statuses)
	all.over()
	return all
}

// each splits the decision over all items into one for each.
func (d *decision) each(all *Decision, items []item) []Decision {
	split := make([]Decision, len(items))
	for i, from := range d.merged.From {
		e := &split[i]
		e.Allowed, e.At = true, all.At
		e.degraded(items[i].by)
		for _, at := range from {
			st := all.Statuses[at]
			e.Allowed = e.Allowed && !st.Refused
			e.Statuses = append(e.Statuses, st)
		}
		e.RetryAfter = longest(e.Statuses)
		e.over()
	}
	return split
}

// origin returns a charge's origin from the first item that has it.
func (d *decision) origin(items []item, at int) origin {
	for i := range items {
		if n := slices.Index(d.merged.From[i], at); n >= 0 {
			return items[i].lease.originOf(n)
		}
	}
	return origin{}
}
