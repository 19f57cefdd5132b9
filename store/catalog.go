package store

import (
	"cmp"
	"context"
	"time"
)

// Catalog keeps versioned records: entities, limits, namespaces, audit events. Reads never write.
type Catalog interface {
	// Get returns the records of keys of one namespace, in their order; a missing or expired one has Version 0.
	Get(ctx context.Context, keys ...Key) (Got, error)

	// Commit applies all writes or none, and raises the epoch of every namespace in which they change something. A write whose
	// Version is not the record's is a [*ConflictError]. At most [MaxWrites] writes, no key twice.
	Commit(ctx context.Context, writes ...Write) error

	// List returns records ordered by ID, then Sub, bytewise. A page is consistent in itself; a cursor stays
	// good whatever is written meanwhile: no record that exists throughout is skipped or listed twice.
	List(ctx context.Context, query Query) (Page, error)
}

// MaxWrites is how many writes one Commit may hold: those of one DynamoDB transaction but for the epochs.
const MaxWrites = 96

// Kind is a kind of record.
type Kind string

// The kinds of records, with the meaning of ID and Sub in their keys.
const (
	KindNamespace      Kind = "namespace"       // in namespace Registry; ID: the name
	KindNamespaceID    Kind = "namespace-id"    // in namespace Registry; ID: the opaque id
	KindSecret         Kind = "secret"          // in namespace Registry; ID: what for
	KindEntity         Kind = "entity"          // ID: the entity
	KindEntityLimits   Kind = "entity-limits"   // ID: the entity, Sub: the resource or _default_
	KindResourceLimits Kind = "resource-limits" // ID: the resource
	KindSystem         Kind = "system"          // ID: ""
	KindManifest       Kind = "manifest"        // ID: the manifest
	KindRevision       Kind = "revision"        // ID: the manifest, Sub: a sortable number
	KindRevisionText   Kind = "revision-text"   // ID: the manifest, Sub: the number and that of the part
	KindAudit          Kind = "audit"           // ID: a sortable event id, Sub: the subject
)

// Kinds lists every kind that lives in an ordinary namespace.
var Kinds = []Kind{
	KindEntity, KindEntityLimits, KindResourceLimits, KindSystem, KindManifest, KindRevision, KindRevisionText, KindAudit,
}

// Registry is the namespace that holds the namespaces and what belongs to the whole store.
const Registry = "_"

// Key names a record.
type Key struct {
	Namespace string // the opaque id, or Registry
	Kind      Kind
	ID        string
	Sub       string
}

// String returns the key for messages.
func (k Key) String() string {
	s := quoted(k.Namespace) + "/" + string(k.Kind)
	if k.ID != "" {
		s += "/" + quoted(k.ID)
	}
	if k.Sub != "" {
		s += "/" + quoted(k.Sub)
	}
	return s
}

// Compare orders keys by namespace, kind, ID, Sub.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Kind, o.Kind),
		cmp.Compare(k.ID, o.ID), cmp.Compare(k.Sub, o.Sub))
}

// Record is a value with a version, which is 1 at birth and one more with each write. A record that was deleted and
// is written again starts at 1.
type Record struct {
	Key     Key
	Version uint64
	Parent  string // indexed: Query.Parent finds it; "" is not indexed
	Value   []byte // opaque to the store, at most MaxValue bytes; not to be changed by the receiver
	Expires time.Time
}

// MaxValue is how many bytes a record's value may have.
const MaxValue = 256 << 10

// Write changes one record. Record.Version is the version that the record must have now: 0, it must not exist.
type Write struct {
	Record Record
	Delete bool
	Check  bool // only asserts the version; the record stays as it is
}

// Got is what Get saw. Epoch is no newer than the records: limits made from them may carry it in [Debit.Epoch].
type Got struct {
	Records []Record
	Epoch   uint64
}

// Query selects records of one kind. Empty ID, Prefix, Sub and Parent select all.
type Query struct {
	Namespace string
	Kind      Kind
	ID        string
	Prefix    string // of the ID, bytewise, in valid UTF-8; of no account beside an ID. Nothing before it is read
	Sub       string
	Parent    string
	Reverse   bool   // last first
	After     string // the cursor of the page before, of the same query
	Max       int    // at most so many; 0 means 100, more than 1,000 is 1,000
}

// Page is one page of records. Next is "" on the last.
type Page struct {
	Records []Record
	Next    string
}

// PageSize returns how many entries a page holds for a query's Max.
func PageSize(limit int) int {
	if limit <= 0 {
		return 100
	}
	return min(limit, 1000)
}
