package table

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/cursor"
	"github.com/weirlimits/weir/store/internal/ledger"
)

var _ store.Usage = (*Windows)(nil)

const (
	// toldAtOnce is how many readings an item of a process's counts holds at most, and maxTold about how many bytes of
	// them: an item may have 400 KB.
	toldAtOnce = 200
	maxTold    = 128 << 10
	// keepTold is how long such an item lives: as long as the stream keeps it.
	keepTold = 24 * time.Hour
	// startsAtOnce is how many windows of one subject are read at once.
	startsAtOnce = 32
)

// Count implements [store.Usage]. It puts the readings into items, each with up to 200 of one namespace, or fewer if
// they are large, which the stream carries to the ledger that books them. The windows contain them once that is done.
func (ws *Windows) Count(ctx context.Context, readings ...store.Reading) error {
	if err := ws.t.Ready(ctx); err != nil {
		return err
	}
	obs, err := ledger.Observations(readings)
	if err != nil {
		return err
	}
	ctx, cancel := ws.t.Within(ctx)
	defer cancel()
	type owner struct{ namespace, source string }
	by := make(map[owner][]ledger.Observation)
	for _, o := range obs {
		w := owner{o.Bucket.Namespace, o.Source}
		by[w] = append(by[w], o)
	}
	for w, told := range by {
		n := 0
		for raw := range parts(told) {
			if err := ws.t.tell(ctx, TallyKey(w.namespace, w.source, n), raw); err != nil {
				return err
			}
			n++
		}
	}
	return nil
}

// parts yields observations as the items hold them.
func parts(told []ledger.Observation) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for most := toldAtOnce; len(told) > 0; {
			n := min(len(told), most)
			raw := ledger.AppendTold(nil, told[:n])
			if n > 1 && len(raw) > maxTold {
				most = n / 2
				continue
			}
			if !yield(raw) {
				return
			}
			told = told[n:]
		}
	}
}

func (t *Table) tell(ctx context.Context, key Key, raw []byte) error {
	it := key.Item()
	it[AttrValue] = &types.AttributeValueMemberB{Value: raw}
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
	page, err := ledger.Page(&q, func(after *cursor.Position, f func(store.UsageRecord) bool) error {
		return ws.t.windows(ctx, &q, after, f)
	})
	if err == nil && len(page.Records) == 0 && !q.Known {
		err = ws.t.metered(ctx, &q)
	}
	return page, err
}

// metered returns an error if nothing has ever booked usage, or leaves out what a query asks for. Callers that may not
// read that, such as tenants, get none.
func (t *Table) metered(ctx context.Context, q *store.UsageQuery) error {
	found, err := t.BatchGet(ctx, []Key{MeteredKey()})
	switch {
	case forbidden(err):
		return nil
	case err != nil:
		return err
	case found[MeteredKey()] == nil:
		return fmt.Errorf("%w: on DynamoDB, weir aggregate or the function of a stack books it", store.ErrNoUsage)
	}
	m, _, err := MeteredOf(found[MeteredKey()])
	if err != nil {
		return t.Damaged(MeteredKey(), err)
	}
	return m.misses(q)
}

// windows calls f with the windows of a subject that come after a position, by start, ID and Sub, until f returns
// false.
func (t *Table) windows(
	ctx context.Context, q *store.UsageQuery, after *cursor.Position, f func(r store.UsageRecord) bool,
) error {
	first, last := q.Window.Start(q.From), ""
	if first.Before(q.From) {
		first = q.Window.Next(first)
	}
	if after != nil {
		first = q.Window.Start(time.Unix(after.Start, 0))
		last = UsageSort(q.Window, first, after.ID, after.Sub)
	}
	if !first.Before(q.To) {
		return nil
	}
	if q.ID == "" {
		lo, hi := spellStart(q.Window, first), spellStart(q.Window, q.To.Add(-1))+"\x01"
		_, err := t.merged(ctx, q, t.Walk(usageSpans(q, lo, hi), false, last), f)
		return err
	}
	for first.Before(q.To) {
		var spans []Span
		for n := 0; n < startsAtOnce && first.Before(q.To); n++ {
			lo := spellStart(q.Window, first) + "\x00" + orderer.Replace(q.ID)
			spans = append(spans, usageSpans(q, lo+"\x00", lo+"\x01")...)
			first = q.Window.Next(first)
		}
		w := t.Walk(spans, false, "")
		w.after = last
		if more, err := t.merged(ctx, q, w, func(r store.UsageRecord) bool {
			return UsageSort(q.Window, r.Start, r.ID, r.Sub) <= last || f(r)
		}); err != nil || !more {
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
	ctx context.Context, q *store.UsageQuery, w *Walk, f func(store.UsageRecord) bool,
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
				sum.Counts = store.MergeFigures(sum.Counts, countsOf(e.Attrs))
				continue
			}
			if at != "" && !f(sum) {
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
			return at == "" || f(sum), nil
		}
	}
}

// countsOf returns the figures of a window's item, by limit.
func countsOf(attrs map[string]types.AttributeValue) []store.LimitFigures {
	var counts []store.LimitFigures
	for name, v := range attrs {
		if len(name) < 2 || name[1] != '_' {
			continue
		}
		if n, err := Number(v); err == nil {
			counts = ledger.AddLetter(counts, name[0], name[2:], n)
		}
	}
	return counts
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
	return t.Trouble("forget", key.String(), err)
}
