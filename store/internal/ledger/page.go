package ledger

import (
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/cursor"
)

// Page returns a page of the windows that scan finds. scan calls f with the windows of the query that follow a
// position, or all if it is "", by start, ID and Sub, each with its own position, until f returns false. It may ignore
// the Sub of the query.
func Page(
	q *store.UsageQuery, scan func(after string, f func(at string, r store.UsageRecord) bool) error,
) (page store.UsagePage, err error) {
	if err := Check(q.Window); err != nil {
		return page, err
	}
	mark := cursor.Mark("usage", q.Namespace, q.Of, q.ID, q.Sub, q.Window, q.From.Unix(), q.To.Unix())
	last := ""
	if q.After != "" {
		if last, err = cursor.Parse(mark, q.After); err != nil {
			return page, err
		}
	}
	limit := store.PageSize(q.Max)
	err = scan(last, func(at string, r store.UsageRecord) bool {
		if q.Sub != "" && r.Sub != q.Sub {
			return true
		}
		if len(page.Records) == limit {
			page.Next = cursor.Make(mark, last)
			return false
		}
		page.Records, last = append(page.Records, r), at
		return true
	})
	if err != nil {
		return store.UsagePage{}, err
	}
	return page, nil
}
