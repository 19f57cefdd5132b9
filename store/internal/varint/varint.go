// Package varint decodes values that were appended one after another: variable-length numbers as encoding/binary
// appends them, bytes, and texts preceded by their length. It also has the parts of keys that order bytewise.
package varint

import "encoding/binary"

// AppendText appends a text in the form that [Reader.Text] reads.
func AppendText(buf []byte, s string) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(s))), s...)
}

// Reader reads Rest from its beginning. After an error, Failed is set, nothing is left, and every read returns zero, so
// one check at the end is enough. No length in the input makes it allocate more than the length of Rest.
type Reader struct {
	Rest   []byte
	Failed bool
}

// Done reports whether everything was read without error.
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

// Uint64 reads eight bytes, little-endian.
func (r *Reader) Uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Uvarint reads an unsigned variable-length number.
func (r *Reader) Uvarint() uint64 { return number(r, binary.Uvarint) }

// Varint reads a signed variable-length number.
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

// Count reads the number of elements that follow, each of which takes at least one byte.
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
