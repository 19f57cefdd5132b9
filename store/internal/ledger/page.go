package ledger

import (
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/cursor"
)

// Page returns a page of the windows that scan finds. scan calls f with the windows of the query that follow a
// position, or all if it is nil, by start, ID and Sub, until f returns false. It may ignore the Sub of the query.
func Page(
	q *store.UsageQuery, scan func(after *cursor.Position, f func(store.UsageRecord) bool) error,
) (page store.UsagePage, err error) {
	if err := Check(q.Window); err != nil {
		return page, err
	}
	list, limit := cursor.OfUsage(q), store.PageSize(q.Max)
	var after *cursor.Position
	if q.After != "" {
		page.Records = make([]store.UsageRecord, 0, limit) // usually as full as the page before
		at, err := list.Parse(q.After)
		if err != nil {
			return page, err
		}
		after = &at
	}
	err = scan(after, func(r store.UsageRecord) bool {
		if q.Sub != "" && r.Sub != q.Sub {
			return true
		}
		if len(page.Records) == limit {
			last := &page.Records[limit-1]
			page.Next = list.Make(cursor.Position{ID: last.ID, Sub: last.Sub, Start: last.Start.Unix()})
			return false
		}
		page.Records = append(page.Records, r)
		return true
	})
	if err != nil {
		return store.UsagePage{}, err
	}
	return page, nil
}
