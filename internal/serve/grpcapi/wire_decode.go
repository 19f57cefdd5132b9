package grpcapi

import (
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	weirv1 "github.com/weirlimits/weir/api/weir/v1"
)

// reader reads requests by hand. If it returns false, for malformed or rare messages, the registered codec reads them.
type reader struct {
	names [16]string // the last names of limits and resources, most of which recur
	next  int
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// name returns b as a string that many requests share.
func (r *reader) name(b []byte) (string, bool) {
	for i := range r.names {
		if r.names[i] == string(b) {
			return r.names[i], true
		}
	}
	s, ok := text(b)
	if ok && len(s) <= 64 {
		r.names[r.next] = s
		r.next = (r.next + 1) % len(r.names)
	}
	return s, ok
}

func text(b []byte) (string, bool) { return string(b), utf8.Valid(b) }

// field reads a field with a number below 16: its tag, and its content if it holds bytes or its value if it is a number.
func field(b []byte) (tag byte, content []byte, value uint64, rest []byte, ok bool) {
	if len(b) < 2 || b[0] >= 1<<7 {
		return 0, nil, 0, nil, false
	}
	tag = b[0]
	var n int
	switch tag & 7 {
	case varint:
		value, n = protowire.ConsumeVarint(b[1:])
	case length:
		content, n = protowire.ConsumeBytes(b[1:])
	default:
		n = -1
	}
	if n < 0 {
		return 0, nil, 0, nil, false
	}
	return tag, content, value, b[1+n:], true
}

// request reads an AcquireRequest without the limits and wait fields.
func (r *reader) request(b []byte, m *weirv1.AcquireRequest) bool {
	for len(b) > 0 {
		tag, content, value, rest, ok := field(b)
		if !ok {
			return false
		}
		switch tag {
		case 1<<3 | length:
			m.Entity, ok = text(content)
		case 2<<3 | length:
			m.Resource, ok = r.name(content)
		case 3<<3 | length:
			if m.Tokens == nil {
				m.Tokens = tokenMaps.Get().(map[string]int64)
			}
			ok = r.token(content, m.Tokens)
		case 4<<3 | length:
			m.Namespace, ok = r.name(content)
		case 6<<3 | varint:
			m.OnUnavailable = weirv1.OnUnavailable(int32(value))
		default:
			return false
		}
		if !ok {
			return false
		}
		b = rest
	}
	return true
}

// token reads an entry of the tokens map.
func (r *reader) token(b []byte, to map[string]int64) bool {
	var name string
	var amount int64
	for len(b) > 0 {
		tag, content, value, rest, ok := field(b)
		switch {
		case ok && tag == 1<<3|length:
			name, ok = r.name(content)
		case tag == 2<<3|varint:
			amount = int64(value)
		default:
			return false
		}
		if !ok {
			return false
		}
		b = rest
	}
	to[name] = amount
	return true
}

// batch reads an AcquireBatchRequest.
func (r *reader) batch(b []byte, m *weirv1.AcquireBatchRequest) bool {
	n := 0
	for rest := b; len(rest) > 0; {
		tag, _, _, after, ok := field(rest)
		if !ok {
			return false
		}
		if tag == 1<<3|length {
			n++
		}
		rest = after
	}
	if n > maxBatch {
		return false
	}
	requests := make([]weirv1.AcquireRequest, n)
	m.Requests = make([]*weirv1.AcquireRequest, 0, n)
	for len(b) > 0 {
		tag, content, value, rest, _ := field(b)
		switch tag {
		case 1<<3 | length:
			in := &requests[len(m.Requests)]
			if !r.request(content, in) {
				return false
			}
			m.Requests = append(m.Requests, in)
		case 2<<3 | varint:
			m.Atomic = value != 0
		case 3<<3 | varint:
			m.Brief = value != 0
		default:
			return false
		}
		b = rest
	}
	return true
}

// tokenMaps are reused between requests. The limiter does not keep them after the decision.
var tokenMaps = sync.Pool{New: func() any { return make(map[string]int64, 4) }}

// release takes back the map of a decided request.
func release(in *weirv1.AcquireRequest) {
	if m := in.GetTokens(); m != nil && len(m) <= 8 {
		clear(m)
		in.Tokens = nil
		tokenMaps.Put(m)
	}
}
