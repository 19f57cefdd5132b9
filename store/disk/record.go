package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/inmem"
	"github.com/weirlimits/weir/store/internal/varint"
)

// Buckets of the file, in bbolt's sense. See docs/format/disk.md.
var (
	metaBucket    = []byte("meta")
	recordBucket  = []byte("buckets")
	settledBucket = []byte("settled")
	creditBucket  = []byte("credits") // there from the first credit on
	catalogBucket = []byte("catalog")
	epochBucket   = []byte("epochs")

	formatKey = []byte("format")
	stateKey  = []byte("state")
)

const (
	// format is the version of the layout, first that of files that never had a quota or a balance, and quotas that of
	// files that never had a limit of slots.
	format, quotas, first = 3, 2, 1
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
		if h, ok := b.Held(i); ok {
			buf = appendHeld(buf, &h)
		}
	}
	buf = binary.AppendUvarint(buf, uint64(head.Takes))
	var small [128]byte
	return appendSum(buf, start, append(small[:0], key...))
}

func appendLimit(buf []byte, l *store.Limit) []byte {
	flags := byte(0)
	if l.Override {
		flags |= isOverride
	}
	if l.Window != (calendar.Window{}) {
		flags |= hasWindow
	}
	if l.IsSlots() {
		flags |= isSlots
	}
	buf = append(buf, flags)
	buf = varint.AppendText(buf, l.Name)
	buf = binary.AppendUvarint(buf, uint64(l.Amount))
	buf = binary.AppendUvarint(buf, uint64(l.Period))
	buf = binary.AppendUvarint(buf, uint64(l.Burst))
	if flags&hasWindow != 0 {
		buf = varint.AppendText(buf, l.Window.String())
	}
	if flags&isSlots != 0 {
		buf = binary.AppendUvarint(buf, uint64(l.Heal))
	}
	return buf
}

// The flags of a limit.
const isOverride, hasWindow, isSlots = 1, 2, 4

func appendHeld(buf []byte, h *inmem.Held) []byte {
	for _, n := range [...]int64{int64(h.Birth), h.Cur, h.End, h.Prev, h.PrevEnd} {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(n))
	}
	return buf
}

func readHeld(d *varint.Reader) (h inmem.Held) {
	h.Birth = d.Uint64()
	for _, n := range [...]*int64{&h.Cur, &h.End, &h.Prev, &h.PrevEnd} {
		*n = int64(d.Uint64())
	}
	return h
}

func readLimit(d *varint.Reader) (*store.Limit, error) {
	flags := d.Byte()
	l := &store.Limit{Override: flags&isOverride != 0, Name: d.Text()}
	l.Amount, l.Period, l.Burst = int64(d.Uvarint()), time.Duration(d.Uvarint()), int64(d.Uvarint())
	if flags&hasWindow != 0 {
		text := d.Text()
		if d.Failed {
			return nil, errDecode
		}
		var err error
		if l.Window, err = calendar.Parse(text); err != nil {
			return nil, fmt.Errorf("%w: limit %q: %w", ErrNewer, l.Name, err)
		}
	}
	if flags&isSlots != 0 {
		l.Heal = time.Duration(d.Uvarint())
	}
	return l, nil
}

// decodeRecord decodes a record over another one, of which it keeps what is the same: most buckets have limits in
// common.
func decodeRecord(rec *inmem.Record, key, value []byte) error {
	value, err := unchecked(key, value)
	if err != nil {
		return err
	}
	d := varint.Reader{Rest: value}
	*rec = inmem.Record{
		ID: d.Uint64(), At: int64(d.Uint64()), Epoch: uint32(d.Uvarint()), Own: int(d.Uvarint()), Limits: rec.Limits,
	}
	n := d.Uvarint()
	if n > uint64(len(value)) || rec.Own > int(n) || rec.Own < 0 {
		return errDecode
	}
	rec.Limits = slices.Grow(rec.Limits[:0], int(n))[:n]
	var room [64]byte
	for i := range rec.Limits {
		l := &rec.Limits[i]
		same := false
		if l.Limit != nil {
			raw := appendLimit(room[:0], l.Limit)
			if same = bytes.HasPrefix(d.Rest, raw); same {
				d.Rest = d.Rest[len(raw):]
			}
		}
		if !same {
			if l.Limit, err = readLimit(&d); err != nil {
				return err
			}
		}
		l.Level, l.Debited, l.Returned = int64(d.Uint64()), int64(d.Uvarint()), int64(d.Uvarint())
		if l.Limit.IsSlots() {
			if rec.Held == nil {
				rec.Held = make(map[int]inmem.Held)
			}
			rec.Held[i] = readHeld(&d)
		}
	}
	if len(d.Rest) > 0 { // absent in records from before usage was kept
		rec.Takes = int64(d.Uvarint())
	}
	if rec.ID == 0 || d.Failed {
		return errDecode
	}
	return nil
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

// encodeCredit returns the value of a credit, whose key is its mark.
func encodeCredit(key []byte, amount int64) []byte {
	return checked(key, binary.AppendUvarint(nil, uint64(amount)))
}

// decodeCredit returns the amount of a credit, or 0 if there is no value.
func decodeCredit(key, value []byte) (int64, error) {
	if value == nil {
		return 0, nil
	}
	raw, err := unchecked(key, value)
	d := varint.Reader{Rest: raw}
	if n := int64(d.Uvarint()); err == nil && d.Done() && n > 0 {
		return n, nil
	}
	return 0, damaged(creditBucket, key, errDecode)
}

func markExpired(key []byte, now int64) bool {
	limit := markKey("", clock.Time(now))
	return len(key) >= 12 && string(key[:12]) <= string(limit)
}
