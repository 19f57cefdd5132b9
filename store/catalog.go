package store

import (
	"cmp"
	"context"
	"iter"
	"time"
)

// Catalog keeps versioned records: entities, limits, namespaces, audit events. Reads never write.
type Catalog interface {
	// Get returns the records for keys of one namespace, in their order. A missing or expired record has Version 0.
	Get(ctx context.Context, keys ...Key) (Got, error)

	// Commit applies all writes or none, and raises the epoch of every namespace in which they change something. If a
	// record does not have the Version that its write names, Commit returns a [*ConflictError]. A commit has at most
	// [MaxWrites] writes, of [MaxCommit] bytes, and no key twice.
	Commit(ctx context.Context, writes ...Write) error

	// List returns records ordered by ID, then Sub, bytewise. A page is consistent in itself. A cursor stays valid
	// whatever is written meanwhile: no record that exists throughout is skipped or listed twice.
	List(ctx context.Context, query Query) (Page, error)
}

// Kind is a kind of record.
type Kind string

// The kinds of records, with the meaning of ID and Sub in their keys.
const (
	KindNamespace      Kind = "namespace"       // in namespace Registry; ID: the name
	KindNamespaceID    Kind = "namespace-id"    // in namespace Registry; ID: the opaque id
	KindSecret         Kind = "secret"          // in namespace Secrets, before that in Registry; ID: the purpose
	KindEntity         Kind = "entity"          // ID: the entity
	KindEntityLimits   Kind = "entity-limits"   // ID: the entity, Sub: the resource or _default_
	KindResourceLimits Kind = "resource-limits" // ID: the resource
	KindSystem         Kind = "system"          // ID: ""
	KindPlanLimits     Kind = "plan-limits"     // ID: the plan, Sub: the resource or _default_
	KindPlanEntity     Kind = "plan-entity"     // ID: the plan, Sub: an entity that names it
	KindManifest       Kind = "manifest"        // ID: the manifest
	KindRevision       Kind = "revision"        // ID: the manifest, Sub: a sortable number
	// ID: the manifest, Sub: the number of the revision and that of the part.
	KindRevisionText Kind = "revision-text"
	KindAudit        Kind = "audit"      // ID: a sortable event id, Sub: the subject
	KindAuditHead    Kind = "audit-head" // ID: ""; the last event of the chain
)

// Kinds lists every kind of record in an ordinary namespace.
var Kinds = []Kind{
	KindEntity, KindEntityLimits, KindPlanEntity, KindPlanLimits, KindResourceLimits, KindSystem, KindManifest,
	KindRevision, KindRevisionText, KindAudit, KindAuditHead,
}

// Registry is the namespace that holds the list of namespaces, and what belongs to the whole store.
const Registry = "_"

// Secrets is the namespace that holds the store's secrets, apart from the registry, which every reader needs.
const Secrets = "weir.secrets"

// Key identifies a record.
type Key struct {
	Namespace string // the opaque id, or Registry
	Kind      Kind
	ID        string
	Sub       string
}

// String returns the key for use in messages.
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

// Record is a value with a version, which starts at 1 and increases by one with each write. A record that was deleted
// and is written again starts at 1.
type Record struct {
	Key     Key
	Version uint64
	Parent  string // indexed, so that Query.Parent finds the record; "" is not indexed
	Value   []byte // opaque to the store, at most MaxValue bytes; the receiver must not modify it
	Expires time.Time
}

// Write changes one record. Record.Version is the version that the record must have now; 0 means that it must not
// exist.
type Write struct {
	Record Record
	Delete bool
	Check  bool // only assert the version; the record stays as it is
}

// Got is the result of Get. Epoch is no newer than the records, so limits made from them may carry it in [Debit.Epoch].
type Got struct {
	Records []Record
	Epoch   uint64
}

// Query selects records of one kind. Empty ID, Prefix, Sub and Parent select all.
type Query struct {
	Namespace string
	Kind      Kind
	ID        string
	Prefix    string // of the ID, bytewise, in valid UTF-8; ignored if ID is set. The store reads no records before it
	Sub       string
	Parent    string
	Reverse   bool   // last record first
	After     string // the cursor of the previous page of the same query
	Max       int    // maximum number of records; 0 means 100, more than 1,000 means 1,000
}

// Page is one page of records. Next is "" on the last page.
type Page struct {
	Records []Record
	Next    string
}

// All returns the records of a query, page by page. After an error, which comes with a zero record, it ends.
func All(ctx context.Context, c Catalog, q Query) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		q := q
		for q.Max = 1000; ; {
			page, err := c.List(ctx, q)
			if err != nil {
				yield(Record{}, err)
				return
			}
			for _, r := range page.Records {
				if !yield(r, nil) {
					return
				}
			}
			if q.After = page.Next; q.After == "" {
				return
			}
		}
	}
}

// PageSize returns the number of entries in a page for a query's Max.
func PageSize(limit int) int {
	if limit <= 0 {
		return 100
	}
	return min(limit, 1000)
}
