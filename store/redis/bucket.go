package redis

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Sizes in bytes of a bucket's head, of a slot, and of a limit without its name: see docs/format/redis.md.
const (
	headSize  = 37
	slotSize  = 24
	limitSize = 51
	hour      = int64(time.Hour)
)

// appendLimit appends a limit as buckets hold it, with the precomputed factors of its clock.
func appendLimit(dst []byte, l *store.Limit) ([]byte, error) {
	p := clock.Params{Amount: l.Amount, Period: int64(l.Period), Burst: l.Burst}
	if bad := p.Check(); bad != nil {
		return nil, invalid("limit %q: %s %s", l.Name, bad.Field, bad.Reason)
	}
	if len(l.Name) > math.MaxUint16-limitSize {
		return nil, invalid("the name of a limit has %d bytes, which is too long", len(l.Name))
	}
	hi, lo := bits.Mul64(uint64(hour), uint64(p.Amount))
	perHour, left := bits.Div64(hi, lo, uint64(p.Period))
	dst = binary.BigEndian.AppendUint16(dst, uint16(limitSize+len(l.Name)))
	over := byte(0)
	if l.Override {
		over = 1
	}
	dst = append(dst, over)
	dst = pair(pair(dst, p.Burst), int64(perHour))
	dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(float64(left)/float64(p.Period)))
	dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(float64(p.Amount)/float64(p.Period)))
	dst = pair(pair(dst, p.Amount), p.Period)
	return append(dst, l.Name...), nil
}

var errFormat = errors.New("is not in weir's format")

// parseBucket decodes a bucket's state.
func parseBucket(b store.Bucket, raw string) (store.State, error) {
	st := store.State{Bucket: b}
	if len(raw) < headSize || raw[0] != 1 {
		return st, errFormat
	}
	st.ID = uint64(read64(raw[1:]))
	st.At = clock.Time(read64(raw[9:]))
	st.Epoch = uint64(read64(raw[17:]))
	st.Takes = read64(raw[25:])
	n := read16(raw[35:])
	if len(raw) < headSize+n*slotSize {
		return st, errFormat
	}
	st.Limits = make([]store.LimitState, n)
	rest := raw[headSize+n*slotSize:]
	for i := range st.Limits {
		s := raw[headSize+i*slotSize:]
		if len(rest) < limitSize || read16(rest) < limitSize || len(rest) < read16(rest) {
			return st, errFormat
		}
		st.Limits[i] = store.LimitState{
			Limit: &store.Limit{
				Name: rest[limitSize:read16(rest)], Override: rest[2] == 1,
				Amount: read64(rest[35:]), Period: time.Duration(read64(rest[43:])), Burst: read64(rest[3:]),
			},
			Level: read64(s), Debited: read64(s[8:]), Returned: read64(s[16:]),
		}
		rest = rest[read16(rest):]
	}
	return st, nil
}

// find returns the state of a limit, matched by name; an override must match in all parameters.
func find(st *store.State, l *store.Limit) *store.LimitState {
	for i := range st.Limits {
		if has := st.Limits[i].Limit; has.Name == l.Name && has.Override == l.Override && (!l.Override || *has == *l) {
			return &st.Limits[i]
		}
	}
	return nil
}

// place is a bucket as the script takes it: its key, and the limits of a debit.
type place struct {
	key    string
	base   int
	queue  *queue
	limits int
	text   string
}

func appendCharges(buf []byte, charges []store.Charge) []byte {
	for i := range charges {
		flag := byte(0)
		switch {
		case charges[i].Force:
			flag = 1
		case charges[i].Shadow:
			flag = 2
		}
		buf = append(pair(buf, charges[i].Amount), flag)
	}
	return buf
}
