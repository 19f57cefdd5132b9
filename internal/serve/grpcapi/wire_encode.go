package grpcapi

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlimits/weir/api/weir/v1"
)

// The wire format: a field is a tag, made of its number and type, and a value. Zero fields are left out. An embedded message
// follows its length, which is filled in once it is known.

// Tags of fields with numbers below 16.
const (
	varint = 0
	length = 2
)

func appendUint(b []byte, field byte, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(append(b, field<<3|varint), v)
}

func appendBool(b []byte, field byte, v bool) []byte {
	if !v {
		return b
	}
	return append(b, field<<3|varint, 1)
}

func appendText(b []byte, field byte, v string) []byte {
	if v == "" {
		return b
	}
	return append(protowire.AppendVarint(append(b, field<<3|length), uint64(len(v))), v...)
}

// open begins an embedded message, whose content begins at the end of the returned bytes.
func open(b []byte, field byte) []byte { return append(b, field<<3|length, 0) }

// closed fills in the length of the message whose content begins at from.
func closed(b []byte, from int) []byte {
	n := len(b) - from
	if n < 1<<7 {
		b[from-1] = byte(n)
		return b
	}
	more := protowire.SizeVarint(uint64(n)) - 1
	for range more {
		b = append(b, 0)
	}
	copy(b[from+more:], b[from:from+n])
	protowire.AppendVarint(b[:from-1], uint64(n))
	return b
}

func appendDuration(b []byte, field byte, d *durationpb.Duration) []byte {
	if d == nil {
		return b
	}
	return appendTimes(b, field, d.GetSeconds(), d.GetNanos())
}

func appendTimestamp(b []byte, field byte, t *timestamppb.Timestamp) []byte {
	if t == nil {
		return b
	}
	return appendTimes(b, field, t.GetSeconds(), t.GetNanos())
}

func appendTimes(b []byte, field byte, seconds int64, nanos int32) []byte {
	b = open(b, field)
	from := len(b)
	b = appendUint(b, 1, uint64(seconds))
	b = appendUint(b, 2, uint64(nanos))
	return closed(b, from)
}

// appendDecision appends an AcquireResponse.
func appendDecision(b []byte, m *weirv1.AcquireResponse) []byte {
	b = appendBool(b, 1, m.GetAllowed())
	b = appendText(b, 2, m.GetLease())
	b = appendTimestamp(b, 3, m.GetExpires())
	b = appendBool(b, 4, m.GetDegraded())
	b = appendText(b, 5, m.GetReason())
	for _, st := range m.GetLimits() {
		b = open(b, 6)
		from := len(b)
		b = closed(appendStatus(b, st), from)
	}
	b = appendDuration(b, 7, m.GetRetryAfter())
	return appendUint(b, 8, uint64(m.GetOver()))
}

func appendStatus(b []byte, m *weirv1.LimitStatus) []byte {
	b = appendText(b, 1, m.GetEntity())
	b = appendText(b, 2, m.GetResource())
	b = appendText(b, 3, m.GetLimit())
	b = appendUint(b, 4, uint64(m.GetSource()))
	b = appendUint(b, 5, uint64(m.GetRequested()))
	b = appendUint(b, 6, uint64(m.GetAvailable()))
	b = appendUint(b, 7, uint64(m.GetAmount()))
	b = appendDuration(b, 8, m.GetPeriod())
	b = appendUint(b, 9, uint64(m.GetBurst()))
	b = appendDuration(b, 10, m.GetFullIn())
	b = appendBool(b, 11, m.GetRefused())
	b = appendDuration(b, 12, m.GetRetryAfter())
	b = appendBool(b, 13, m.GetShadow())
	return appendBool(b, 14, m.GetWouldRefuse())
}

// appendBatch appends an AcquireBatchResponse.
func appendBatch(b []byte, m *weirv1.AcquireBatchResponse) []byte {
	for _, r := range m.GetResults() {
		b = open(b, 1)
		from := len(b)
		if d := r.GetDecision(); d != nil {
			b = open(b, 1)
			from := len(b)
			b = closed(appendDecision(b, d), from)
		}
		if e := r.GetError(); e != nil {
			b = open(b, 2)
			from := len(b)
			b = closed(appendError(b, e), from)
		}
		b = closed(b, from)
	}
	if d := m.GetRefused(); d != nil {
		b = open(b, 2)
		from := len(b)
		b = closed(appendDecision(b, d), from)
	}
	return b
}

func appendError(b []byte, m *weirv1.Error) []byte {
	b = appendUint(b, 1, uint64(m.GetCode()))
	b = appendText(b, 2, m.GetMessage())
	b = appendText(b, 3, m.GetReason())
	b = appendText(b, 4, m.GetField())
	return appendDuration(b, 5, m.GetRetryAfter())
}
