package usage

import (
	"encoding/binary"
	"slices"

	"github.com/weirlimits/weir/internal/varint"
	"github.com/weirlimits/weir/store"
)

// Sight is a reading of an item's counters in a minute, from the item's image in a stream.
type Sight struct {
	ID     uint64 // of the birth; never 0
	Minute int64  // of the last change
	Counts []Count
	// Base says that these counts were already booked, or precede everything that was: an unknown birth starts from
	// them.
	Base bool
}

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

// openMinutes is how long late sights are still booked to the minute they belong to.
const openMinutes = 20

// Late is how many minutes an older birth is remembered after a newer one was seen: twice the time that a stream
// keeps its records.
const Late = 2 * 24 * 60

// maxBirths is how many births an account remembers, because some items are reset all the time. Births of the last
// bornLate minutes are kept however many there are, because reports of a birth may be a little late.
const maxBirths, bornLate = 512, 2

// See records sights and returns the resulting changes. They depend only on the set of sights: their order does not
// matter within [openMinutes], and repetition never does. Births that are older than late minutes and have successors
// are closed, and so are the oldest beyond [maxBirths].
func (s *Source) See(sights []Sight, late int64) []Delta {
	s.begun = false
	var changes []Change
	for i := range sights {
		changes = s.see(&sights[i], late, changes)
	}
	if len(changes) == 0 {
		return nil
	}
	var deltas []Delta
	for _, c := range changes {
		at := timeOfHour(c.Hour)
		for _, w := range store.Windows {
			if c.Figure != Peak || w == store.Hourly {
				deltas = addDelta(deltas, Delta{w, Start(w, at).Unix(), c.Limit, c.Figure, c.Delta})
			}
		}
	}
	deltas = s.rise(deltas)
	return slices.DeleteFunc(deltas, func(d Delta) bool { return d.Amount == 0 })
}

func (s *Source) see(x *Sight, late int64, changes []Change) []Change {
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
	changes = s.account.Observe(&Observation{ID: x.ID, Minute: x.Minute, Counts: x.Counts}, changes)
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
	if len(s.births) > maxBirths {
		minutes := make([]int64, len(s.births))
		for i, b := range s.births {
			minutes[i] = b.minute
		}
		slices.Sort(minutes)
		s.closed = max(s.closed, min(minutes[len(minutes)-maxBirths/2], newest-bornLate))
		before = max(before, s.closed)
	}
	open := make(map[uint64]bool, len(s.births))
	for _, b := range s.births {
		open[b.id] = b.minute >= before
	}
	s.account.trails = slices.DeleteFunc(s.account.trails, func(t trail) bool { return !open[t.birth] })
	s.births = slices.DeleteFunc(s.births, func(b birth) bool { return !open[b.id] })
}

// Begun reports whether the last [Source.See] started a birth from its base. Such a source must be stored even if it
// changed nothing, because otherwise the next sight would count the birth from zero.
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
				start := Start(w, at).Unix()
				i := slices.IndexFunc(s.tops, func(t top) bool { return t.limit == limit && t.window == letter(w) })
				if i < 0 {
					i = len(s.tops)
					s.tops = append(s.tops, top{limit: limit, window: letter(w), start: start})
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

// AppendTold appends the encoding of a process's observations, for others to read.
func AppendTold(buf []byte, obs []Observation) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(obs)))
	for i := range obs {
		o := &obs[i]
		buf = varint.AppendText(varint.AppendText(buf, o.Bucket.Entity), o.Bucket.Resource)
		buf = binary.AppendVarint(binary.AppendUvarint(buf, o.ID), o.Minute)
		buf = binary.AppendUvarint(buf, uint64(len(o.Counts)))
		for _, c := range o.Counts {
			buf = binary.AppendVarint(append(varint.AppendText(buf, c.Limit), byte(c.Figure)), c.Value)
		}
	}
	return buf
}

// DecodeTold decodes what [AppendTold] appended, without namespace and source.
func DecodeTold(raw []byte) ([]Observation, error) {
	d := varint.Reader{Rest: raw}
	var obs []Observation
	for range d.Count() {
		o := Observation{
			Bucket: store.Bucket{Entity: d.Text(), Resource: d.Text()}, ID: d.Uvarint(), Minute: d.Varint(),
		}
		for range d.Count() {
			c := Count{d.Text(), Figure(d.Byte()), d.Varint()}
			if c.Figure >= figures {
				return nil, errDecode
			}
			o.Counts = append(o.Counts, c)
		}
		obs = append(obs, o)
	}
	return obs, whole(&d)
}

// MergeSight adds a sight to those of a source. Adjacent sights of a birth in one minute become one.
func MergeSight(sights []Sight, x Sight) []Sight {
	if n := len(sights); n > 0 && !x.Base {
		if last := &sights[n-1]; last.ID == x.ID && last.Minute == x.Minute && !last.Base {
			for _, c := range x.Counts {
				i := slices.IndexFunc(last.Counts, func(o Count) bool {
					return o.Figure == c.Figure && o.Limit == c.Limit
				})
				if i < 0 {
					last.Counts = append(last.Counts, c)
				} else {
					last.Counts[i].Value = max(last.Counts[i].Value, c.Value)
				}
			}
			return sights
		}
	}
	return append(sights, x)
}

// Figures is the number of figures.
const Figures = int(figures)

// Letters are the letters of the figures, in order.
const Letters = "NDRPFTAGWV"

// FigureOf returns the figure of a letter.
func FigureOf(letter byte) (Figure, bool) {
	for i := range len(Letters) {
		if Letters[i] == letter {
			return Figure(i), true
		}
	}
	return 0, false
}
