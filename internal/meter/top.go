package meter

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"time"

	"github.com/weirlimits/weir/store"
)

// List lists windows, as [store.Usage] does.
type List func(context.Context, store.UsageQuery) (store.UsagePage, error)

// maxHeld is about how many windows a ranking holds in memory at once.
const maxHeld = 20_000

// Period fills in the defaults of a period, in windows of a type: from a day, 30 days or 12 months before the end,
// which is that of the current window. It begins with a window.
func Period(w store.Window, from, to time.Time) (time.Time, time.Time) {
	if to.IsZero() {
		to = w.Next(w.Start(time.Now()))
	}
	if last := to.Add(-1); from.IsZero() {
		switch w {
		case store.Hourly:
			from = last.Add(-23 * time.Hour)
		case store.Daily:
			from = last.AddDate(0, 0, -29)
		case store.Monthly:
			from = w.Start(last).AddDate(0, -11, 0)
		}
	}
	return w.Start(from), to
}

// repeats reports whether a query over several resources selects a record of a group or of the total, which repeats
// what others have counted.
func repeats(q *store.UsageQuery, r *store.UsageRecord) bool {
	switch q.Of {
	case store.OfResource:
		return q.ID == "" && store.Aggregate(r.ID)
	case store.OfBucket, store.OfChildren:
		return q.Sub == "" && store.Aggregate(r.Sub)
	default:
		return false
	}
}

// Sum adds up all windows that a query selects: all together, and those of each start. Groups and the total count only
// if the query names one.
func Sum(
	ctx context.Context, list List, q store.UsageQuery,
) (total []store.LimitFigures, windows []store.UsageRecord, err error) {
	for {
		page, err := list(ctx, q)
		if err != nil {
			return nil, nil, err
		}
		for i := range page.Records {
			r := &page.Records[i]
			if repeats(&q, r) {
				continue
			}
			total = store.MergeFigures(total, r.Counts)
			if n := len(windows); n > 0 && windows[n-1].Start.Equal(r.Start) {
				windows[n-1].Counts = store.MergeFigures(windows[n-1].Counts, r.Counts)
			} else {
				windows = append(windows, store.UsageRecord{Window: r.Window, Start: r.Start, Counts: r.Counts})
			}
		}
		if q.After = page.Next; q.After == "" {
			return total, windows, nil
		}
	}
}

// Top adds up the windows of each ID that a query selects and returns the q.Max IDs that consumed most of a limit, or
// made most requests if limit is "", with the largest first. It reads the windows of all starts side by side, in the
// order of IDs, so it holds a page of each start and the best sums, however many IDs there are. Groups and the total
// count only if the query names one. Of entities, leave reports which of those that are among the best so far to leave
// out; nil leaves out none.
func Top(
	ctx context.Context, list List, q store.UsageQuery, limit string, leave func(id string) (bool, error),
) ([]store.UsageRecord, error) {
	walks, err := openWalks(ctx, list, q)
	if err != nil {
		return nil, err
	}
	heap.Init(&walks)
	best := ranking{limit: limit, most: store.PageSize(q.Max)}
	if q.Of == store.OfBucket {
		best.leave = leave
	}
	var total []store.LimitFigures // reused for each ID
	for len(walks) > 0 {
		sum := store.UsageRecord{ID: walks[0].page[0].ID, Window: q.Window, Start: q.From, Counts: total[:0]}
		for len(walks) > 0 && walks[0].page[0].ID == sum.ID {
			if r := &walks[0].page[0]; !repeats(&q, r) {
				sum.Counts = store.MergeFigures(sum.Counts, r.Counts)
			}
			if ok, err := walks[0].step(ctx, list); err != nil {
				return nil, err
			} else if ok {
				heap.Fix(&walks, 0)
			} else {
				heap.Pop(&walks)
			}
		}
		if err := best.offer(sum); err != nil {
			return nil, err
		}
		total = sum.Counts
	}
	return best.records, nil
}

// walk reads the windows of one start.
type walk struct {
	page []store.UsageRecord // the windows read ahead; the first is the current one
	rest store.UsageQuery    // what follows them, if After is set
}

