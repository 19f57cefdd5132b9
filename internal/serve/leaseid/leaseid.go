// Package leaseid makes the lease IDs that clients hold, over HTTP and gRPC alike, and accepts only its own.
package leaseid

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store"
)

// A lease ID contains everything about a lease, so that any instance with the same key can settle it:
//
//	base64url( version | expires ms | seq | id | namespace | its opaque id | entity | resource | charges | mac )
//	charge: flags | [entity] | [resource] | limit name | amount | period ns | burst | tokens | terms
//	terms: [max debt] | [since ns | epoch] | [over] | [what | [slots | heal ns] | [birth | end ns | valid ns]]
//
// Strings are prefixed with their length, and numbers are varints. The mac is HMAC-SHA256 over a label and everything
// before it, truncated to 16 bytes. The content is not secret: clients can read it, but must not rely on it.
//
// Version 1 has charges to one resource alone, and an entity at each that is to a parent. Version 2, of leases with
// charges to a group or a total, has an entity or a resource where it is another one than that of the charge before.
// Version 3, of leases with charges to slots, is as version 2, and each charge ends with what it has of slots.

const (
	version     = 1
	versionGrid = 2
	versionHeld = 3
	macSize     = 16
	// MaxLen is the maximum length of an ID. It is above that of the longest chain with the most limits, each with a
	// name of 64 bytes, on a resource, its group and the total.
	MaxLen = 256 << 10
	// MinKey is the minimum length of a key in bytes.
	MinKey = 16
)

// Flags of a charge.
const (
	flagOverride = 1 << iota
	flagEntity   // of another entity than the lease's or, in version 2, the charge's before; it follows
	flagLeftOut
	flagLocal // of the lease; it has charges
	flagMaxDebt
	flagStrict // since follows, of the lease, and the epoch
	flagOver
	flagResource // in version 2: on another resource than that of the charge before; it follows
)

// What a charge has of slots, in version 3.
const (
	hasSlots = 1 << iota // the limit is one of slots: their number and heal time follow
	hasHold              // the lease holds them: by what follows
)

var encoding = base64.RawURLEncoding.Strict()

// Lease is a held lease and the name of its namespace.
type Lease struct {
	Namespace string
	Held      weir.LeaseToken
}

// Signer makes IDs, and accepts only those made with one of its keys. It is safe for concurrent use.
type Signer struct{ keys []*key }

// key is a key, with scratch space to sign with it.
type key struct{ scratches sync.Pool }

type scratch struct {
	mac     hash.Hash
	payload []byte
}

// New returns a signer. The first key signs; IDs made with any of them are accepted. A key has at least [MinKey] bytes.
func New(keys ...[]byte) *Signer {
	s := &Signer{}
	for _, k := range keys {
		s.keys = append(s.keys, &key{sync.Pool{New: func() any { return &scratch{mac: hmac.New(sha256.New, k)} }}})
	}
	return s
}

// Read returns a signer with the keys in a text, one a line. Empty lines are skipped.
func Read(text string) (*Signer, error) {
	var keys [][]byte
	for line := range strings.Lines(text) {
		k := strings.TrimRight(line, "\r\n")
		switch {
		case k == "":
			continue
		case len(k) < MinKey:
			return nil, fmt.Errorf("has %d bytes, at least %d are needed", len(k), MinKey)
		}
		keys = append(keys, []byte(k))
	}
	if len(keys) == 0 {
		return nil, errors.New("is empty")
	}
	return New(keys...), nil
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
	k := s.keys[0]
	c := k.scratches.Get().(*scratch)
	defer k.scratches.Put(c)
	payload := appendLease(c.payload[:0], l)
	payload = c.sign(payload, payload)
	c.payload = payload
	return encoding.AppendEncode(dst, payload)
}

// Parse returns the lease of an ID made with one of the signer's keys, and false for anything else.
func (s *Signer) Parse(id string) (*Lease, bool) {
	if len(id) > MaxLen || strings.ContainsAny(id, "\r\n") { // base64 would skip line breaks
		return nil, false
	}
	raw, err := encoding.DecodeString(id)
	if err != nil || len(raw) < macSize {
		return nil, false
	}
	payload, mac := raw[:len(raw)-macSize], raw[len(raw)-macSize:]
	if !slices.ContainsFunc(s.keys, func(k *key) bool { return k.made(payload, mac) }) {
		return nil, false
	}
	return parse(payload)
}

// made reports whether the key made the mac of a payload.
func (k *key) made(payload, mac []byte) bool {
	c := k.scratches.Get().(*scratch)
	defer k.scratches.Put(c)
	c.payload = c.sign(c.payload[:0], payload)
	return hmac.Equal(mac, c.payload)
}

func appendLease(b []byte, l *Lease) []byte {
	h := &l.Held
	v := byte(version)
	if slices.ContainsFunc(h.Charges, func(c weir.TokenCharge) bool { return c.Resource != "" }) {
		v = versionGrid
	}
	if slices.ContainsFunc(h.Charges, func(c weir.TokenCharge) bool { return c.Limit.Slots != 0 }) {
		v = versionHeld
	}
	b = append(b, v)
	b = binary.AppendVarint(b, h.Expires.UnixMilli())
	b = binary.AppendUvarint(b, uint64(h.Seq))
	for _, s := range []string{h.ID, l.Namespace, h.Namespace, h.Entity, h.Resource} {
		b = appendText(b, s)
	}
	b = binary.AppendUvarint(b, uint64(len(h.Charges)))
	entity, resource := h.Entity, ""
	for i := range h.Charges {
		c := &h.Charges[i]
		b = appendCharge(b, h, c, entity, resource)
		if v != version {
			entity, resource = c.Entity, c.Resource
		}
		if v == versionHeld {
			b = appendSlots(b, c)
		}
	}
	return b
}

