package record

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/weirlimits/weir/store"
)

// Audit is an audit event in the catalog; its id and subject are in the key.
type Audit struct {
	At        time.Time       `json:"at"`
	Principal string          `json:"principal"`
	Action    string          `json:"action"`
	Before    json.RawMessage `json:"before,omitempty"`
	After     json.RawMessage `json:"after,omitempty"`
	Source    string          `json:"source,omitempty"`
	Link
}

// Link is an event's place in the chain of its namespace. Events that earlier versions wrote have none.
type Link struct {
	Number          uint64    `json:"number,omitempty"`          // counts up from 1
	Previous        string    `json:"previous,omitempty"`        // the hash of the event before
	PreviousExpires time.Time `json:"previous_expires,omitzero"` // when the event before expires
}

// AuditHead is the record of the last event of a namespace's chain.
type AuditHead struct {
	Number  uint64    `json:"number"`
	Hash    string    `json:"hash"`
	Expires time.Time `json:"expires"`
	Until   time.Time `json:"until"` // when all events have expired
}

// EndChain returns the write, if any, by which the end of a chain expires with the chain, and when: not before a time.
func EndChain(head store.Record, earliest time.Time) (writes []store.Write, expires time.Time, err error) {
	if head.Version == 0 {
		return nil, earliest, nil
	}
	var h AuditHead
	if err := Decode(head, &h); err != nil {
		return nil, earliest, err
	}
	if head.Expires = h.Until; h.Until.Before(earliest) {
		head.Expires = earliest
	}
	return []store.Write{{Record: head}}, head.Expires, nil
}

// AuditHeadKey returns the key of a namespace's [AuditHead].
func AuditHeadKey(namespace string) store.Key {
	return store.Key{Namespace: namespace, Kind: store.KindAuditHead}
}

// AuditLine is an audit event with its namespace, id and subject: a line of an archive.
type AuditLine struct {
	Namespace string          `json:"namespace"`
	ID        string          `json:"id"`
	At        time.Time       `json:"at"`
	Principal string          `json:"principal"`
	Action    string          `json:"action"`
	Subject   string          `json:"subject"`
	Before    json.RawMessage `json:"before,omitempty"`
	After     json.RawMessage `json:"after,omitempty"`
	Source    string          `json:"source,omitempty"`
	Link
}

// LineOf returns the event that a record holds. Its error is that of [Decode].
func LineOf(r store.Record) (AuditLine, error) {
	var e Audit
	err := Decode(r, &e)
	return AuditLine{
		r.Key.Namespace, r.Key.ID, e.At.UTC(), e.Principal, e.Action, r.Key.Sub, e.Before, e.After, e.Source, e.Link,
	}, err
}

// Hash returns the SHA-256 of an event's JSON, in hex: that of its line in an archive, without the line break.
func (l AuditLine) Hash() string {
	sum := sha256.Sum256(Encode(l))
	return hex.EncodeToString(sum[:])
}

type principalKey struct{}

type sourceKey struct{}

// WithPrincipal returns a context in which changes are audited as made by name. Without one, they are audited as made
// by "unknown". Names are cut to 256 bytes.
func WithPrincipal(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, principalKey{}, shortened(name))
}

func shortened(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), MaxID)], "")
}

// Principal returns the name that audit events of a context have.
func Principal(ctx context.Context) string {
	name, _ := ctx.Value(principalKey{}).(string)
	return cmp.Or(name, "unknown")
}

// WithSource returns a context in which changes are audited as requested from an address. It is cut as a name is.
func WithSource(ctx context.Context, address string) context.Context {
	return context.WithValue(ctx, sourceKey{}, shortened(address))
}

// Source returns the address that audit events of a context have, or "".
func Source(ctx context.Context) string {
	address, _ := ctx.Value(sourceKey{}).(string)
	return address
}

// Stamp returns the current time in the precision of records.
func Stamp() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
