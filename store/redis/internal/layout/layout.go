// Package layout encodes and decodes buckets as they are in Redis: see docs/format/redis.md.
package layout

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/internal/clock/slots"
	"github.com/weirlimits/weir/store"
)

// Sizes in bytes of a bucket's head, of a slot, and of a rate without its name. A quota has stepSize and the text of
// its window in addition.
const (
	HeadSize  = 37
	SlotSize  = 24
	LimitSize = 51
	stepSize  = 1
)

// The flags of a limit.
const (
	isOverride = 1
	steps      = 2 // a quota, or a balance
	isSlots    = 4
)

// The versions of a bucket, of which the first has only rates, and the last has limits of slots: earlier versions of
// weir do not read what they do not know.
const (
	version      = 1
	versionSlots = 3
)

// Skew is how far the server's clock may be from true time without the slots of a valid lease being given to others. It
// is not 0: a server that takes over after a failover has another clock.
const Skew = 2 * time.Second

// ErrFormat reports what weir does not understand.
var ErrFormat = errors.New("is not in weir's format")

// AppendLimit appends a valid limit as buckets hold it: a rate with the precomputed factors of its clock, a quota with
// the window that an instant is in and the clock's reading there. A balance has one window without an end.
func AppendLimit(dst []byte, l *store.Limit, now int64) []byte {
	p := l.Params()
	flags, size, text := byte(0), LimitSize+len(l.Name), ""
	if l.Override {
		flags |= isOverride
	}
	switch p.Kind() {
	case clock.Rate:
	case clock.Slots:
		flags |= isSlots
		p.Period = p.Heal
	default:
		flags |= steps
		text = p.Window.String()
		size += stepSize + len(text)
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(size))
	dst = Pair(append(dst, flags), p.Burst)
	if flags&steps == 0 {
		hi, lo := bits.Mul64(uint64(time.Hour), uint64(p.Amount))
		perHour, left := bits.Div64(hi, lo, uint64(p.Period))
		dst = Pair(dst, int64(perHour))
		dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(float64(left)/float64(p.Period)))
		dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(float64(p.Amount)/float64(p.Period)))
		return append(Pair(Pair(dst, p.Amount), p.Period), l.Name...)
	}
	from, last := int64(math.MinInt64), int64(math.MaxInt64)
	if p.Kind() == clock.Quota {
		var next int64
		from, next = p.Window.Bounds(now)
		from, last = min(from, now), max(next-1, now) // bounds saturate
	}
	dst = Pair(Pair(Pair(dst, p.Clock(now)), from), last)
	dst = Pair(Pair(dst, p.Amount), int64(longest[p.Window.Unit()]))
	return append(append(append(dst, byte(len(text))), text...), l.Name...)
}

// longest returns by unit what no window is longer than.
var longest = map[string]time.Duration{
	"hour": time.Hour, "day": 2 * day, "week": 8 * day, "month": 32 * day, "quarter": 93 * day, "year": 367 * day,
}

const day = 24 * time.Hour

// parseLimit decodes a limit, and returns what follows it.
func parseLimit(raw string) (l *store.Limit, rest string, err error) {
	if len(raw) < LimitSize {
		return nil, "", ErrFormat
	}
	size, flags := Read16(raw), raw[2]
	l = &store.Limit{Override: flags&isOverride != 0, Amount: Read64(raw[35:]), Burst: Read64(raw[3:])}
	if flags&steps == 0 {
		if size < LimitSize || len(raw) < size {
			return nil, "", ErrFormat
		}
		l.Name, l.Period = raw[LimitSize:size], time.Duration(Read64(raw[43:]))
		if flags&isSlots != 0 {
			l.Heal, l.Period = l.Period, 0
		}
		return l, raw[size:], nil
	}
	const from = LimitSize + stepSize
	if size < from || len(raw) < size || size < from+int(raw[LimitSize]) {
		return nil, "", ErrFormat
	}
	end := from + int(raw[LimitSize])
	l.Name = raw[end:size]
	if text := raw[from:end]; text != "" {
		l.Window, err = calendar.Parse(text)
	}
	return l, raw[size:], err
}

// ParseLimits decodes limits that follow each other.
func ParseLimits(raw string) (all []*store.Limit, err error) {
	for raw != "" {
		var l *store.Limit
		if l, raw, err = parseLimit(raw); err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// ParseBucket decodes a bucket's state, with what is held at an instant, or at the last write if that is later.
func ParseBucket(b store.Bucket, raw string, now int64) (store.State, error) {
	st := store.State{Bucket: b}
	if len(raw) < HeadSize || raw[0] < version || raw[0] > versionSlots {
		return st, ErrFormat
	}
	st.ID = uint64(Read64(raw[1:]))
	st.At = clock.Time(Read64(raw[9:]))
	st.Epoch = uint64(Read64(raw[17:]))
	st.Takes = Read64(raw[25:])
	n := Read16(raw[35:])
	if len(raw) < HeadSize+n*SlotSize {
		return st, ErrFormat
	}
	st.Limits = make([]store.LimitState, n)
	rest := raw[HeadSize+n*SlotSize:]
	for i := range st.Limits {
		var l *store.Limit
		var err error
		if l, rest, err = parseLimit(rest); err != nil {
			return st, err
		}
		s := raw[HeadSize+i*SlotSize:]
		st.Limits[i] = store.LimitState{Limit: l, Level: Read64(s), Debited: Read64(s[8:]), Returned: Read64(s[16:])}
	}
	for i := range st.Limits {
		l := &st.Limits[i]
		if !l.Limit.IsSlots() {
			continue
		}
		if len(rest) < SlotSize {
			return st, ErrFormat
		}
		held := slots.Held{Cur: l.Level, End: Read64(rest), Prev: Read64(rest[8:]), PrevEnd: Read64(rest[16:])}
		l.SetHeld(held, max(now, clock.Nanos(st.At)), int64(Skew))
		rest = rest[SlotSize:]
	}
	return st, nil
}

// Find returns the state of a limit, matched by name and by whether it is of slots; an override must match in all
// parameters.
func Find(st *store.State, l *store.Limit) *store.LimitState {
	for i := range st.Limits {
		has := st.Limits[i].Limit
		if has.Name == l.Name && has.Override == l.Override && has.IsSlots() == l.IsSlots() &&
			(!l.Override || *has == *l) {
			return &st.Limits[i]
		}
	}
	return nil
}

// Birth returns the birth of what is held in a bucket, given its own. It outlives that: see restart in bucket.lua.
func Birth(bucket uint64) uint64 { return 1<<32 | bucket&math.MaxUint32 }

// Pair appends an int64 as two 32-bit words.
func Pair(dst []byte, n int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(n)) }

// Read64 reads what Pair appends.
func Read64(s string) int64 {
	return int64(uint64(Read32(s))<<32 | uint64(Read32(s[4:])))
}

// Read32 reads an unsigned word of 32 bits.
func Read32(s string) uint32 {
	return uint32(s[0])<<24 | uint32(s[1])<<16 | uint32(s[2])<<8 | uint32(s[3])
}

// Read16 reads an unsigned word of 16 bits.
func Read16(s string) int { return int(s[0])<<8 | int(s[1]) }
