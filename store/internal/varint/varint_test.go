package varint_test

import (
	"encoding/binary"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/store/internal/varint"
)

// Everything that is written can be read again, and no truncated text is accepted.
func TestReader(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b, u, v := rapid.Byte().Draw(t, "byte"), rapid.Uint64().Draw(t, "unsigned"), rapid.Int64().Draw(t, "signed")
		fixed, text := rapid.Uint64().Draw(t, "fixed"), rapid.String().Draw(t, "text")
		raw := binary.AppendVarint(binary.AppendUvarint([]byte{b}, u), v)
		raw = varint.AppendText(binary.LittleEndian.AppendUint64(raw, fixed), text)
		read := func(raw []byte) (same, done bool) {
			r := varint.Reader{Rest: raw}
			same = r.Byte() == b && r.Uvarint() == u && r.Varint() == v && r.Uint64() == fixed && r.Text() == text
			return same, r.Done()
		}
		if same, done := read(raw); !same || !done {
			t.Fatalf("same %t, done %t", same, done)
		}
		if _, done := read(raw[:rapid.IntRange(0, len(raw)-1).Draw(t, "cut")]); done {
			t.Fatal("what was cut off is not missed")
		}
		if _, done := read(append(raw, 0)); done {
			t.Fatal("what is too much is not seen")
		}
	})
}

func TestReaderFails(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func(*varint.Reader) any{
		"byte":     func(r *varint.Reader) any { r.Text(); return r.Byte() },
		"fixed":    func(r *varint.Reader) any { return r.Uint64() },
		"unsigned": func(r *varint.Reader) any { r.Text(); return r.Uvarint() },
		"signed":   func(r *varint.Reader) any { r.Text(); return r.Varint() },
		"count":    func(r *varint.Reader) any { return r.Count() },
		"text":     func(r *varint.Reader) any { return r.Text() },
	} {
		r := varint.Reader{Rest: append(binary.AppendUvarint(nil, 1<<40), 1)} // a length longer than the data
		if v := read(&r); !r.Failed || r.Done() || len(r.Rest) > 0 || v != zero(v) {
			t.Errorf("%s: %v, failed %t, %d bytes left", name, v, r.Failed, len(r.Rest))
		}
	}
	r := varint.Reader{Rest: binary.AppendUvarint(nil, math.MaxUint64)}
	if r.Count() != 0 || !r.Failed {
		t.Error("a count beyond all bytes was believed")
	}
}

func zero(v any) any {
	switch v.(type) {
	case byte:
		return byte(0)
	case uint64:
		return uint64(0)
	case int64:
		return int64(0)
	case int:
		return 0
	}
	return ""
}
