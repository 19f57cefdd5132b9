package disk

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/varint"
)

// catalogKey encodes a key so that bytes sort as [store.Key.Compare] does: each part ends in 0 0, and a 0 within it
// becomes 0 255.
func catalogKey(k store.Key) []byte {
	var buf []byte
	for _, part := range [...]string{k.Namespace, string(k.Kind), k.ID, k.Sub} {
		for i := range len(part) {
			if buf = append(buf, part[i]); part[i] == 0 {
				buf = append(buf, 0xff)
			}
		}
		buf = append(buf, 0, 0)
	}
	return buf
}

func decodeCatalogKey(raw []byte) (k store.Key, err error) {
	var parts [4]string
	for i := range parts {
		var part []byte
		for {
			at := bytes.IndexByte(raw, 0)
			if at < 0 || at+1 >= len(raw) || raw[at+1] != 0 && raw[at+1] != 0xff {
				return k, errDecode
			}
			part = append(part, raw[:at]...)
			end := raw[at+1] == 0
			if raw = raw[at+2:]; end {
				break
			}
			part = append(part, 0)
		}
		parts[i] = string(part)
	}
	if len(raw) > 0 {
		return k, errDecode
	}
	return store.Key{Namespace: parts[0], Kind: store.Kind(parts[1]), ID: parts[2], Sub: parts[3]}, nil
}

func encodeCatalog(key []byte, r *store.Record) []byte {
	buf := binary.AppendUvarint(nil, r.Version)
	if r.Expires.IsZero() {
		buf = append(buf, 0)
	} else {
		buf = append(buf, 1)
		buf = binary.LittleEndian.AppendUint64(buf, uint64(r.Expires.Unix()))
		buf = binary.AppendUvarint(buf, uint64(r.Expires.Nanosecond()))
	}
	buf = varint.AppendText(buf, r.Parent)
	return checked(key, append(buf, r.Value...))
}

func decodeCatalog(key, value []byte) (r store.Record, err error) {
	if r.Key, err = decodeCatalogKey(key); err != nil {
		return r, err
	}
	if value, err = unchecked(key, value); err != nil {
		return r, err
	}
	d := varint.Reader{Rest: value}
	r.Version = d.Uvarint()
	if d.Byte() == 1 {
		r.Expires = time.Unix(int64(d.Uint64()), int64(d.Uvarint())).UTC()
	}
	r.Parent = d.Text()
	if d.Failed || r.Version == 0 {
		return r, errDecode
	}
	r.Value = bytes.Clone(d.Rest)
	return r, nil
}

func encodeEpoch(key []byte, epoch uint64) []byte {
	return checked(key, binary.LittleEndian.AppendUint64(nil, epoch))
}

func decodeEpoch(key, value []byte) (uint64, error) {
	value, err := unchecked(key, value)
	if err != nil || len(value) != 8 {
		return 0, errDecode
	}
	return binary.LittleEndian.Uint64(value), nil
}

func readLimit(d *varint.Reader) *store.Limit {
	l := &store.Limit{Override: d.Byte() == 1, Name: d.Text()}
	l.Amount, l.Period, l.Burst = int64(d.Uvarint()), time.Duration(d.Uvarint()), int64(d.Uvarint())
	return l
}
