package table

import (
	"context"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/usage"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/cursor"
)

var _ store.Usage = (*Windows)(nil)

const (
	// toldAtOnce is how many readings an item of a process's counts holds.
	toldAtOnce = 200
	// keepTold is how long such an item lives: as long as the stream keeps it.
	keepTold = 24 * time.Hour
	// startsAtOnce is how many windows of one subject are read at once.
	startsAtOnce = 32
)

// Count implements [store.Usage]. It puts the readings into items, each with up to 200 of one namespace, which the
// stream carries to the ledger that books them. The windows contain them once that is done.
func (ws *Windows) Count(ctx context.Context, readings ...store.Reading) error {
	if err := ws.t.Ready(ctx); err != nil {
		return err
	}
	obs, err := usage.Observations(readings)
	if err != nil {
		return err
	}
	ctx, cancel := ws.t.Within(ctx)
	defer cancel()
	type owner struct{ namespace, source string }
	by := make(map[owner][]usage.Observation)
	for _, o := range obs {
		w := owner{o.Bucket.Namespace, o.Source}
		by[w] = append(by[w], o)
	}
	for w, told := range by {
		n := 0
		for part := range slices.Chunk(told, toldAtOnce) {
			if err := ws.t.tell(ctx, TallyKey(w.namespace, w.source, n), part); err != nil {
				return err
			}
			n++
		}
	}
	return nil
}

func (t *Table) tell(ctx context.Context, key Key, told []usage.Observation) error {
	it := key.Item()
	it[AttrValue] = &types.AttributeValueMemberB{Value: usage.AppendTold(nil, told)}
	it[AttrTTL] = Num(t.Clock().Add(keepTold).Unix())
	err := t.Attempt(ctx, func(ctx context.Context) error {
		_, err := t.cfg.Client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &t.cfg.Table, Item: it}, Once...)
		return err
	})
	return t.Trouble("count", key.String(), err)
}

// Usage implements [store.Usage]. It returns what was booked from the stream.
func (ws *Windows) Usage(ctx context.Context, q store.UsageQuery) (store.UsagePage, error) {
	if err := ws.t.Ready(ctx); err != nil {
		return store.UsagePage{}, err
	}
	if err := usage.Check(q.Window); err != nil {
		return store.UsagePage{}, err
	}
	mark := cursor.Mark("usage", q.Namespace, q.Of, q.ID, q.Sub, q.Window, q.From.Unix(), q.To.Unix())
	after := ""
	if q.After != "" {
		var err error
		if after, err = cursor.Parse(mark, q.After); err != nil {
			return store.UsagePage{}, err
		}
		if _, ok := parseUsageSort(q.Window, after); !ok {
			return store.UsagePage{}, store.ErrBadCursor
		}
	}
	var page store.UsagePage
	limit := store.PageSize(q.Max)
	last := ""
	err := ws.t.windows(ctx, &q, after, func(at string, r store.UsageRecord) bool {
		if q.Sub != "" && r.Sub != q.Sub {
			return true
		}
		if len(page.Records) == limit {
			page.Next = cursor.Make(mark, last)
			return false
		}
		page.Records = append(page.Records, r)
		last = at
		return true
	})
	if err != nil {
		return store.UsagePage{}, err
	}
	return page, nil
}

// windows calls f with the windows of a subject that come after a range key, by start, ID and Sub, until f returns
// false.
func (t *Table) windows(
	ctx context.Context, q *store.UsageQuery, after string, f func(at string, r store.UsageRecord) bool,
) error {
	first := usage.Start(q.Window, q.From)
	if first.Before(q.From) {
		first = usage.Next(q.Window, first)
	}
	if !first.Before(q.To) {
		return nil
	}
	if q.ID == "" {
		lo, hi := SpellStart(q.Window, first), SpellStart(q.Window, q.To.Add(-1))+"\x01"
		_, err := t.merged(ctx, q, t.Walk(usageSpans(q, lo, hi), false, after), f)
		return err
	}
	if r, ok := parseUsageSort(q.Window, after); ok && r.Start.After(first) {
		first = r.Start
	}
	for first.Before(q.To) {
		var spans []Span
		for n := 0; n < startsAtOnce && first.Before(q.To); n++ {
			lo := SpellStart(q.Window, first) + "\x00" + orderer.Replace(q.ID)
			spans = append(spans, usageSpans(q, lo+"\x00", lo+"\x01")...)
			first = usage.Next(q.Window, first)
		}
		w := t.Walk(spans, false, "")
		w.after = after
		if more, err := t.merged(
			ctx, q, w, func(at string, r store.UsageRecord) bool { return at <= after || f(at, r) },
		); err != nil || !more {
			return err
		}
	}
	return nil
}

