package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/ledger"
)

// Usage implements [store.Usage]. It returns what was booked.
func (s *Store) Usage(ctx context.Context, q store.UsageQuery) (store.UsagePage, error) {
	if err := s.ready(ctx); err != nil {
		return store.UsagePage{}, err
	}
	return ledger.Page(&q, func(after string, f func(string, store.UsageRecord) bool) error {
		var at from
		if start, name, ok := strings.Cut(after, ":"); ok {
			at = from{start, "(" + name}
		} else if !q.Known {
			if err := s.kept(ctx); err != nil {
				return err
			}
		}
		all, err := s.windows(ctx, &q, at, store.PageSize(q.Max)+1)
		for i := range all {
			if w := &all[i]; !f(strconv.FormatInt(w.start, 10)+":"+w.member, w.record(q.Window)) {
				break
			}
		}
		return err
	})
}

// kept returns an error if nobody has ever booked usage, or not for weeks.
func (s *Store) kept(ctx context.Context) error {
	key := s.keys.passed()
	n, err := s.run(ctx, keptScript, []string{key}, nil).AsInt64()
	switch {
	case err != nil:
		return s.trouble("usage", key, err)
	case n == 0:
		return fmt.Errorf("%w: in Redis, weir aggregate books it", store.ErrNoUsage)
	}
	return nil
}

func (f *found) record(w store.Window) store.UsageRecord {
	id, sub, _ := strings.Cut(f.member, "\x00")
	return store.UsageRecord{ID: id, Sub: sub, Window: w, Start: time.Unix(f.start, 0).UTC(), Counts: f.figures}
}

// windows returns the first windows of a query, at most so many.
func (s *Store) windows(ctx context.Context, q *store.UsageQuery, at from, most int) ([]found, error) {
	w := windowsOf{
		namespace: q.Namespace, window: q.Window, of: q.Of, first: ceil(q.From), last: ceil(q.To) - 1, lo: "-", hi: "+",
		sub: q.Sub,
	}
	if q.ID != "" {
		w.lo, w.hi = "["+q.ID+"\x00", "("+q.ID+"\x01"
	}
	if q.Of != store.OfStore {
		return s.first(ctx, &w, at, most)
	}
	// Each namespace holds its part of the store's sums.
	_, spaces, err := s.spaces(ctx, nil)
	if err != nil {
		return nil, err
	}
	var all []found
	for _, ns := range spaces {
		w.namespace = ns.id
		part, err := s.first(ctx, &w, at, most)
		if err != nil {
			return nil, err
		}
		for _, f := range part {
			i, ok := slices.BinarySearchFunc(all, f.start, func(o found, start int64) int {
				return int(min(max(o.start-start, -1), 1))
			})
			if !ok {
				all = slices.Insert(all, i, f)
			} else {
				all[i].figures = store.MergeFigures(all[i].figures, f.figures)
			}
		}
		all = all[:min(len(all), most)]
	}
	return all, nil
}

// first returns the first windows of one namespace.
func (s *Store) first(ctx context.Context, w *windowsOf, at from, most int) ([]found, error) {
	var all []found
	for {
		part, next, err := s.look(ctx, w, at, most-len(all))
		if err != nil {
			return nil, err
		}
		if all = append(all, part...); next == nil || len(all) >= most {
			return all, nil
		}
		at = *next
		if err := s.ready(ctx); err != nil {
			return nil, err
		}
	}
}

// ceil returns a time in seconds, rounded up.
func ceil(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}
