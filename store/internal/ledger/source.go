package ledger

import (
	"encoding/binary"
	"slices"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/varint"
)

// Source holds what was seen of one item, whose births follow one another but have IDs without order. The zero value
// has seen nothing. Store it in the same transaction as the changes that it returns.
type Source struct {
	account Account
	births  []birth
	closed  int64 // births with an earlier last minute were closed; 0: none
	tops    []top
	begun   bool // see [Source.Begun]
}

// birth records when a birth was last seen.
type birth struct {
	id     uint64
	minute int64
}

// top is the highest minute of a limit in the current day or month.
type top struct {
	limit  string
	window byte
	start  int64
	amount int64
}

// Delta is a change to a figure of a window.
type Delta struct {
	Window store.Window
	Start  int64 // seconds since the Unix epoch
	Limit  string
	Figure Figure
	Amount int64
}

// openMinutes is how long late readings are still booked to the minute they belong to.
const openMinutes = 20

// Late is how many minutes an older birth is remembered after a newer one was seen: twice the time that a stream
// keeps its records.
const Late = 2 * 24 * 60

// maxBirths is how many births an account remembers, because some items are reset all the time, and maxCounters how
// many bytes their counters may take, because each may have other limits. Births of the last bornLate minutes are kept
// however many there are, because reports of a birth may be a little late.
const maxBirths, maxCounters, bornLate = 512, 64 << 10, 2

// See records readings and returns the resulting changes. They depend only on the set of readings: their order does not
// matter within [openMinutes], and repetition never does. Births that are older than late minutes and have successors
// are closed, and so are the oldest beyond [maxBirths] or [maxCounters].
func (s *Source) See(readings []Reading, late int64) []Delta {
	s.begun = false
	var changes []Change
	for i := range readings {
		changes = s.see(&readings[i], late, changes)
	}
	if len(changes) == 0 {
		return nil
	}
	deltas := s.rise(inWindows(changes))
	return slices.DeleteFunc(deltas, func(d Delta) bool { return d.Amount == 0 })
}

func (s *Source) see(x *Reading, late int64, changes []Change) []Change {
	newest := s.newest()
	i := slices.IndexFunc(s.births, func(b birth) bool { return b.id == x.ID })
	switch {
	case i >= 0:
		s.births[i].minute = max(s.births[i].minute, x.Minute)
	case len(s.births) > 0 && x.Minute < newest-late, s.closed != 0 && x.Minute < s.closed:
		return changes // it was closed
	default:
		s.births = append(s.births, birth{x.ID, x.Minute})
		if x.Base {
			s.begun = true
			for _, c := range x.Counts {
				t := s.account.trail(x.ID, c)
				t.base = max(t.base, c.Value)
			}
		}
	}
	changes = s.account.Observe(x, changes)
	if x.Minute <= newest && i >= 0 {
		return changes
	}
	newest = s.newest()
	s.account.Close(newest-openMinutes, false)
	if len(s.births) > 1 {
		s.close(newest, late)
	}
	return changes
}

// close forgets births that are too old or too many.
func (s *Source) close(newest, late int64) {
	before := newest - late
	if len(s.births) > maxBirths || s.counters() > maxCounters {
		minutes := make([]int64, len(s.births))
		for i, b := range s.births {
			minutes[i] = b.minute
		}
		slices.Sort(minutes)
		s.closed = max(s.closed, min(minutes[len(minutes)-min(len(minutes), maxBirths)/2], newest-bornLate))
		before = max(before, s.closed)
	}
	open := make(map[uint64]bool, len(s.births))
	for _, b := range s.births {
		open[b.id] = b.minute >= before
	}
	s.account.trails = slices.DeleteFunc(s.account.trails, func(t trail) bool { return !open[t.birth] })
	s.births = slices.DeleteFunc(s.births, func(b birth) bool { return !open[b.id] })
}

// counters returns about how many bytes the counters take.
func (s *Source) counters() (size int) {
	for i := range s.account.trails {
		size += len(s.account.trails[i].limit) + 24
	}
	return size
}

