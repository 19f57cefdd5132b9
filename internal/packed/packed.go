// Package packed takes apart what was written one value after another: numbers of varying length as encoding/binary
// appends them, bytes, and texts with their length before them.
package packed

import "encoding/binary"

// AppendText appends a text as [Reader.Text] reads it.
func AppendText(buf []byte, s string) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(s))), s...)
}

// Reader reads Rest from its beginning. After a mistake it has Failed, nothing is left, and all that is read is zero: it
// is enough to look once, at the end. No length that it reads makes it allocate more than Rest is long.
type Reader struct {
	Rest   []byte
	Failed bool
}

// Done reports whether all was read, without a mistake.
func (r *Reader) Done() bool { return !r.Failed && len(r.Rest) == 0 }

func (r *Reader) fail() { r.Rest, r.Failed = nil, true }

// take returns the next n bytes, or nil.
func (r *Reader) take(n uint64) []byte {
	if r.Failed || n > uint64(len(r.Rest)) {
		r.fail()
		return nil
	}
	b := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return b
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

// Uint64 reads eight bytes, the lowest first.
func (r *Reader) Uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Uvarint reads an unsigned number.
func (r *Reader) Uvarint() uint64 { return number(r, binary.Uvarint) }

// Varint reads a signed number.
func (r *Reader) Varint() int64 { return number(r, binary.Varint) }

func number[T int64 | uint64](r *Reader, read func([]byte) (T, int)) T {
	v, n := read(r.Rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Count reads of how many things what follows consists, each of at least a byte.
func (r *Reader) Count() int {
	n := r.Uvarint()
	if n > uint64(len(r.Rest)) {
		r.fail()
		return 0
	}
	return int(n)
}

// Text reads a text.
func (r *Reader) Text() string { return string(r.take(r.Uvarint())) }