// appendCharge appends a charge, which names its entity and resource if they are others than these.
func appendCharge(b []byte, h *weir.LeaseToken, c *weir.TokenCharge, entity, resource string) []byte {
	var flags byte
	for i, set := range [...]bool{ // in the order of the flags
		c.Override, c.Entity != entity, c.LeftOut, h.Local, c.Limit.MaxDebt != 0, c.Limit.Strict, c.Over != 0,
		c.Resource != resource,
	} {
		if set {
			flags |= 1 << i
		}
	}
	b = append(b, flags)
	if flags&flagEntity != 0 {
		b = appendText(b, c.Entity)
	}
	if flags&flagResource != 0 {
		b = appendText(b, c.Resource)
	}
	b = appendText(b, c.Limit.Name)
	b = binary.AppendVarint(b, c.Limit.Amount)
	b = binary.AppendVarint(b, int64(c.Limit.Period))
	if c.Limit.Period == 0 { // a quota, or a balance, which has no window
		b = appendText(b, c.Limit.Window.String())
	}
	b = binary.AppendVarint(b, c.Limit.Burst)
	b = binary.AppendVarint(b, c.Tokens)
	if flags&flagMaxDebt != 0 {
		b = binary.AppendVarint(b, c.Limit.MaxDebt)
	}
	if flags&flagStrict != 0 {
		b = binary.AppendUvarint(binary.AppendVarint(b, h.Since.UnixNano()), c.Epoch)
	}
	if flags&flagOver != 0 {
		b = binary.AppendVarint(b, c.Over)
	}
	return b
}

// appendSlots appends what a charge has of slots.
func appendSlots(b []byte, c *weir.TokenCharge) []byte {
	what := byte(0)
	if c.Limit.Slots != 0 {
		what |= hasSlots
	}
	if c.Hold != nil {
		what |= hasHold
	}
	b = append(b, what)
	if what&hasSlots != 0 {
		b = binary.AppendVarint(binary.AppendVarint(b, c.Limit.Slots), int64(c.Limit.Heal))
	}
	if h := c.Hold; h != nil {
		b = binary.AppendVarint(binary.AppendUvarint(b, h.Birth), h.End.UnixNano())
		b = binary.AppendVarint(b, int64(h.Valid))
	}
	return b
}

// slots reads what a charge has of slots.
func (r *reader) slots(c *weir.TokenCharge) {
	what := r.byte()
	if what&hasSlots != 0 {
		c.Limit.Balance = false // nor is it a rate or a quota
		c.Limit.Slots, c.Limit.Heal = r.varint(), time.Duration(r.varint())
	}
	if what&hasHold != 0 {
		c.Hold = &store.Hold{Birth: r.uvarint(), End: time.Unix(0, r.varint()).UTC(), Valid: time.Duration(r.varint())}
	}
}

func parse(payload []byte) (*Lease, bool) {
	r := reader{rest: payload}
	v := r.byte()
	if v < version || v > versionHeld {
		return nil, false
	}
	l := &Lease{}
	h := &l.Held
	h.Expires = time.UnixMilli(r.varint()).UTC()
	h.Seq = int(r.uvarint())
	for _, s := range []*string{&h.ID, &l.Namespace, &h.Namespace, &h.Entity, &h.Resource} {
		*s = r.text()
	}
	last := weir.TokenCharge{Entity: h.Entity}
	for range r.count() {
		c := r.charge(h, last.Entity, last.Resource)
		if v == versionHeld {
			r.slots(&c)
		}
		if h.Charges = append(h.Charges, c); v != version {
			last = c
		} else if c.Resource != "" {
			return nil, false
		}
	}
	return l, !r.failed && len(r.rest) == 0 && h.Seq >= 0
}

// charge reads a charge, of this entity and on this resource unless it names others.
func (r *reader) charge(h *weir.LeaseToken, entity, resource string) weir.TokenCharge {
	c := weir.TokenCharge{Entity: entity, Resource: resource}
	flags := r.byte()
	c.Override, c.LeftOut = flags&flagOverride != 0, flags&flagLeftOut != 0
	h.Local = h.Local || flags&flagLocal != 0
	if flags&flagEntity != 0 {
		c.Entity = r.text()
	}
	if flags&flagResource != 0 {
		c.Resource = r.text()
	}
	c.Limit = weir.Limit{Name: r.text(), Amount: r.varint(), Period: time.Duration(r.varint())}
	if c.Limit.Period == 0 {
		text := r.text()
		c.Limit.Balance = text == ""
		r.failed = r.failed || c.Limit.Window.UnmarshalText([]byte(text)) != nil
	}
	c.Limit.Burst = r.varint()
	c.Tokens = r.varint()
	if flags&flagMaxDebt != 0 {
		c.Limit.MaxDebt = r.varint()
	}
	if c.Limit.Strict = flags&flagStrict != 0; c.Limit.Strict {
		h.Since, c.Epoch = time.Unix(0, r.varint()).UTC(), r.uvarint()
	}
	if flags&flagOver != 0 {
		c.Over = r.varint()
	}
	return c
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