// Many reports whether there are so many counters that the bucket's windows may have no room to name all limits.
func (s *Source) Many() bool { return s.counters() > maxCounters/4 }

// Begun reports whether the last [Source.See] started a birth from its base. Such a source must be stored even if it
// changed nothing, because otherwise the next reading would count the birth from zero.
func (s *Source) Begun() bool { return s.begun }

func (s *Source) newest() int64 {
	var newest int64
	for i, b := range s.births {
		if i == 0 || b.minute > newest {
			newest = b.minute
		}
	}
	return newest
}

// rise adds the increases of the highest minutes of the current day and month.
func (s *Source) rise(deltas []Delta) []Delta {
	var limits []string
	for i := range s.account.trails {
		if t := &s.account.trails[i]; t.figure == Debited && !slices.Contains(limits, t.limit) {
			limits = append(limits, t.limit)
		}
	}
	for _, limit := range limits {
		for _, p := range s.account.peaksOf(limit) {
			at := timeOfHour(p.hour)
			for _, w := range store.Windows[1:] {
				start := w.Start(at).Unix()
				i := slices.IndexFunc(s.tops, func(t top) bool { return t.limit == limit && t.window == letterOf(w) })
				if i < 0 {
					i = len(s.tops)
					s.tops = append(s.tops, top{limit: limit, window: letterOf(w), start: start})
				}
				switch t := &s.tops[i]; {
				case t.start > start:
				case t.start < start:
					t.start, t.amount = start, 0
					fallthrough
				default:
					if p.amount > t.amount {
						deltas = addDelta(deltas, Delta{w, start, limit, Peak, p.amount - t.amount})
						t.amount = p.amount
					}
				}
			}
		}
	}
	s.tops = slices.DeleteFunc(s.tops, func(t top) bool { return !slices.Contains(limits, t.limit) })
	return deltas
}

func addDelta(deltas []Delta, d Delta) []Delta {
	for i := range deltas {
		o := &deltas[i]
		if o.Start == d.Start && o.Figure == d.Figure && o.Window == d.Window && o.Limit == d.Limit {
			o.Amount += d.Amount
			return deltas
		}
	}
	return append(deltas, d)
}

// inWindows returns changes as those of windows. Peaks are those of hours.
func inWindows(changes []Change) []Delta {
	var deltas []Delta
	for _, c := range changes {
		at := timeOfHour(c.Hour)
		for _, w := range store.Windows {
			if c.Figure != Peak || w == store.Hourly {
				deltas = addDelta(deltas, Delta{w, w.Start(at).Unix(), c.Limit, c.Figure, c.Delta})
			}
		}
	}
	return deltas
}

// Only returns the changes of windows of some types, or all if none are given.
func Only(types []store.Window, deltas []Delta) []Delta {
	if len(types) == 0 {
		return deltas
	}
	return slices.DeleteFunc(deltas, func(d Delta) bool { return !slices.Contains(types, d.Window) })
}

// Append appends the encoding of a source.
func (s *Source) Append(buf []byte) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(s.births)))
	for _, b := range s.births {
		buf = binary.AppendVarint(binary.AppendUvarint(buf, b.id), b.minute)
	}
	buf = binary.AppendVarint(buf, s.closed)
	buf = binary.AppendUvarint(buf, uint64(len(s.tops)))
	for _, t := range s.tops {
		buf = append(varint.AppendText(buf, t.limit), t.window)
		buf = binary.AppendVarint(binary.AppendVarint(buf, t.start), t.amount)
	}
	return s.account.Append(buf)
}

// Decode sets a source to the encoded one.
func (s *Source) Decode(raw []byte) error {
	d := varint.Reader{Rest: raw}
	*s = Source{}
	for range d.Count() {
		s.births = append(s.births, birth{d.Uvarint(), d.Varint()})
	}
	s.closed = d.Varint()
	for range d.Count() {
		s.tops = append(s.tops, top{d.Text(), d.Byte(), d.Varint(), d.Varint()})
	}
	if d.Failed {
		return errDecode
	}
	return s.account.Decode(d.Rest)
}
