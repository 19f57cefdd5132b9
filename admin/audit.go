package admin

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// AuditLog reads who changed what.
type AuditLog struct{ catalog }

// AuditEvent records one change: who changed what, and how. It is written in the same atomic step as the change, except
// for bucket.reset and bucket.forgive, see [Buckets.Reset], and balance.credit, see [Balances.Add].
//
// Actions are entity.create, .update, .delete, .adopt, .release; limits.set, .delete, .adopt, .release, .group,
// .bounded, .ended, .on_unavailable; plan.delete; system.on_unavailable, .near_limit, .entities; manifest.apply;
// bucket.reset, .forgive; balance.credit; namespace.create, .max_buckets, .delete, .recover, .purge; secret.create.
type AuditEvent struct {
	// ID sorts by time: to the millisecond, and strictly among the events of one limiter.
	ID        string          `json:"id"`
	At        time.Time       `json:"at"`
	Principal string          `json:"principal"` // who made the change; see [WithPrincipal]
	Action    string          `json:"action"`
	Subject   string          `json:"subject"`          // see [AuditQuery]
	Before    json.RawMessage `json:"before,omitempty"` // nil if there was nothing before
	After     json.RawMessage `json:"after,omitempty"`  // nil if nothing is left
	// Source is the address that a server had the request from, or "": see [WithSource].
	Source string `json:"source,omitempty"`
	// Number counts the events of the namespace, from 1. Previous is the SHA-256 of the one before, in hex: of its
	// line in an archive. Events that earlier versions of weir wrote have neither.
	Number          uint64    `json:"number,omitempty"`
	Previous        string    `json:"previous,omitempty"`
	PreviousExpires time.Time `json:"previous_expires,omitzero"` // when the one before expires
}

// AuditQuery selects the events of the limiter's namespace, or those of one subject:
//
//   - entity:ID, including the entity's limits; resource:NAME; system
//   - manifest:NAME, for its revisions
//   - the result of [BucketSubject]; balance:ENTITY#RESOURCE#LIMIT, escaped like that, for the credits of a balance
//   - namespace:NAME for the changes of a namespace, namespace: for those of all namespaces, secret:NAME. These are
//     stored with the registry of namespaces, so they outlive the namespaces, and any limiter of the store finds them.
type AuditQuery struct {
	Subject string // "" selects all of the limiter's namespace
	After   string // Next of the previous page
	Max     int    // maximum number of events; 0 means 100, more than 1,000 means 1,000
}

// List returns the events that match, newest first. Events are kept for [weir.Config.AuditRetention].
func (s *AuditLog) List(ctx context.Context, query AuditQuery) (Page[AuditEvent], error) {
	q := store.Query{
		Namespace: store.Registry, Kind: store.KindAudit, Sub: query.Subject, Reverse: true,
		After: query.After, Max: query.Max,
	}
	switch {
	case query.Subject == "namespace:":
		q.Sub = ""
	case strings.HasPrefix(query.Subject, "namespace:"), strings.HasPrefix(query.Subject, "secret:"):
	default:
		space, err := s.space(ctx)
		if err != nil {
			return Page[AuditEvent]{}, err
		}
		q.Namespace = space
	}
	return pageOf(ctx, s.catalog, q, func(r store.Record) (*AuditEvent, error) {
		e, err := record.LineOf(r)
		if err != nil {
			return nil, err
		}
		if query.Subject == "namespace:" && !strings.HasPrefix(e.Subject, query.Subject) {
			return nil, nil //nolint:nilnil // not of a namespace
		}
		return &AuditEvent{
			e.ID, e.At, e.Principal, e.Action, e.Subject, e.Before, e.After, e.Source, e.Number, e.Previous,
			e.PreviousExpires,
		}, nil
	})
}

// BucketSubject returns the subject of a bucket's audit events: bucket:ENTITY#RESOURCE, with # and % in either name
// written as %23 and %25.
func BucketSubject(entity, resource string) string {
	escape := strings.NewReplacer("%", "%25", "#", "%23")
	return "bucket:" + escape.Replace(entity) + "#" + escape.Replace(resource)
}
