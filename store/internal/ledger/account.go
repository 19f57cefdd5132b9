package ledger

import (
	"cmp"
	"slices"
)

// Change is a change to an hour's figure, and so to its day and month.
type Change struct {
	Limit  string
	Figure Figure
	Hour   int64
	Delta  int64
}

// Account holds what was observed of one source of readings. The zero value has seen nothing.
type Account struct {
	floor   uint64 // earlier births are closed
	horizon int64  // earlier minutes are closed
	opened  bool   // horizon is valid
	ended   bool   // nothing more of the births seen can come
	trails  []trail
	peaks   []peak // of closed minutes in hours that are still open
}

// trail is one counter of one birth.
type trail struct {
	birth  uint64
	limit  string
	figure Figure
	base   int64  // the highest reading of all closed minutes
	marks  []mark // by minute
}

// mark is the highest reading of a minute.
type mark struct{ minute, value int64 }

type peak struct {
	limit  string
	hour   int64
	amount int64
}

// Observe records a reading, and appends the resulting changes. The total changes depend only on the set of readings:
// neither order nor repetition matters.
func (a *Account) Observe(r *Reading, changes []Change) []Change {
	if r.ID < a.floor {
		return changes
	}
	a.ended = r.Ended
	minute := r.Minute
	if a.opened {
		minute = max(minute, a.horizon)
	}
	for _, c := range r.Counts {
		if c.Value > 0 {
			changes = a.raise(r.ID, minute, c, changes)
		}
	}
	return changes
}

func (a *Account) raise(birth uint64, minute int64, c Count, changes []Change) []Change {
	t := a.trail(birth, c)
	if c.Value <= t.base {
		return changes // of a closed minute
	}
	i, found := slices.BinarySearchFunc(t.marks, minute, func(m mark, minute int64) int {
		return cmp.Compare(m.minute, minute)
	})
	if found && t.marks[i].value >= c.Value {
		return changes
	}
	from := len(changes)
	changes = a.book(t, -1, changes)
	if found {
		t.marks[i].value = c.Value
	} else {
		t.marks = slices.Insert(t.marks, i, mark{minute, c.Value})
	}
	changes = a.book(t, 1, changes)
	return append(changes[:from], sum(changes[from:])...)
}

// book appends all amounts of a trail in open minutes, and the peaks of its limit.
func (a *Account) book(t *trail, sign int64, changes []Change) []Change {
	t.amounts(func(minute, amount int64) {
		changes = append(changes, Change{t.limit, t.figure, hourOf(minute), sign * amount})
	})
	if t.figure != Debited {
		return changes
	}
	for _, p := range a.peaksOf(t.limit) {
		changes = append(changes, Change{t.limit, Peak, p.hour, sign * p.amount})
	}
	return changes
}

// amounts calls f with the amount of each open minute.
func (t *trail) amounts(f func(minute, amount int64)) {
	high := t.base
	for _, m := range t.marks {
		if m.value > high {
			f(m.minute, m.value-high)
			high = m.value
		}
	}
}

// peaksOf returns the largest amount of a limit debited in one minute of each hour, over all births.
func (a *Account) peaksOf(limit string) []peak {
	var minutes []mark
	for i := range a.trails {
		t := &a.trails[i]
		if t.limit != limit || t.figure != Debited {
			continue
		}
		t.amounts(func(minute, amount int64) {
			at := slices.IndexFunc(minutes, func(m mark) bool { return m.minute == minute })
			if at < 0 {
				at = len(minutes)
				minutes = append(minutes, mark{minute: minute})
			}
			minutes[at].value += amount
		})
	}
	var peaks []peak
	for _, p := range a.peaks {
		if p.limit == limit {
			peaks = append(peaks, p)
		}
	}
	for _, m := range minutes {
		peaks = highest(peaks, peak{limit, hourOf(m.minute), m.value})
	}
	return peaks
}

func highest(peaks []peak, p peak) []peak {
	for i := range peaks {
		if peaks[i].limit == p.limit && peaks[i].hour == p.hour {
			peaks[i].amount = max(peaks[i].amount, p.amount)
			return peaks
		}
	}
	return append(peaks, p)
}

// sum adds up changes of the same figure and hour, and drops those that cancel out.
func sum(changes []Change) []Change {
	n := 0
	for _, c := range changes {
		at := slices.IndexFunc(changes[:n], func(o Change) bool {
			return o.Figure == c.Figure && o.Hour == c.Hour && o.Limit == c.Limit
		})
		if at >= 0 {
			changes[at].Delta += c.Delta
			continue
		}
		changes[n] = c
		n++
	}
	return slices.DeleteFunc(changes[:n], func(c Change) bool { return c.Delta == 0 })
}

func (a *Account) trail(birth uint64, c Count) *trail {
	for i := range a.trails {
		if t := &a.trails[i]; t.birth == birth && t.figure == c.Figure && t.limit == c.Limit {
			return t
		}
	}
	a.trails = append(a.trails, trail{birth: birth, limit: c.Limit, figure: c.Figure})
	return &a.trails[len(a.trails)-1]
}

// Close closes the minutes before horizon. With births set, it also closes older births that have no later readings;
// the newest stays open. That is for sources whose births follow one another with growing IDs, so that anything still
// to come of an earlier birth is a repetition.
func (a *Account) Close(horizon int64, births bool) {
	if a.opened && horizon <= a.horizon {
		horizon = a.horizon
	}
	a.peaks = a.closedPeaks(horizon)
	var newest uint64
	for i := range a.trails {
		t := &a.trails[i]
		newest = max(newest, t.birth)
		n := 0
		for n < len(t.marks) && t.marks[n].minute < horizon {
			t.base = max(t.base, t.marks[n].value)
			n++
		}
		t.marks = slices.Delete(t.marks, 0, n)
	}
	a.horizon, a.opened = horizon, true
	if !births {
		return
	}
	open := newest // the oldest open birth
	for i := range a.trails {
		if len(a.trails[i].marks) > 0 {
			open = min(open, a.trails[i].birth)
		}
	}
	a.floor = max(a.floor, open)
	a.trails = slices.DeleteFunc(a.trails, func(t trail) bool { return t.birth < open })
}

// closedPeaks returns the peaks of the minutes before horizon, in the hour that contains it.
func (a *Account) closedPeaks(horizon int64) []peak {
	var kept []peak
	for _, p := range a.peaks {
		if p.hour >= hourOf(horizon) {
			kept = append(kept, p)
		}
	}
	var minutes []peak // hour holds the minute
	for i := range a.trails {
		t := &a.trails[i]
		if t.figure != Debited {
			continue
		}
		t.amounts(func(minute, amount int64) {
			if minute >= horizon || hourOf(minute) < hourOf(horizon) {
				return
			}
			at := slices.IndexFunc(minutes, func(p peak) bool { return p.hour == minute && p.limit == t.limit })
			if at < 0 {
				at = len(minutes)
				minutes = append(minutes, peak{limit: t.limit, hour: minute})
			}
			minutes[at].amount += amount
		})
	}
	for _, m := range minutes {
		kept = highest(kept, peak{m.limit, hourOf(m.hour), m.amount})
	}
	return kept
}
