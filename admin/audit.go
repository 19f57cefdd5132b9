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
// for bucket.reset; see [Buckets.Reset].
//
// Actions are entity.create, entity.update, entity.delete, entity.adopt, limits.set, limits.delete, limits.adopt,
// limits.on_unavailable, system.on_unavailable, system.near_limit, manifest.apply, bucket.reset, namespace.create,
// namespace.delete, namespace.recover, namespace.purge and secret.create.
type AuditEvent struct {
	// ID sorts by time: to the millisecond, and strictly among the events of one limiter.
	ID        string          `json:"id"`
	At        time.Time       `json:"at"`
	Principal string          `json:"principal"` // who made the change; see [WithPrincipal]
	Action    string          `json:"action"`
	Subject   string          `json:"subject"`          // see [AuditQuery]
	Before    json.RawMessage `json:"before,omitempty"` // nil if there was nothing before
	After     json.RawMessage `json:"after,omitempty"`  // nil if nothing is left
}

// AuditQuery selects the events of the limiter's namespace, or those of one subject:
//
//   - entity:ID, including the entity's limits; resource:NAME; system
//   - manifest:NAME, for its revisions
//   - the result of [BucketSubject]
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
		var e record.Audit
		if err := record.Decode(r, &e); err != nil {
			return nil, err
		}
		if query.Subject == "namespace:" && !strings.HasPrefix(r.Key.Sub, query.Subject) {
			return nil, nil //nolint:nilnil // not of a namespace
		}
		return &AuditEvent{
			ID: r.Key.ID, At: e.At, Principal: e.Principal, Action: e.Action, Subject: r.Key.Sub,
			Before: e.Before, After: e.After,
		}, nil
	})
}

// BucketSubject returns the subject of a bucket's audit events: bucket:ENTITY#RESOURCE, with # and % in either name
// written as %23 and %25.
func BucketSubject(entity, resource string) string {
	escape := strings.NewReplacer("%", "%25", "#", "%23")
	return "bucket:" + escape.Replace(entity) + "#" + escape.Replace(resource)
}
