package admin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/held"
	"github.com/weirlimits/weir/internal/policy/prepaid"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Buckets reads and resets what entities have spent and have left.
type Buckets struct{ catalog }

// Bucket is the state of an entity on a resource. A full bucket need not exist: the next request creates it. One that
// does not exist has the limits in force, and neither ID nor At.
type Bucket struct {
	Entity   string        `json:"entity"`
	Resource string        `json:"resource"`
	ID       uint64        `json:"id,string"`       // changes with each birth; Debited and Returned count from there
	At       time.Time     `json:"at"`              // of the last change
	Items    int           `json:"items,omitempty"` // that the store has split it into; 0 if it is not split
	Limits   []BucketLimit `json:"limits"`          // those in force first
}

// BucketLimit is the state of one limit of a bucket: a limit in force, one that was removed but still has tokens
// outstanding, or one that a request brought.
type BucketLimit struct {
	Limit     weir.Limit `json:"limit"`
	Override  bool       `json:"override,omitempty"` // brought by a request
	Removed   bool       `json:"removed,omitempty"`  // no longer in force
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

// List returns the buckets of the limiter's namespace as they are now, with the limits now in force.
func (s *Buckets) List(ctx context.Context, query BucketQuery) (Page[Bucket], error) {
	space, err := s.space(ctx, Scope{Entity: query.Entity, Resource: query.Resource}.Validate(), checkMax(query.Max))
	if err != nil {
		return Page[Bucket]{}, err
	}
	page, err := s.parts.Store.Buckets(ctx, store.BucketQuery{
		Namespace: space, Entity: query.Entity, Resource: query.Resource, After: query.After, Max: query.Max,
	})
	if err != nil {
		return Page[Bucket]{}, err
	}
	buckets, err := s.inForce(ctx, page.States, page.At)
	return Page[Bucket]{Items: buckets, Next: page.Next}, err
}

// Get returns the bucket of an entity on a resource as it is now, with the limits now in force. A bucket that does not
// exist is full. The error is [weir.ErrNotFound] if no limits apply, either.
func (s *Buckets) Get(ctx context.Context, entity, resource string) (Bucket, error) {
	b, _, err := s.find(ctx, entity, resource)
	if err == nil && b.ID == 0 && len(b.Limits) == 0 {
		err = fmt.Errorf("bucket of %q on %s: %w: no limits apply there; the bucket of a group is on %s, that of the "+
			"total on %s", entity, store.ResourceQuoted(resource), weir.ErrNotFound, weir.GroupResource("NAME"),
			weir.TotalResource)
	}
	return b, err
}

func (s *Buckets) find(ctx context.Context, entity, resource string) (Bucket, store.Bucket, error) {
	space, err := s.space(ctx, checkID("entity", entity),
		publicError(record.CheckResource("resource", resource)))
	if err != nil {
		return Bucket{}, store.Bucket{}, err
	}
	key := store.Bucket{Namespace: space, Entity: entity, Resource: resource}
	snap, err := s.parts.Store.Peek(ctx, key)
	if err != nil {
		return Bucket{}, key, err
	}
	found, err := s.inForce(ctx, snap.States, snap.At)
	if err != nil {
		return Bucket{}, key, err
	}
	return found[0], key, nil
}

// inForceAt is for how many buckets limits are read at a time.
const inForceAt = 100

// inForce returns buckets with the limits in force, which are read after the buckets, so that they are no older.
func (s *Buckets) inForce(ctx context.Context, states []store.State, at time.Time) (all []Bucket, err error) {
	for some := range slices.Chunk(states, inForceAt) {
		keys := make([]store.Bucket, len(some))
		for i := range some {
			keys[i] = some[i].Bucket
		}
		targets, err := s.parts.Policies.InForce(ctx, keys)
		if err != nil {
			return nil, err
		}
		for i := range some {
			all = append(all, bucketOf(&some[i], &targets[i], at))
		}
	}
	return all, nil
}

// Reset forgets what an entity has spent and owes on a resource: its bucket is full again. Without a bucket, which
// means that it is full, the error is [weir.ErrNotFound]. An open lease can still be rolled back, and then gives back
// what it took before the reset. The audit event is written before the reset, so no reset goes unrecorded; after an
// error there may be an event for a reset that was not made.
func (s *Buckets) Reset(ctx context.Context, entity, resource string) error {
	before, key, err := s.find(ctx, entity, resource)
	switch {
	case err != nil:
		return err
	case before.ID == 0:
		return fmt.Errorf("bucket of %q on %s: %w: the store does not have it, so it is full",
			entity, store.ResourceQuoted(resource), weir.ErrNotFound)
	}
	ev := record.Event{Action: "bucket.reset", Subject: BucketSubject(entity, resource), Before: before}
	if err := s.commit(ctx, key.Namespace, []record.Event{ev}); err != nil {
		return err
	}
	return s.parts.Store.Forget(ctx, key)
}

// Forgive forgives what the limits of an entity's bucket on a resource are in debt: those below zero are at zero, and
// all others stay as they are. It returns the bucket as it is afterwards, with the errors of [Buckets.Get]. What is
// forgiven counts as returned. The audit event is written before, as for [Buckets.Reset]; if nothing is in debt, there
// is none.
func (s *Buckets) Forgive(ctx context.Context, entity, resource string) (Bucket, error) {
	before, key, err := s.find(ctx, entity, resource)
	if err != nil {
		return Bucket{}, err
	}
	if !slices.ContainsFunc(before.Limits, func(l BucketLimit) bool { return l.Available < 0 }) {
		return s.Get(ctx, entity, resource)
	}
	snap, err := s.parts.Store.Peek(ctx, key)
	if err != nil {
		return Bucket{}, err
	}
	ev := record.Event{Action: "bucket.forgive", Subject: BucketSubject(entity, resource), Before: before}
	if err := s.commit(ctx, key.Namespace, []record.Event{ev}); err != nil {
		return Bucket{}, err
	}
	if slices.ContainsFunc(before.Limits, func(l BucketLimit) bool { return l.Available < 0 && !l.Removed }) {
		if err := prepaid.Follow(ctx, s.parts.Store, s.parts.Policies, key); err != nil {
			return Bucket{}, err
		}
	}
	if err := prepaid.Forgive(ctx, s.parts.Store, &snap.States[0], key); err != nil {
		return Bucket{}, err
	}
	return s.Get(ctx, entity, resource)
}

// bucketOf returns a bucket as the next request will find it. If the bucket's limits are newer than those in force that
// this process has read, they are in force.
func bucketOf(st *store.State, in *policy.Target, at time.Time) Bucket {
	b := Bucket{Entity: st.Bucket.Entity, Resource: st.Bucket.Resource, ID: st.ID, Items: st.Items}
	if st.ID != 0 {
		b.At = st.At
	}
	now, newer := clock.Nanos(at), st.Epoch > in.Epoch
	for i := 0; !newer && i < len(in.Limits); i++ {
		b.Limits = append(b.Limits, bucketLimit(&in.Limits[i], st, now))
	}
	for _, ls := range st.Limits {
		l := ls.Limit
		kept := slices.ContainsFunc(in.Limits, func(o store.Limit) bool { return o.Name == l.Name })
		limit := bucketLimit(l, st, now)
		limit.Removed = !l.Override && !newer
		most := max(limit.Limit.Burst, limit.Limit.Slots)
		if !limit.Removed || !kept && (limit.Available < most || l.IsBalance() && ls.Level != 0) {
			b.Limits = append(b.Limits, limit)
		}
	}
	return b
}

func bucketLimit(l *store.Limit, st *store.State, now int64) BucketLimit {
	p := l.Params()
	available := p.Available(held.Level(l, st, now), p.Clock(now))
	b := BucketLimit{
		Limit:    weir.Limit(record.Plain(l)),
		Override: l.Override, Available: clock.MulDivFloor(available, 1, 1000),
	}
	for _, ls := range st.Limits {
		if *ls.Limit == *l || ls.Limit.Name == l.Name && !ls.Limit.Override && !l.Override {
			b.Debited, b.Returned = ls.Debited/1000, ls.Returned/1000
		}
	}
	return b
}
