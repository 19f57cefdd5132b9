package weir

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimits/weir/store"
)

// Bucket is the state of an entity on a resource. A full bucket need not exist: the next request creates it.
type Bucket struct {
	Entity   string        `json:"entity"`
	Resource string        `json:"resource"`
	ID       uint64        `json:"id,string"` // changes with each birth; Debited and Returned count from there
	At       time.Time     `json:"at"`        // of the last change
	Limits   []BucketLimit `json:"limits"`
}

// BucketLimit is the state of one limit of a bucket: a limit in force, one that was removed but still has tokens
// outstanding, or one that a request brought.
type BucketLimit struct {
	Limit     Limit `json:"limit"`
	Override  bool  `json:"override,omitempty"` // brought by a request
	Available int64 `json:"available"`          // tokens, rounded down; negative in debt
	Debited   int64 `json:"debited"`            // tokens since the bucket's birth, rounded down
	Returned  int64 `json:"returned"`           // tokens given back since then, rounded down
}

// BucketQuery selects buckets. Empty fields select all.
type BucketQuery struct {
	Entity   string
	Resource string
	After    string // BucketPage.Next of the previous page
	Max      int    // maximum number of buckets; 0 means 100, more than 1,000 means 1,000
}

// BucketPage is one page of buckets, ordered by entity, then resource. It may hold fewer than requested. Next is "" on
// the last page.
type BucketPage struct {
	Buckets []Bucket `json:"buckets"`
	Next    string   `json:"next,omitempty"`
}

// Buckets returns the buckets of the limiter's namespace as they are now.
//
// Errors: [ErrBadCursor], [*ConfigError], [ErrNotFound] if the namespace does not exist, store errors.
func (l *Limiter) Buckets(ctx context.Context, query BucketQuery) (BucketPage, error) {
	if err := (Scope{query.Entity, query.Resource}).validate(); err != nil {
		return BucketPage{}, err
	}
	s, err := l.space(ctx, l.admin().elapsed())
	if err != nil {
		return BucketPage{}, err
	}
	page, err := l.admin().buckets(ctx, store.BucketQuery{
		Namespace: s.id, Entity: query.Entity, Resource: query.Resource, After: query.After, Max: query.Max,
	})
	if err != nil {
		return BucketPage{}, err
	}
	out := BucketPage{Next: page.Next}
	for i := range page.States {
		out.Buckets = append(out.Buckets, bucketOf(&page.States[i], page.At))
	}
	return out, nil
}

func (c *core) buckets(ctx context.Context, q store.BucketQuery) (store.BucketPage, error) {
	if q.Max < 0 {
		return store.BucketPage{}, configErr("max", "must not be negative: %d", q.Max)
	}
	var page store.BucketPage
	err := c.call(ctx, "buckets", func(ctx context.Context) (err error) {
		page, err = c.store.Buckets(ctx, q)
		return err
	})
	return page, err
}

// Bucket returns the bucket of an entity on a resource as it is now.
//
// Errors: [ErrNotFound] if there is none, which means that it is full; [*ConfigError], store errors.
func (l *Limiter) Bucket(ctx context.Context, entity, resource string) (Bucket, error) {
	b, _, err := l.bucket(ctx, entity, resource)
	return b, err
}

func (l *Limiter) bucket(ctx context.Context, entity, resource string) (Bucket, store.Bucket, error) {
	if err := errors.Join(checkID("entity", entity), checkID("resource", resource)); err != nil {
		return Bucket{}, store.Bucket{}, firstOf(err)
	}
	s, err := l.space(ctx, l.admin().elapsed())
	if err != nil {
		return Bucket{}, store.Bucket{}, err
	}
	key := store.Bucket{Namespace: s.id, Entity: entity, Resource: resource}
	var snap store.Snapshot
	err = l.admin().call(ctx, "peek", func(ctx context.Context) (err error) {
		snap, err = l.admin().store.Peek(ctx, key)
		return err
	})
	if err != nil {
		return Bucket{}, key, err
	}
	if snap.States[0].ID == 0 {
		return Bucket{}, key, fmt.Errorf("bucket of %q on %q: %w: it is full", entity, resource, ErrNotFound)
	}
	return bucketOf(&snap.States[0], snap.At), key, nil
}

// ResetBucket forgets what an entity has spent and owes on a resource: its bucket is full again. An open lease can
// still be rolled back, and then gives back what it took before the reset. The audit event is written before the reset,
// so no reset goes unrecorded; after an error there may be an event for a reset that was not made.
//
// Errors: [ErrNotFound] if there is no bucket, which means that it is full; [*ConfigError], store errors.
func (l *Limiter) ResetBucket(ctx context.Context, entity, resource string) error {
	before, key, err := l.bucket(ctx, entity, resource)
	if err != nil {
		return err
	}
	ev := event{action: "bucket.reset", subject: BucketSubject(entity, resource), before: before}
	if err := l.admin().commit(ctx, key.Namespace, []event{ev}); err != nil {
		return err
	}
	return l.admin().call(ctx, "forget", func(ctx context.Context) error { return l.admin().store.Forget(ctx, key) })
}

func bucketOf(st *store.State, at time.Time) Bucket {
	b := Bucket{Entity: st.Bucket.Entity, Resource: st.Bucket.Resource, ID: st.ID, At: st.At}
	now := nanosOf(at)
	for _, ls := range st.Limits {
		p := paramsOf(ls.Limit)
		b.Limits = append(b.Limits, BucketLimit{
			Limit: limitOf(ls.Limit), Override: ls.Limit.Override,
			Available: floorTokens(p.Available(ls.Level, p.Clock(now))),
			Debited:   ls.Debited / 1000, Returned: ls.Returned / 1000,
		})
	}
	return b
}
