package usage

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/weirlimits/weir/store"
)

// errDecode says that bytes are not what was written.
var errDecode = errors.New("the usage record is damaged")

// Append appends an account's bytes.
func (a *Account) Append(buf []byte) []byte {
	buf = binary.AppendUvarint(buf, a.floor)
	flags := byte(0)
	if a.opened {
		flags |= 1
	}
	if a.ended {
		flags |= 2
	}
	buf = append(buf, flags)
	buf = binary.AppendVarint(buf, a.horizon)
	buf = binary.AppendUvarint(buf, uint64(len(a.trails)))
	for i := range a.trails {
		t := &a.trails[i]
		buf = binary.AppendUvarint(buf, t.birth)
		buf = append(appendString(buf, t.limit), byte(t.figure))
		buf = binary.AppendVarint(buf, t.base)
		buf = binary.AppendUvarint(buf, uint64(len(t.marks)))
		for _, m := range t.marks {
			buf = binary.AppendVarint(binary.AppendVarint(buf, m.minute-a.horizon), m.value)
		}
	}
	buf = binary.AppendUvarint(buf, uint64(len(a.peaks)))
	for _, p := range a.peaks {
		buf = binary.AppendVarint(binary.AppendVarint(appendString(buf, p.limit), p.hour), p.amount)
	}
	return buf
}

// Decode sets an account to what was appended.
func (a *Account) Decode(raw []byte) error {
	d := decoder{rest: raw}
	*a = Account{floor: d.uvarint()}
	flags := d.byte()
	a.opened, a.ended, a.horizon = flags&1 != 0, flags&2 != 0, d.varint()
	for range d.count() {
		t := trail{birth: d.uvarint(), limit: d.string(), figure: Figure(d.byte()), base: d.varint()}
		for range d.count() {
			t.marks = append(t.marks, mark{a.horizon + d.varint(), d.varint()})
		}
		if t.figure >= figures {
			return errDecode
		}
		a.trails = append(a.trails, t)
	}
	for range d.count() {
		a.peaks = append(a.peaks, peak{d.string(), d.varint(), d.varint()})
	}
	return d.err()
}

// appendCounts appends a window's bytes.
func appendCounts(buf []byte, counts []store.LimitFigures) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(counts)))
	for i := range counts {
		c := &counts[i]
		buf = appendString(buf, c.Limit)
		has := uint64(0)
		for f := range figures {
			if *Field(&c.Figures, f) != 0 {
				has |= 1 << f
			}
		}
		buf = binary.AppendUvarint(buf, has)
		for f := range figures {
			if v := *Field(&c.Figures, f); v != 0 {
				buf = binary.AppendVarint(buf, v)
			}
		}
	}
	return buf
}

func decodeCounts(raw []byte, counts []store.LimitFigures) ([]store.LimitFigures, error) {
	d := decoder{rest: raw}
	for range d.count() {
		c := store.LimitFigures{Limit: d.string()}
		has := d.uvarint()
		for f := range figures {
			if has&(1<<f) != 0 {
				*Field(&c.Figures, f) = d.varint()
			}
		}
		counts = append(counts, c)
	}
	return counts, d.err()
}

// add adds to a limit's figures, which are ordered by limit.
func add(counts []store.LimitFigures, limit string, f Figure, delta int64) []store.LimitFigures {
	i, found := slices.BinarySearchFunc(counts, limit, func(c store.LimitFigures, l string) int { return cmp.Compare(c.Limit, l) })
	if !found {
		counts = slices.Insert(counts, i, store.LimitFigures{Limit: limit})
	}
	*Field(&counts[i].Figures, f) += delta
	return counts
}

// Merge adds figures to figures, both ordered by limit. Peaks do not add up: the higher one counts.
func Merge(counts, more []store.LimitFigures) []store.LimitFigures {
	for i := range more {
		m := &more[i]
		at, found := slices.BinarySearchFunc(counts, m.Limit, func(c store.LimitFigures, l string) int { return cmp.Compare(c.Limit, l) })
		if !found {
			counts = slices.Insert(counts, at, *m)
			continue
		}
		c := &counts[at].Figures
		high := max(c.Peak, m.Peak)
		for f := range figures {
			*Field(c, f) += *Field(&m.Figures, f)
		}
		c.Peak = high
	}
	return counts
}

func appendString(buf []byte, s string) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(s))), s...)
}

// decoder reads bytes from their beginning. After a mistake it returns zeros, and has failed.
type decoder struct {
	rest   []byte
	failed bool
}

func (d *decoder) err() error {
	if d.failed || len(d.rest) > 0 {
		return errDecode
	}
	return nil
}

func (d *decoder) fail() { d.rest, d.failed = nil, true }

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.rest)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// count returns a number of things that follow, each of at least a byte.
func (d *decoder) count() int {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.fail()
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

func (d *decoder) string() string {
	n := d.count()
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}
