package weir

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/weirlimits/weir/store"
)

// AuditEvent records one change: who changed what, and how. It is written in the same atomic step as the change, except
// for bucket.reset; see [Limiter.ResetBucket].
//
// Actions are entity.create, entity.update, entity.delete, entity.adopt, limits.set, limits.delete, limits.adopt,
// limits.on_unavailable, system.on_unavailable, system.near_limit, manifest.apply, bucket.reset, namespace.create,
// namespace.delete, namespace.recover, namespace.purge and secret.create.
type AuditEvent struct {
	// sorts by time: to the millisecond, and strictly among the events of one limiter
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
//   - namespace:NAME for the changes of a namespace, namespace: for those of all namespaces, secret:NAME. These are stored
//     with the registry of namespaces, so they outlive the namespaces, and any limiter of the store finds them.
type AuditQuery struct {
	Subject string // "" selects all of the limiter's namespace
	After   string // AuditPage.Next of the previous page
	Max     int    // maximum number of events; 0 means 100, more than 1,000 means 1,000
}

// AuditPage is one page of events. Next is "" on the last page.
type AuditPage struct {
	Events []AuditEvent `json:"events"`
	Next   string       `json:"next,omitempty"`
}

// Audit returns the events that match, newest first. Events are kept for [Config.AuditRetention].
//
// Errors: [ErrNotFound] if the namespace does not exist, [ErrBadCursor], store errors.
func (l *Limiter) Audit(ctx context.Context, query AuditQuery) (AuditPage, error) {
	q := store.Query{
		Namespace: store.Registry, Kind: store.KindAudit, Sub: query.Subject, Reverse: true,
		After: query.After, Max: query.Max,
	}
	switch {
	case query.Subject == "namespace:":
		q.Sub = ""
	case strings.HasPrefix(query.Subject, "namespace:"), strings.HasPrefix(query.Subject, "secret:"):
	default:
		s, err := l.space(ctx, l.core.elapsed())
		if err != nil {
			return AuditPage{}, err
		}
		q.Namespace = s.id
	}
	page, err := l.core.list(ctx, q)
	if err != nil {
		return AuditPage{}, err
	}
	out := AuditPage{Next: page.Next}
	for _, r := range page.Records {
		var e auditRecord
		if err := decodeRecord(r, &e); err != nil {
			return AuditPage{}, err
		}
		if query.Subject == "namespace:" && !strings.HasPrefix(r.Key.Sub, query.Subject) {
			continue
		}
		out.Events = append(out.Events, AuditEvent{
			ID: r.Key.ID, At: e.At, Principal: e.Principal, Action: e.Action, Subject: r.Key.Sub,
			Before: e.Before, After: e.After,
		})
	}
	return out, nil
}

// BucketSubject returns the subject of a bucket's audit events: bucket:ENTITY#RESOURCE, with # and % in either name
// written as %23 and %25.
func BucketSubject(entity, resource string) string {
	escape := strings.NewReplacer("%", "%25", "#", "%23")
	return "bucket:" + escape.Replace(entity) + "#" + escape.Replace(resource)
}

type principalKey struct{}

// WithPrincipal returns a context in which changes are audited as made by name. Without one, they are audited as made
// by "unknown". Names are cut to 256 bytes.
func WithPrincipal(ctx context.Context, name string) context.Context {
	if len(name) > maxID {
		name = name[:maxID]
	}
	return context.WithValue(ctx, principalKey{}, strings.ToValidUTF8(name, ""))
}

func principal(ctx context.Context) string {
	name, _ := ctx.Value(principalKey{}).(string)
	return cmp.Or(name, "unknown")
}

// event is the audit event of a change, before it is committed.
type event struct {
	action, subject string
	before, after   any // nil if there is none
}

// auditRecord is an event in the catalog; its id and subject are in the key.
type auditRecord struct {
	At        time.Time       `json:"at"`
	Principal string          `json:"principal"`
	Action    string          `json:"action"`
	Before    json.RawMessage `json:"before,omitempty"`
	After     json.RawMessage `json:"after,omitempty"`
}

func (c *core) record(ctx context.Context, space string, e *event) store.Write {
	now := stamp()
	a := auditRecord{At: now, Principal: principal(ctx), Action: e.action}
	if e.before != nil {
		a.Before = encode(e.before)
	}
	if e.after != nil {
		a.After = encode(e.after)
	}
	w := put(store.Key{Namespace: space, Kind: store.KindAudit, ID: c.events.next(now), Sub: e.subject}, 0, a)
	w.Record.Expires = now.Add(c.cfg.AuditRetention)
	return w
}

// stamp returns the current time in the precision of records.
func stamp() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// eventIDs makes ids that sort by time: 48 bits of milliseconds, then 80 random bits, which count up within one
// millisecond and while the clock is set back.
type eventIDs struct {
	mu     sync.Mutex
	hi, lo uint64 // of the last id
}

func (g *eventIDs) next(now time.Time) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ms := uint64(max(0, now.UnixMilli())); ms > g.hi>>16 {
		var random [10]byte
		_, _ = rand.Read(random[:]) // never fails
		g.hi = ms<<16 | uint64(binary.BigEndian.Uint16(random[:2]))
		g.lo = binary.BigEndian.Uint64(random[2:])
	} else if g.lo++; g.lo == 0 {
		g.hi++
	}
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	var id [26]byte
	hi, lo := g.hi, g.lo
	for i := len(id) - 1; i >= 0; i-- {
		id[i] = digits[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(id[:])
}
