package disk

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/inmem"
	"github.com/weirlimits/weir/store/internal/varint"
)

// Buckets of the file, in bbolt's sense. See docs/format/disk.md.
var (
	metaBucket    = []byte("meta")
	recordBucket  = []byte("buckets")
	settledBucket = []byte("settled")
	catalogBucket = []byte("catalog")
	epochBucket   = []byte("epochs")

	formatKey = []byte("format")
	stateKey  = []byte("state")
)

const (
	// format is the version of the layout.
	format = 1
	// magic marks the format record of a weir store.
	magic = "weir store\n"
	// maxKey is the longest key in bytes, below bbolt's 32 KiB.
	maxKey = 16 << 10
)

// errDecode reports that a record is not as it was written.
var errDecode = errors.New("the record is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checked appends the checksum of key and value to value.
func checked(key, value []byte) []byte { return appendSum(value, 0, key) }

// appendSum appends the checksum of key and buf[start:] to buf.
func appendSum(buf []byte, start int, key []byte) []byte {
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, buf[start:])
	return binary.LittleEndian.AppendUint32(buf, sum)
}

// unchecked verifies a value's checksum and returns the value without it.
func unchecked(key, value []byte) ([]byte, error) {
	n := len(value) - 4
	if n < 0 ||
		binary.LittleEndian.Uint32(value[n:]) != crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value[:n]) {
		return nil, errDecode
	}
	return value[:n], nil
}

// appendRecord appends a bucket's record, with the levels to make durable.
func appendRecord(buf []byte, key string, head *inmem.Record, b *inmem.Bucket, levels []inmem.Reserved) []byte {
	start := len(buf)
	buf = binary.LittleEndian.AppendUint64(buf, head.ID)
	buf = binary.LittleEndian.AppendUint64(buf, uint64(head.At))
	buf = binary.AppendUvarint(buf, uint64(head.Epoch))
	buf = binary.AppendUvarint(buf, uint64(head.Own))
	buf = binary.AppendUvarint(buf, uint64(len(levels)))
	for i := range levels {
		s := b.Limit(i)
		buf = appendLimit(buf, s.Limit)
		buf = binary.LittleEndian.AppendUint64(buf, uint64(levels[i].Next))
		buf = binary.AppendUvarint(buf, uint64(s.Debited))
		buf = binary.AppendUvarint(buf, uint64(s.Returned))
	}
	buf = binary.AppendUvarint(buf, uint64(head.Takes))
	var small [128]byte
	return appendSum(buf, start, append(small[:0], key...))
}

func appendLimit(buf []byte, l *store.Limit) []byte {
	flags := byte(0)
	if l.Override {
		flags = 1
	}
	buf = append(buf, flags)
	buf = varint.AppendText(buf, l.Name)
	buf = binary.AppendUvarint(buf, uint64(l.Amount))
	buf = binary.AppendUvarint(buf, uint64(l.Period))
	return binary.AppendUvarint(buf, uint64(l.Burst))
}

func decodeRecord(key, value []byte) (*inmem.Record, error) {
	value, err := unchecked(key, value)
	if err != nil {
		return nil, err
	}
	d := varint.Reader{Rest: value}
	rec := &inmem.Record{ID: d.Uint64(), At: int64(d.Uint64()), Epoch: uint32(d.Uvarint()), Own: int(d.Uvarint())}
	n := d.Uvarint()
	if n > uint64(len(value)) || rec.Own > int(n) || rec.Own < 0 {
		return nil, errDecode
	}
	rec.Limits = make([]store.LimitState, n)
	for i := range rec.Limits {
		rec.Limits[i] = store.LimitState{
			Limit: readLimit(&d), Level: int64(d.Uint64()), Debited: int64(d.Uvarint()), Returned: int64(d.Uvarint()),
		}
	}
	if len(d.Rest) > 0 { // absent in records from before usage was kept
		rec.Takes = int64(d.Uvarint())
	}
	if rec.ID == 0 || d.Failed {
		return nil, errDecode
	}
	return rec, nil
}

// state is the file's record of the whole store. Every transaction that writes buckets writes it too.
type state struct {
	Clock int64  // no earlier time is ever used
	IDs   uint64 // ids of the run that wrote it are above, by less than idStride
	Clean bool   // levels and counters are the true ones
}

// idStride is the least distance between the ids of one run and those of the run before.
const idStride = 1 << 32

func (s state) encode() []byte {
	buf := binary.LittleEndian.AppendUint64(nil, uint64(s.Clock))
	buf = binary.LittleEndian.AppendUint64(buf, s.IDs)
	clean := byte(0)
	if s.Clean {
		clean = 1
	}
	return checked(stateKey, append(buf, clean))
}

func decodeState(value []byte) (state, error) {
	value, err := unchecked(stateKey, value)
	if err != nil || len(value) != 17 {
		return state{}, errDecode
	}
	d := varint.Reader{Rest: value}
	return state{Clock: int64(d.Uint64()), IDs: d.Uint64(), Clean: value[16] == 1}, nil
}

// markKey is the key of a settle's id: its expiry, then the id, so that keys sort by expiry.
func markKey(id string, expires time.Time) []byte {
	buf := binary.BigEndian.AppendUint64(nil, uint64(expires.Unix())^1<<63)
	buf = binary.BigEndian.AppendUint32(buf, uint32(expires.Nanosecond()))
	return append(buf, id...)
}

func decodeMark(key, value []byte) (id string, expires time.Time, err error) {
	if _, err := unchecked(key, value); err != nil || len(key) < 12 {
		return "", time.Time{}, errDecode
	}
	sec := int64(binary.BigEndian.Uint64(key) ^ 1<<63)
	return string(key[12:]), time.Unix(sec, int64(binary.BigEndian.Uint32(key[8:]))), nil
}

func markExpired(key []byte, now int64) bool {
	limit := markKey("", clock.Time(now))
	return len(key) >= 12 && string(key[:12]) <= string(limit)
}