// openWalks returns a walk for each start that has windows.
func openWalks(ctx context.Context, list List, q store.UsageQuery) (walks, error) {
	hours := map[store.Window]int{store.Daily: 24, store.Monthly: 28 * 24}
	starts := int(q.To.Sub(q.From).Hours())/max(hours[q.Window], 1) + 1
	q.Max, q.After = min(max(maxHeld/starts, 10), 1000), ""
	var all walks
	for {
		page, err := list(ctx, q)
		if err != nil {
			return nil, err
		}
		q.Known = true // what the first call took in
		for rest := page.Records; len(rest) > 0; {
			w := &walk{page: ofStart(rest)}
			if rest = rest[len(w.page):]; len(rest) == 0 {
				w.rest = q
				w.rest.After = page.Next
				q.From = q.Window.Next(w.page[0].Start)
			}
			all = append(all, w)
		}
		if page.Next == "" || len(page.Records) == 0 || !q.From.Before(q.To) {
			return all, nil
		}
	}
}

// ofStart returns the records that have the same start as the first.
func ofStart(records []store.UsageRecord) []store.UsageRecord {
	other := slices.IndexFunc(records, func(r store.UsageRecord) bool { return !r.Start.Equal(records[0].Start) })
	if other < 0 {
		return records
	}
	return records[:other]
}

// step moves to the next window and reports whether there is one.
func (w *walk) step(ctx context.Context, list List) (bool, error) {
	start := w.page[0].Start
	w.page = w.page[1:]
	if len(w.page) > 0 || w.rest.After == "" {
		return len(w.page) > 0, nil
	}
	page, err := list(ctx, w.rest)
	if err != nil || len(page.Records) == 0 || !page.Records[0].Start.Equal(start) {
		return false, err
	}
	w.page, w.rest.After = ofStart(page.Records), page.Next
	if len(w.page) < len(page.Records) {
		w.rest.After = ""
	}
	return true, nil
}

// walks is a heap of walks, ordered by their current ID.
type walks []*walk

func (m walks) Len() int           { return len(m) }
func (m walks) Less(i, j int) bool { return m[i].page[0].ID < m[j].page[0].ID }
func (m walks) Swap(i, j int)      { m[i], m[j] = m[j], m[i] }

// Push implements [heap.Interface].
func (m *walks) Push(x any) { *m = append(*m, x.(*walk)) } //nolint:forcetypeassert // the heap holds nothing else

// Pop implements [heap.Interface].
func (m *walks) Pop() any {
	w := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return w
}

// ranking holds the best records, best first.
type ranking struct {
	limit   string
	most    int
	leave   func(id string) (bool, error)
	records []store.UsageRecord
}

// rank returns the figure that a record is ranked by, and whether it has that figure.
func (r *ranking) rank(u *store.UsageRecord) (int64, bool) {
	i := slices.IndexFunc(u.Counts, func(c store.LimitFigures) bool { return c.Limit == r.limit })
	switch {
	case i < 0:
		return 0, false
	case r.limit == "":
		return u.Counts[i].Requests, true
	}
	return u.Counts[i].Consumed(), true
}

// offer keeps a copy of a record if it is one of the best, and not to be left out.
func (r *ranking) offer(u store.UsageRecord) error {
	n, ok := r.rank(&u)
	if !ok {
		return nil
	}
	at, _ := slices.BinarySearchFunc(r.records, n, func(have store.UsageRecord, n int64) int {
		m, _ := r.rank(&have)
		return cmp.Or(cmp.Compare(n, m), -1) // of equals, the one that came first
	})
	if at == r.most {
		return nil
	}
	if r.leave != nil {
		if out, err := r.leave(u.ID); out || err != nil {
			return err
		}
	}
	u.Counts = slices.Clone(u.Counts)
	r.records = slices.Insert(r.records[:min(len(r.records), r.most-1)], at, u)
	return nil
}

// Below reports whether the entities below another have what a ranking by a limit, or by requests, ranks.
func Below(ctx context.Context, list List, q store.UsageQuery, id, limit string) (bool, error) {
	q.Of, q.ID, q.Known, q.After, q.Max = store.OfChildren, id, true, "", 1000
	total, _, err := Sum(ctx, list, q)
	_, has := (&ranking{limit: limit}).rank(&store.UsageRecord{Counts: total})
	return has, err
}
