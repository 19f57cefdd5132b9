package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
)

// AuditQuery selects changes.
type AuditQuery struct {
	Subject string `json:"subject" in:"query"`
	Page
}

// Everywhere implements [Wide].
func (q *AuditQuery) Everywhere() bool {
	return strings.HasPrefix(q.Subject, "namespace:") || strings.HasPrefix(q.Subject, "secret:")
}

// Event is a change of the catalog. Before is null for a creation, After for a deletion.
type Event struct {
	ID        string          `json:"id"`
	At        time.Time       `json:"at"`
	Principal string          `json:"principal"`
	Action    string          `json:"action"`
	Subject   string          `json:"subject"`
	Before    json.RawMessage `json:"before"`
	After     json.RawMessage `json:"after"`
	Source    string          `json:"source,omitempty"`
	Number    uint64          `json:"number,omitempty"`
	Previous  string          `json:"previous,omitempty"`

	PreviousExpires time.Time `json:"previous_expires,omitzero"`
}

// ListAudit lists changes, latest first. Changes of the registry of namespaces belong to no namespace.
var ListAudit = declare(Op{Name: "listAudit", Method: "GET", Path: "/v1/audit"},
	func(ctx context.Context, lim *weir.Limiter, q *AuditQuery) (List[Event], error) {
		if err := checkSubject(q.Subject); err != nil {
			return List[Event]{}, err
		}
		p, err := admin.New(lim).Audit.List(ctx, admin.AuditQuery{Subject: q.Subject, After: q.After, Max: q.Max})
		return pageOf(p.Items, p.Next, func(e admin.AuditEvent) Event { return Event(e) }), err
	})

// subjects are the kinds of what changes, each followed by a name.
var subjects = []string{
	"entity", "plan", "resource", "manifest", "bucket", "balance", "namespace", "secret",
}

// checkSubject refuses a subject that no change has.
func checkSubject(subject string) error {
	kind, _, named := strings.Cut(subject, ":")
	if subject == "" || subject == "system" || named && slices.Contains(subjects, kind) {
		return nil
	}
	return &weir.ConfigError{Field: "subject", Reason: fmt.Sprintf(
		"%q is no subject: write system, or one of %s with a name, such as entity:alice",
		subject, strings.Join(subjects, ", "))}
}

// BucketQuery selects buckets.
type BucketQuery struct {
	Entity   string `json:"entity" in:"query" about:"entity"`
	Resource string `json:"resource" in:"query" about:"resource"`
	Page
}

// BucketKey names a bucket.
type BucketKey struct {
	Entity   string `json:"entity" in:"path" about:"entity"`
	Resource string `json:"resource" in:"path" about:"resource"`
}

// Bucket is the state of an entity on a resource. The id is a string because it has more bits than a JSON number holds.
type Bucket struct {
	Entity   string        `json:"entity"`
	Resource string        `json:"resource"`
	ID       string        `json:"id,omitempty"` // with At, missing if the store does not have it, because it is full
	At       time.Time     `json:"at,omitzero"`
	Items    int           `json:"items,omitempty"` // that the store has split it into
	Limits   []BucketLimit `json:"limits"`
}

// BucketLimit is one limit of a bucket.
type BucketLimit struct {
	Limit     weir.Limit `json:"limit"`
	Override  bool       `json:"override,omitempty"`
	Removed   bool       `json:"removed,omitempty"`
	Available int64      `json:"available"`
	Debited   int64      `json:"debited"`
	Returned  int64      `json:"returned"`
}

func bucketOf(b admin.Bucket) Bucket {
	limits := make([]BucketLimit, len(b.Limits))
	for i, l := range b.Limits {
		limits[i] = BucketLimit(l)
	}
	v := Bucket{Entity: b.Entity, Resource: b.Resource, Items: b.Items, Limits: limits}
	if b.ID != 0 {
		v.ID, v.At = strconv.FormatUint(b.ID, 16), b.At.UTC()
	}
	return v
}

