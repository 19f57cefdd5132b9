package server

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"strings"
	"sync"
	"time"

	"github.com/weirlimits/weir"
)

// A lease id is all that there is to know about a lease, so that any instance with the same key can settle it:
//
//	base64url( version | expires ms | seq | id | namespace | its opaque id | entity | resource | charges | mac )
//	charge: flags | [entity] | limit name | amount | period ns | burst | tokens
//
// with strings behind their length and numbers as varints. The mac is HMAC-SHA256 over a label and all before it, cut
// to 16 bytes. What is inside is not secret: clients may read it, and must not rely on it.

const (
	leaseVersion = 1
	macSize      = 16
	// maxLeaseID is far above what the largest chain with the most limits comes to.
	maxLeaseID = 256 << 10
)

// flags of a charge.
const (
	flagOverride = 1 << iota
	flagParent   // of another entity than the lease's, which follows
	flagLeftOut
)

var leaseEncoding = base64.RawURLEncoding.Strict()

// ticket is a held lease and the name of its namespace.
type ticket struct {
	namespace string
	held      weir.Held
}

// signer makes lease ids and takes none but its own.
type signer struct{ macs sync.Pool }

func newSigner(key []byte) *signer {
	return &signer{macs: sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}}
}

// label keeps what else the same key may come to sign apart.
var label = []byte("weir lease\x00")

func (s *signer) mac(dst, payload []byte) []byte {
	m := s.macs.Get().(hash.Hash)
	defer s.macs.Put(m)
	m.Reset()
	m.Write(label)
	m.Write(payload)
	return m.Sum(dst)[:len(dst)+macSize]
}

// append appends the id of a lease.
func (s *signer) append(dst []byte, t *ticket) []byte {
	scratch := buffers.Get().(*buffer)
	defer scratch.free()
	payload := appendTicket(scratch.b[:0], t)
	payload = s.mac(payload, payload)
	scratch.b = payload
	return leaseEncoding.AppendEncode(dst, payload)
}

// parse returns the lease of an id that this signer, or one with the same key, has made.
func (s *signer) parse(id string) (*ticket, bool) {
	if len(id) > maxLeaseID || strings.ContainsAny(id, "\r\n") { // which base64 would skip
		return nil, false
	}
	raw, err := leaseEncoding.DecodeString(id)
	if err != nil || len(raw) < macSize {
		return nil, false
	}
	payload, mac := raw[:len(raw)-macSize], raw[len(raw)-macSize:]
	if !hmac.Equal(mac, s.mac(nil, payload)) {
		return nil, false
	}
	return parseTicket(payload)
}

func appendTicket(b []byte, t *ticket) []byte {
	h := &t.held
	b = append(b, leaseVersion)
	b = binary.AppendVarint(b, h.Expires.UnixMilli())
	b = binary.AppendUvarint(b, uint64(h.Seq))
	for _, s := range []string{h.ID, t.namespace, h.Namespace, h.Entity, h.Resource} {
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

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func parseTicket(payload []byte) (*ticket, bool) {
	r := reader{b: payload}
	if r.byte() != leaseVersion {
		return nil, false
	}
	t := &ticket{}
	h := &t.held
	h.Expires = time.UnixMilli(r.varint()).UTC()
	h.Seq = int(r.uvarint())
	for _, s := range []*string{&h.ID, &t.namespace, &h.Namespace, &h.Entity, &h.Resource} {
		*s = r.text()
	}
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		return nil, false
	}
	for range n {
		c := weir.HeldCharge{Entity: h.Entity}
		flags := r.byte()
		c.Override, c.LeftOut = flags&flagOverride != 0, flags&flagLeftOut != 0
		if flags&flagParent != 0 {
			c.Entity = r.text()
		}
		c.Limit = weir.Limit{Name: r.text(), Amount: r.varint(), Period: time.Duration(r.varint()), Burst: r.varint()}
		c.Tokens = r.varint()
		h.Charges = append(h.Charges, c)
	}
	return t, !r.bad && len(r.b) == 0 && h.Seq >= 0
}

// reader takes a payload apart. After a mistake it returns zeroes.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) fail() { r.b, r.bad = nil, true }

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) text() string {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.fail()
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}
