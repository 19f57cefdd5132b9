package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Buckets reads and resets what entities have spent and have left.
type Buckets struct{ catalog }

// Bucket is the state of an entity on a resource. A full bucket need not exist: the next request creates it.
type Bucket struct {
	Entity   string        `json:"entity"`
	Resource string        `json:"resource"`
	ID       uint64        `json:"id,string"`       // changes with each birth; Debited and Returned count from there
	At       time.Time     `json:"at"`              // of the last change
	Items    int           `json:"items,omitempty"` // that the store has split it into; 0 if it is not split
	Limits   []BucketLimit `json:"limits"`
}

// BucketLimit is the state of one limit of a bucket: a limit in force, one that was removed but still has tokens
// outstanding, or one that a request brought.
type BucketLimit struct {
	Limit     weir.Limit `json:"limit"`
	Override  bool       `json:"override,omitempty"` // brought by a request
	Available int64      `json:"available"`          // tokens, rounded down; negative in debt
	Debited   int64      `json:"debited"`            // tokens since the bucket's birth, rounded down
	Returned  int64      `json:"returned"`           // tokens given back since then, rounded down
}

// BucketQuery selects buckets. Empty fields select all.
type BucketQuery struct {
	Entity, Resource string
	After            string // Next of the previous page
	Max              int    // maximum number of buckets; 0 means 100, more than 1,000 means 1,000
}

// List returns the buckets of the limiter's namespace as they are now.
func (s *Buckets) List(ctx context.Context, query BucketQuery) (Page[Bucket], error) {
	space, err := s.space(ctx, Scope{query.Entity, query.Resource}.Validate(), checkMax(query.Max))
	if err != nil {
		return Page[Bucket]{}, err
	}
	page, err := s.parts.Store.Buckets(ctx, store.BucketQuery{
		Namespace: space, Entity: query.Entity, Resource: query.Resource, After: query.After, Max: query.Max,
	})
	if err != nil {
		return Page[Bucket]{}, err
	}
	out := Page[Bucket]{Next: page.Next}
	for i := range page.States {
		out.Items = append(out.Items, bucketOf(&page.States[i], page.At))
	}
	return out, nil
}

// Get returns the bucket of an entity on a resource as it is now, or [weir.ErrNotFound] if there is none, which means
// that it is full.
func (s *Buckets) Get(ctx context.Context, entity, resource string) (Bucket, error) {
	b, _, err := s.find(ctx, entity, resource)
	return b, err
}

func (s *Buckets) find(ctx context.Context, entity, resource string) (Bucket, store.Bucket, error) {
	space, err := s.space(ctx, checkID("entity", entity), checkID("resource", resource))
	if err != nil {
		return Bucket{}, store.Bucket{}, err
	}
	key := store.Bucket{Namespace: space, Entity: entity, Resource: resource}
	snap, err := s.parts.Store.Peek(ctx, key)
	if err != nil {
		return Bucket{}, key, err
	}
	if snap.States[0].ID == 0 {
		return Bucket{}, key, fmt.Errorf("bucket of %q on %q: %w: it is full", entity, resource, weir.ErrNotFound)
	}
	return bucketOf(&snap.States[0], snap.At), key, nil
}

// Reset forgets what an entity has spent and owes on a resource: its bucket is full again. Without a bucket, which
// means that it is full, the error is [weir.ErrNotFound]. An open lease can still be rolled back, and then gives back
// what it took before the reset. The audit event is written before the reset, so no reset goes unrecorded; after an
// error there may be an event for a reset that was not made.
func (s *Buckets) Reset(ctx context.Context, entity, resource string) error {
	before, key, err := s.find(ctx, entity, resource)
	if err != nil {
		return err
	}
	ev := record.Event{Action: "bucket.reset", Subject: BucketSubject(entity, resource), Before: before}
	if err := s.commit(ctx, key.Namespace, []record.Event{ev}); err != nil {
		return err
	}
	return s.parts.Store.Forget(ctx, key)
}

func bucketOf(st *store.State, at time.Time) Bucket {
	b := Bucket{Entity: st.Bucket.Entity, Resource: st.Bucket.Resource, ID: st.ID, At: st.At, Items: st.Items}
	now := clock.Nanos(at)
	for _, ls := range st.Limits {
		l := ls.Limit
		p := clock.Params{Amount: l.Amount, Period: int64(l.Period), Burst: l.Burst}
		b.Limits = append(b.Limits, BucketLimit{
			Limit:    weir.Limit{Name: l.Name, Amount: l.Amount / 1000, Period: l.Period, Burst: l.Burst / 1000},
			Override: l.Override, Available: clock.MulDivFloor(p.Available(ls.Level, p.Clock(now)), 1, 1000),
			Debited: ls.Debited / 1000, Returned: ls.Returned / 1000,
		})
	}
	return b
}

// forgetBuckets removes all buckets that match.
func (c catalog) forgetBuckets(ctx context.Context, q store.BucketQuery) error {
	for {
		page, err := c.parts.Store.Buckets(ctx, q)
		if err != nil {
			return err
		}
		found := make([]store.Bucket, len(page.States))
		for i := range page.States {
			found[i] = page.States[i].Bucket
		}
		if len(found) > 0 {
			if err := c.parts.Store.Forget(ctx, found...); err != nil {
				return err
			}
		}
		if q.After = page.Next; q.After == "" {
			return nil
		}
	}
}
