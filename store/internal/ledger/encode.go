package ledger

import (
	"encoding/binary"
	"errors"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/varint"
)

// errDecode reports damaged bytes.
var errDecode = errors.New("the usage record is damaged")

// whole returns an error unless everything was read.
func whole(d *varint.Reader) error {
	if !d.Done() {
		return errDecode
	}
	return nil
}

// Append appends the encoding of an account.
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
		buf = append(varint.AppendText(buf, t.limit), byte(t.figure))
		buf = binary.AppendVarint(buf, t.base)
		buf = binary.AppendUvarint(buf, uint64(len(t.marks)))
		for _, m := range t.marks {
			buf = binary.AppendVarint(binary.AppendVarint(buf, m.minute-a.horizon), m.value)
		}
	}
	buf = binary.AppendUvarint(buf, uint64(len(a.peaks)))
	for _, p := range a.peaks {
		buf = binary.AppendVarint(binary.AppendVarint(varint.AppendText(buf, p.limit), p.hour), p.amount)
	}
	return buf
}

// Decode sets an account to the encoded one.
func (a *Account) Decode(raw []byte) error {
	d := varint.Reader{Rest: raw}
	*a = Account{floor: d.Uvarint()}
	flags := d.Byte()
	a.opened, a.ended, a.horizon = flags&1 != 0, flags&2 != 0, d.Varint()
	for range d.Count() {
		t := trail{birth: d.Uvarint(), limit: d.Text(), figure: Figure(d.Byte()), base: d.Varint()}
		for range d.Count() {
			t.marks = append(t.marks, mark{a.horizon + d.Varint(), d.Varint()})
		}
		if t.figure >= figures {
			return errDecode
		}
		a.trails = append(a.trails, t)
	}
	for range d.Count() {
		a.peaks = append(a.peaks, peak{d.Text(), d.Varint(), d.Varint()})
	}
	return whole(&d)
}

// appendCounts appends the encoding of a window.
func appendCounts(buf []byte, counts []store.LimitFigures) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(counts)))
	for i := range counts {
		c := &counts[i]
		buf = varint.AppendText(buf, c.Limit)
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

// decodeCounts decodes a window; nil is one without counts.
func decodeCounts(raw []byte) (counts []store.LimitFigures, err error) {
	if raw == nil {
		return nil, nil
	}
	d := varint.Reader{Rest: raw}
	counts = make([]store.LimitFigures, d.Count())
	for i := range counts {
		c := &counts[i]
		c.Limit = d.Text()
		has := d.Uvarint()
		for f := range figures {
			if has&(1<<f) != 0 {
				*Field(&c.Figures, f) = d.Varint()
			}
		}
	}
	return counts, whole(&d)
}