// The operations on buckets. A store may drop a bucket that is full again; it is shown as full.
var (
	ListBuckets = declare(Op{Name: "listBuckets", Method: "GET", Path: "/v1/buckets"},
		func(ctx context.Context, lim *weir.Limiter, q *BucketQuery) (List[Bucket], error) {
			p, err := admin.New(lim).Buckets.List(ctx, admin.BucketQuery{
				Entity: q.Entity, Resource: q.Resource, After: q.After, Max: q.Max,
			})
			return pageOf(p.Items, p.Next, bucketOf), err
		})
	ShowBucket = declare(Op{Name: "showBucket", Method: "GET", Path: "/v1/buckets/{entity}/{resource}"},
		func(ctx context.Context, lim *weir.Limiter, q *BucketKey) (Bucket, error) {
			b, err := admin.New(lim).Buckets.Get(ctx, q.Entity, q.Resource)
			return bucketOf(b), err
		})
	ResetBucket = declare(
		Op{Name: "resetBucket", Method: "POST", Path: "/v1/buckets/{entity}/{resource}/reset", Need: Admin},
		func(ctx context.Context, lim *weir.Limiter, q *BucketKey) (None, error) {
			return None{}, admin.New(lim).Buckets.Reset(ctx, q.Entity, q.Resource)
		})
	ForgiveBucket = declare(
		Op{Name: "forgiveBucket", Method: "POST", Path: "/v1/buckets/{entity}/{resource}/forgive", Need: Admin},
		func(ctx context.Context, lim *weir.Limiter, q *BucketKey) (Bucket, error) {
			b, err := admin.New(lim).Buckets.Forgive(ctx, q.Entity, q.Resource)
			return bucketOf(b), err
		})
)

// RevisionQuery selects revisions of a manifest.
type RevisionQuery struct {
	Name string `json:"name" in:"path"`
	Page
}

// RevisionKey names a revision.
type RevisionKey struct {
	Name     string `json:"name" in:"path"`
	Revision int    `json:"revision" in:"path" range:"1.."`
}

// Revision is a revision of a manifest with its text.
type Revision struct {
	admin.Revision
	Text string `json:"text"`
}

// ExportQuery names the manifest to export.
type ExportQuery struct {
	Manifest string `json:"manifest" in:"query"`
}

// Exported is the text of a manifest.
type Exported struct {
	Text    string `json:"text"`
	LeftOut int    `json:"left_out"` // records of other manifests
}

// The operations on live records as a manifest, and on the history of manifests.
var (
	ExportManifest = declare(Op{Name: "exportManifest", Method: "GET", Path: "/v1/manifests/export"},
		func(ctx context.Context, lim *weir.Limiter, q *ExportQuery) (Exported, error) {
			m, elsewhere, err := manifest.Export(ctx, lim, cmp.Or(q.Manifest, manifest.DefaultName))
			if err != nil {
				return Exported{}, err
			}
			return Exported{string(m.Text()), elsewhere}, nil
		})
	ListManifests = declare(Op{Name: "listManifests", Method: "GET", Path: "/v1/manifests"},
		func(ctx context.Context, lim *weir.Limiter, q *Page) (List[admin.Revision], error) {
			p, err := admin.New(lim).Manifests.Revisions(ctx, admin.RevisionQuery{After: q.After, Max: q.Max})
			return pageOf(p.Items, p.Next, same), err
		})
	ListRevisions = declare(Op{Name: "manifestHistory", Method: "GET", Path: "/v1/manifests/{name}/history"},
		func(ctx context.Context, lim *weir.Limiter, q *RevisionQuery) (List[admin.Revision], error) {
			p, err := admin.New(lim).Manifests.Revisions(ctx, admin.RevisionQuery{
				Manifest: q.Name, After: q.After, Max: q.Max,
			})
			return pageOf(p.Items, p.Next, same), err
		})
	ShowRevision = declare(Op{Name: "showRevision", Method: "GET", Path: "/v1/manifests/{name}/history/{revision}"},
		func(ctx context.Context, lim *weir.Limiter, q *RevisionKey) (Revision, error) {
			r, text, err := admin.New(lim).Manifests.Revision(ctx, q.Name, q.Revision)
			return Revision{r, string(text)}, err
		})
)