// usageSpans are the spans that hold the windows of a subject.
func usageSpans(q *store.UsageQuery, lo, hi string) []Span {
	ns := q.Namespace
	if q.Of == store.OfStore {
		ns = store.Registry
	}
	if q.Of == store.OfBucket && q.ID != "" {
		return []Span{{"", AttrPK, AttrSK, UsagePartition(ns, q.Window, q.Of, PartOf(q.ID)), lo, hi}}
	}
	spans := make([]Span, UsageParts)
	for i := range spans {
		spans[i] = Span{"", AttrPK, AttrSK, UsagePartition(ns, q.Window, q.Of, i), lo, hi}
	}
	return spans
}

// merged calls f with the windows that a walk finds, with the parts of each window added up. It reports whether f wants
// more.
func (t *Table) merged(
	ctx context.Context, q *store.UsageQuery, w *Walk, f func(at string, r store.UsageRecord) bool,
) (bool, error) {
	var at string
	var sum store.UsageRecord
	for {
		entries, err := w.Next(ctx, store.PageSize(q.Max)+1)
		if err != nil {
			return false, err
		}
		for _, e := range entries {
			if at != "" && e.At == at {
				sum.Counts = usage.Merge(sum.Counts, countsOf(e.Attrs))
				continue
			}
			if at != "" && !f(at, sum) {
				return false, nil
			}
			r, ok := parseUsageSort(q.Window, e.At)
			if !ok {
				return false, t.Damaged(e.Key, ErrMisplaced)
			}
			at, sum = e.At, r
			sum.Counts = countsOf(e.Attrs)
		}
		if len(entries) == 0 {
			return at == "" || f(at, sum), nil
		}
	}
}

// parseUsageSort is the inverse of UsageSort.
func parseUsageSort(w store.Window, at string) (store.UsageRecord, bool) {
	start, id, sub, ok := parseSort(at)
	t, err := time.Parse(StartLayouts[w], start)
	return store.UsageRecord{ID: id, Sub: sub, Window: w, Start: t}, ok && err == nil
}

// countsOf returns the figures of a window's item, by limit.
func countsOf(attrs map[string]types.AttributeValue) []store.LimitFigures {
	var counts []store.LimitFigures
	for name, v := range attrs {
		if len(name) < 2 || name[1] != '_' {
			continue
		}
		f, ok := usage.FigureOf(name[0])
		n, err := Number(v)
		if !ok || err != nil {
			continue
		}
		i, found := slices.BinarySearchFunc(
			counts, name[2:], func(c store.LimitFigures, l string) int { return strings.Compare(c.Limit, l) },
		)
		if !found {
			counts = slices.Insert(counts, i, store.LimitFigures{Limit: name[2:]})
		}
		*usage.Field(&counts[i].Figures, f) += n
	}
	return slices.DeleteFunc(counts, func(c store.LimitFigures) bool { return c.Figures == store.Figures{} })
}

// ForgetUsage implements [store.Usage]. The accounts stay until they expire. Otherwise, what they have counted would be
// counted again.
func (ws *Windows) ForgetUsage(ctx context.Context, namespace string) error {
	if err := ws.t.Ready(ctx); err != nil {
		return err
	}
	for _, w := range store.Windows {
		for _, of := range []store.UsageOf{store.OfBucket, store.OfChildren, store.OfResource, store.OfNamespace} {
			q := store.UsageQuery{Namespace: namespace, Of: of, Window: w}
			walked := ws.t.Walk(usageSpans(&q, "0", ":"), false, "")
			for {
				entries, err := walked.Next(ctx, 100)
				if err != nil || len(entries) == 0 {
					if err != nil {
						return err
					}
					break
				}
				for _, e := range entries {
					if err := ws.t.drop(ctx, e.Key); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

func (t *Table) drop(ctx context.Context, key Key) error {
	err := t.Attempt(ctx, func(ctx context.Context) error {
		_, err := t.cfg.Client.DeleteItem(
			ctx, &dynamodb.DeleteItemInput{TableName: &t.cfg.Table, Key: key.Item()}, Once...,
		)
		return err
	})
	return t.Trouble("usage", key.String(), err)
}

// SpellStart formats the start of a window such that the strings sort by time.
func SpellStart(w store.Window, t time.Time) string { return t.UTC().Format(StartLayouts[w]) }

// StartLayouts are the layouts of windows' starts, which sort by time.
var StartLayouts = map[store.Window]string{store.Hourly: "2006010215", store.Daily: "20060102", store.Monthly: "200601"}

// PartOf returns the part, of UsageParts, in which an entity's windows lie.
func PartOf(entity string) int {
	h := fnv.New32a()
	h.Write([]byte(entity))
	return int(h.Sum32() % UsageParts)
}
