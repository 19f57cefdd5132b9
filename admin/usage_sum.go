package admin

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/internal/policy/tree"
	"github.com/weirlimits/weir/store"
)

// UsageSummary is the sum of all windows that a query selects. All its windows are of one type.
type UsageSummary struct {
	From    time.Time `json:"from"`    // start of the first window
	To      time.Time `json:"to"`      // windows start before it
	Total   Usage     `json:"total"`   // over all windows; Peak is the highest of any
	Windows []Usage   `json:"windows"` // each over everything selected; windows without counts are left out
}

// Sum adds up all windows that a query selects, over all pages; it ignores After and Max. Without an Entity, it reads
// the sums that the store keeps.
func (u *UsageReports) Sum(ctx context.Context, query UsageQuery) (UsageSummary, error) {
	query.After, query.Max = "", 1000
	if query.By == "" && query.Entity == "" {
		if query.By = ByNamespace; query.Resource != "" {
			query.By = ByResource
		}
	}
	q, err := u.prepare(ctx, &query)
	if err != nil {
		return UsageSummary{}, err
	}
	u.parts.Meter.Flush(ctx)
	total, windows, err := meter.Sum(ctx, u.parts.Usage.Usage, q)
	if err != nil {
		return UsageSummary{}, err
	}
	named := func(r *store.UsageRecord) Usage {
		u := usageOf(ByEntity, r)
		u.Entity, u.Resource = query.Entity, query.Resource
		return u
	}
	s := UsageSummary{From: query.From, To: query.To, Windows: make([]Usage, len(windows))}
	s.Total = named(&store.UsageRecord{Window: q.Window, Start: query.From, Counts: total})
	for i := range windows {
		s.Windows[i] = named(&windows[i])
	}
	return s, nil
}

// TopQuery selects a ranking of what was spent in a period.
type TopQuery struct {
	By       UsageBy // ByEntity (the default), ByParent, ByResource or ByLimit
	Limit    string  // rank by what was consumed of it, or by requests if ""; with ByLimit, show only this limit
	Resource string  // "" selects all; with ByEntity, ByParent or ByLimit
	Window   Window  // the type of window that is added up; defaults to Daily
	From, To time.Time
	Max      int // maximum number of rows; 0 means 10, more than 1,000 means 1,000
}

// Top returns the biggest spenders first, each with everything that it spent in the period. It adds up windows of one
// type; see [UsageQuery] for the defaults of From and To. ByEntity counts each request once: it leaves out parents
// whose descendants have spent of what is ranked. ByParent ranks those parents.
func (u *UsageReports) Top(ctx context.Context, query TopQuery) ([]Usage, error) {
	query.By = cmp.Or(query.By, ByEntity)
	query.Max = cmp.Or(query.Max, 10)
	if query.By == ByLimit {
		return u.topLimits(ctx, &query)
	}
	if query.By == ByNamespace || query.By == ByStore {
		return nil, configErr("by", "%q cannot be ranked: use entity, parent, resource or limit", string(query.By))
	}
	if query.By == ByResource && query.Resource != "" {
		return nil, configErr("resource", "cannot be combined with a ranking of resources")
	}
	q, err := u.prepare(ctx, &UsageQuery{
		By: query.By, Resource: query.Resource, Window: query.Window, From: query.From, To: query.To, Max: query.Max,
	})
	if err != nil {
		return nil, err
	}
	u.parts.Meter.Flush(ctx)
	top, err := meter.Top(ctx, u.parts.Usage.Usage, q, query.Limit, u.repeats(ctx, q, &query))
	if err != nil {
		return nil, err
	}
	out := make([]Usage, len(top))
	for i := range top {
		out[i] = usageOf(query.By, &top[i])
		if query.By != ByResource {
			out[i].Resource = query.Resource
		}
		if query.By == ByParent {
			own := q
			own.Of, own.ID = store.OfBucket, top[i].ID
			if out[i].Own, err = u.own(ctx, own); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// repeats returns a function that reports whether an entity repeats what its descendants, who are ranked, have spent.
func (u *UsageReports) repeats(ctx context.Context, q store.UsageQuery, t *TopQuery) func(string) (bool, error) {
	return func(id string) (bool, error) {
		if below, err := meter.Below(ctx, u.parts.Usage.Usage, q, id, t.Limit); !below || err != nil {
			return false, err
		}
		return tree.Charged(ctx, u.parts.Store, q.Namespace, id)
	}
}

// topLimits ranks the namespace's limits by name.
func (u *UsageReports) topLimits(ctx context.Context, query *TopQuery) ([]Usage, error) {
	if err := checkMax(query.Max); err != nil {
		return nil, err
	}
	s, err := u.Sum(ctx, UsageQuery{Resource: query.Resource, Window: query.Window, From: query.From, To: query.To})
	if err != nil {
		return nil, err
	}
	limits := slices.DeleteFunc(s.Total.Limits, func(u LimitUsage) bool {
		return query.Limit != "" && u.Limit != query.Limit
	})
	slices.SortStableFunc(limits, func(a, b LimitUsage) int { return cmp.Compare(b.Consumed, a.Consumed) })
	out := []Usage{}
	for _, u := range limits[:min(len(limits), query.Max)] {
		row := s.Total
		row.Limits = []LimitUsage{u}
		out = append(out, row)
	}
	return out, nil
}
