// Package leaseid makes the lease IDs that clients hold, over HTTP and gRPC alike, and accepts only its own.
package leaseid

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/weirlimits/weir"
)

// A lease ID contains everything about a lease, so that any instance with the same key can settle it:
//
//	base64url( version | expires ms | seq | id | namespace | its opaque id | entity | resource | charges | mac )
//	charge: flags | [entity] | limit name | amount | period ns | burst | tokens
//
// Strings are prefixed with their length, and numbers are varints. The mac is HMAC-SHA256 over a label and everything
// before it, truncated to 16 bytes. The content is not secret: clients can read it, but must not rely on it.

const (
	version = 1
	macSize = 16
	// MaxLen is the maximum length of an ID. It is far above that of the largest chain with the most limits.
	MaxLen = 256 << 10
	// MinKey is the minimum length of a key in bytes.
	MinKey = 16
)

// Flags of a charge.
const (
	flagOverride = 1 << iota
	flagParent   // of another entity than the lease's, which follows
	flagLeftOut
	flagLocal // of the lease; it has charges
)

var encoding = base64.RawURLEncoding.Strict()

// Lease is a held lease and the name of its namespace.
type Lease struct {
	Namespace string
	Held      weir.LeaseToken
}

// Signer makes IDs and accepts only its own. It is safe for concurrent use.
type Signer struct{ scratches sync.Pool }

type scratch struct {
	mac     hash.Hash
	payload []byte
}

// New returns a signer with a key of at least [MinKey] bytes. Signers with equal keys accept each other's IDs.
func New(key []byte) *Signer {
	return &Signer{scratches: sync.Pool{New: func() any { return &scratch{mac: hmac.New(sha256.New, key)} }}}
}

// Open is [New]. If key is empty, it uses the key of the limiter's store, which the store creates once.
func Open(lim *weir.Limiter, key []byte) (*Signer, error) {
	if len(key) == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		var err error
		if key, err = StoredKey(ctx, lim); err != nil {
			return nil, fmt.Errorf("read the key of lease ids: %w", err)
		}
	}
	return New(key), nil
}

// Unique returns a [weir.LeaseToken.ID] that no other lease has. It may be guessable, because IDs are signed.
func Unique() string {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], rand.Uint64())
	binary.LittleEndian.PutUint64(b[8:], rand.Uint64())
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// label separates lease IDs from anything else that the same key may sign.
var label = []byte("weir lease\x00")

// sign appends the mac of payload to dst.
func (c *scratch) sign(dst, payload []byte) []byte {
	c.mac.Reset()
	c.mac.Write(label)
	c.mac.Write(payload)
	return c.mac.Sum(dst)[:len(dst)+macSize]
}

// Append appends the ID of a lease.
func (s *Signer) Append(dst []byte, l *Lease) []byte {
	c := s.scratches.Get().(*scratch)
	defer s.scratches.Put(c)
	payload := appendLease(c.payload[:0], l)
	payload = c.sign(payload, payload)
	c.payload = payload
	return encoding.AppendEncode(dst, payload)
}

// Parse returns the lease of an ID made by this signer or one with the same key, and false for anything else.
func (s *Signer) Parse(id string) (*Lease, bool) {
	if len(id) > MaxLen || strings.ContainsAny(id, "\r\n") { // base64 would skip line breaks
		return nil, false
	}
	raw, err := encoding.DecodeString(id)
	if err != nil || len(raw) < macSize {
		return nil, false
	}
	c := s.scratches.Get().(*scratch)
	defer s.scratches.Put(c)
	payload, mac := raw[:len(raw)-macSize], raw[len(raw)-macSize:]
	c.payload = c.sign(c.payload[:0], payload)
	if !hmac.Equal(mac, c.payload) {
		return nil, false
	}
	return parse(payload)
}

func appendLease(b []byte, l *Lease) []byte {
	h := &l.Held
	b = append(b, version)
	b = binary.AppendVarint(b, h.Expires.UnixMilli())
	b = binary.AppendUvarint(b, uint64(h.Seq))
	for _, s := range []string{h.ID, l.Namespace, h.Namespace, h.Entity, h.Resource} {
		b = appendText(b, s)
	}
	b = binary.AppendUvarint(b, uint64(len(h.Charges)))
	for i := range h.Charges {
		c := &h.Charges[i]
		var flags byte
		if c.Override {
			flags |= flagOverride
		}
		if c.LeftOut {
			flags |= flagLeftOut
		}
		if h.Local {
			flags |= flagLocal
		}
		if c.Entity != h.Entity {
			flags |= flagParent
		}
		b = append(b, flags)
		if flags&flagParent != 0 {
			b = appendText(b, c.Entity)
		}
		b = appendText(b, c.Limit.Name)
		b = binary.AppendVarint(b, c.Limit.Amount)
		b = binary.AppendVarint(b, int64(c.Limit.Period))
		b = binary.AppendVarint(b, c.Limit.Burst)
		b = binary.AppendVarint(b, c.Tokens)
	}
	return b
}

func parse(payload []byte) (*Lease, bool) {
	r := reader{rest: payload}
	if r.byte() != version {
		return nil, false
	}
	l := &Lease{}
	h := &l.Held
	h.Expires = time.UnixMilli(r.varint()).UTC()
	h.Seq = int(r.uvarint())
	for _, s := range []*string{&h.ID, &l.Namespace, &h.Namespace, &h.Entity, &h.Resource} {
		*s = r.text()
	}
	for range r.count() {
		c := weir.TokenCharge{Entity: h.Entity}
		flags := r.byte()
		c.Override, c.LeftOut = flags&flagOverride != 0, flags&flagLeftOut != 0
		h.Local = h.Local || flags&flagLocal != 0
		if flags&flagParent != 0 {
			c.Entity = r.text()
		}
		c.Limit = weir.Limit{Name: r.text(), Amount: r.varint(), Period: time.Duration(r.varint()), Burst: r.varint()}
		c.Tokens = r.varint()
		h.Charges = append(h.Charges, c)
	}
	return l, !r.failed && len(r.rest) == 0 && h.Seq >= 0
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// reader reads rest from its beginning. After an error, failed is set, nothing is left, and every read returns zero.
type reader struct {
	rest   []byte
	failed bool
}

// take returns the next n bytes, or nil if there are fewer.
func (r *reader) take(n uint64) []byte {
	if r.failed = r.failed || n > uint64(len(r.rest)); r.failed {
		r.rest = nil
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) text() string { return string(r.take(r.uvarint())) }

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	r.skip(n)
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.rest)
	r.skip(n)
	return v
}

// skip skips the bytes of a number; n < 1 means that there is none.
func (r *reader) skip(n int) {
	if r.failed = r.failed || n < 1; r.failed {
		r.rest = nil
		return
	}
	r.rest = r.rest[n:]
}

// count reads the number of elements that follow, each of at least one byte.
func (r *reader) count() uint64 {
	n := r.uvarint()
	if r.failed = r.failed || n > uint64(len(r.rest)); r.failed {
		return 0
	}
	return n
}
