package weir

import "slices"

// refuse counts a refusal, and returns its error.
func (d *decision) refuse(items []item) error {
	m := d.lim.meter
	if it := &items[0]; it.allow {
		m.RefusedOne(&it.policy.Refused, it.policy.Bucket(), it.policy.Single)
		return errRefused
	}
	for i := range items {
		m.Request(items[i].policy.Bucket(), d.out.At, true)
	}
	m.Refused(d.debits, &d.out)
	if len(items) == 1 {
		over := &ExceededError{Decision: items[0].lease.decision(false)}
		if items[0].nth > 0 {
			over.Each = []Decision{over.Decision}
		}
		return over
	}
	over := &ExceededError{Decision: d.refusal(items)}
	if !slices.ContainsFunc(items, func(it item) bool { return it.by.free() }) {
		over.Each = d.each(&over.Decision, items)
	}
	return over
}

// refusal returns the decision over all items, with the status of each limit once.
func (d *decision) refusal(items []item) Decision {
	var by *degradation // of the items that were decided
	for i := range items {
		if !items[i].by.free() {
			by = items[i].by
		}
	}
	all := Decision{At: d.out.At}
	all.set(d.lim, by, d.debits, d.out.Levels, func(n int) origin { return d.origin(items, n) })
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
