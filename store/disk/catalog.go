package disk

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/varint"
)

// catalogKey encodes a key so that bytes sort as [store.Key.Compare] does.
func catalogKey(k store.Key) []byte {
	return varint.AppendParts(nil, k.Namespace, string(k.Kind), k.ID, k.Sub)
}

func decodeCatalogKey(raw []byte) (k store.Key, err error) {
	var kind string
	for _, part := range []*string{&k.Namespace, &kind, &k.ID, &k.Sub} {
		var ok bool
		if *part, raw, ok = varint.CutPart(raw); !ok {
			return store.Key{}, errDecode
		}
	}
	if len(raw) > 0 {
		return store.Key{}, errDecode
	}
	k.Kind = store.Kind(kind)
	return k, nil
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
