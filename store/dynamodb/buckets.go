package dynamodb

import (
	"context"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
	"github.com/weirlimits/weir/store/internal/cursor"
)

// Buckets implements [store.Store]. Buckets are found through an index, which usually follows the table within moments:
// a bucket that was created just before the call may not be listed yet.
func (s *Store) Buckets(ctx context.Context, q store.BucketQuery) (store.BucketPage, error) {
	if err := s.ready(ctx); err != nil {
		return store.BucketPage{}, err
	}
	if q.Namespace == "" {
		return store.BucketPage{}, table.Invalid("a list of buckets without a namespace")
	}
	mark := cursor.Mark("bucket", q.Namespace, q.Entity, q.Resource)
	lo, hi := "bucket\x00", "bucket\x01"
	if q.Entity != "" {
		lo = table.SortKey("bucket", q.Entity, "")
		hi = lo[:len(lo)-1] + "\x01"
	}
	after := ""
	if q.After != "" {
		at, err := cursor.Parse(mark, q.After)
		if err != nil {
			return store.BucketPage{}, err
		}
		if at < lo || at > hi {
			return store.BucketPage{}, store.ErrBadCursor
		}
		after = at
	}
	ctx, cancel := s.calls.Within(ctx)
	defer cancel()
	limit := store.PageSize(q.Max)
	page := store.BucketPage{At: clock.Time(s.now())}
	w := s.calls.Walk(table.AllSpans(q.Namespace, lo, hi), false, after)
	for len(page.States) <= limit { // one more, to see whether there is a next page
		entries, err := w.Next(ctx, max(limit+1-len(page.States), 25))
		if err != nil {
			return store.BucketPage{}, err
		}
		if len(entries) == 0 {
			break
		}
		var keys []store.Bucket
		for _, e := range entries {
			b, _, ok := table.ParseBucketKey(e.Key.PK)
			if !ok {
				return store.BucketPage{}, s.calls.Damaged(e.Key, table.ErrMisplaced)
			}
			if q.Resource == "" || b.Resource == q.Resource {
				keys = append(keys, b)
			}
		}
		snap, err := s.Peek(ctx, keys...)
		if err != nil {
			return store.BucketPage{}, err
		}
		for _, st := range snap.States {
			if st.ID != 0 {
				page.States = append(page.States, st)
			}
		}
		if snap.At.After(page.At) {
			page.At = snap.At
		}
	}
	if len(page.States) > limit {
		page.States = page.States[:limit]
		page.Next = cursor.Make(mark, table.BucketSort(page.States[limit-1].Bucket))
	}
	return page, nil
}
