package table

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/cursor"
)

// List implements [store.Catalog]. If the records of a query lie side by side in the table, the list shows everything
// that was committed before the call. That holds for the records of one ID, those of one audit subject, and the kinds
// of the registry. All others are found through an index, which usually follows the table within moments: a record that
// was created, or given another parent, just before the call may not be listed yet. Listed records are always as the
// table has them.
func (c *Catalog) List(ctx context.Context, q store.Query) (store.Page, error) {
	if err := c.t.Ready(ctx); err != nil {
		return store.Page{}, err
	}
	about := store.Key{Namespace: q.Namespace, Kind: q.Kind, ID: cmp.Or(q.ID, q.Prefix), Sub: q.Sub}
	if err := checkKey("list", about, q.Parent); err != nil {
		return store.Page{}, err
	}
	pages, spans := cursor.OfRecords(&q), spansOf(q)
	after := ""
	if q.After != "" {
		at, err := pages.Parse(q.After)
		k := store.Key{Namespace: q.Namespace, Kind: q.Kind, ID: at.ID, Sub: at.Sub}
		if err != nil || checkKey("list", k, "") != nil {
			return store.Page{}, store.ErrBadCursor
		}
		if after = recordSort(k); spans[0].index == "" {
			after = RecordKey(k).SK
		}
	}
	ctx, cancel := c.t.Within(ctx)
	defer cancel()
	limit := store.PageSize(q.Max)
	w := c.t.Walk(spans, q.Reverse, after)
	var page store.Page
	for len(page.Records) <= limit { // one more, to see whether there is a next page
		entries, err := w.Next(ctx, max(limit+1-len(page.Records), 25))
		if err != nil {
			return store.Page{}, err
		}
		if len(entries) == 0 {
			break
		}
		records, err := c.t.fetch(ctx, q, entries)
		if err != nil {
			return store.Page{}, err
		}
		page.Records = append(page.Records, records...)
	}
	if len(page.Records) > limit {
		page.Records = page.Records[:limit]
		last := page.Records[limit-1].Key
		page.Next = pages.Make(cursor.Position{ID: last.ID, Sub: last.Sub})
	}
	return page, nil
}

// spansOf returns the spans in which the records of a query are found. Not everything in them matches.
func spansOf(q store.Query) []Span {
	k := store.Key{Namespace: q.Namespace, Kind: q.Kind, ID: q.ID, Sub: q.Sub}
	_, byID := layouts[q.Kind]
	switch {
	case byID && q.ID != "" && q.Sub != "":
		return []Span{{"", AttrPK, AttrSK, RecordKey(k).PK, RecordKey(k).SK, RecordKey(k).SK}}
	case byID && q.ID != "":
		word := layouts[q.Kind].word
		return []Span{{"", AttrPK, AttrSK, RecordKey(k).PK, word, word + "$"}} // "$" follows "#"
	case q.Kind == store.KindAudit && q.Sub != "":
		lo, hi := begins(auditWord, "#", q.Prefix)
		return []Span{{"", AttrPK, AttrSK, RecordKey(k).PK, lo, hi}}
	case !byID && q.Kind != store.KindAudit:
		lo, hi := begins(systemWord(q.Kind), "#", q.Prefix)
		if q.ID != "" {
			lo = systemWord(q.Kind) + "#" + orderer.Replace(q.ID)
			hi = lo + "\x01" // follows NUL, and no text holds it alone
		}
		return []Span{{"", AttrPK, AttrSK, RecordKey(k).PK, lo, hi}}
	}
	lo, hi := begins(string(q.Kind), "\x00", q.Prefix)
	if q.ID != "" {
		id := SortKey(string(q.Kind), q.ID, "")
		lo, hi = id, id[:len(id)-1]+"\x01"
	}
	switch {
	case q.Parent != "":
		return []Span{{IndexParent, AttrParent, AttrChild, parentPartition(q.Namespace, q.Parent), lo, hi}}
	case q.Kind == store.KindEntityLimits && q.Sub != "":
		return []Span{{IndexScope, AttrScope, AttrOwner, scopePartition(q.Namespace, q.Sub), lo, hi}}
	}
	return AllSpans(q.Namespace, lo, hi)
}

// begins returns the bounds of the range keys that consist of a word, a separator and a text that begins with prefix.
// If the ID is empty, the separator may be missing.
func begins(word, separator, prefix string) (lo, hi string) {
	end := word + string(separator[0]+1)
	if prefix == "" {
		return word, end
	}
	lo = orderer.Replace(prefix)
	for rest := lo; rest != ""; {
		r, size := utf8.DecodeLastRuneInString(rest)
		rest = rest[:len(rest)-size]
		if r < utf8.MaxRune {
			if r++; r == 0xd800 {
				r = 0xe000 // no text contains the surrogates in between
			}
			end = word + separator + rest + string(r)
			break
		}
	}
	return word + separator + lo, end
}

// fetch returns the records of entries that still exist and match.
func (t *Table) fetch(ctx context.Context, q store.Query, entries []Entry) ([]store.Record, error) {
	var absent []Key
	for _, e := range entries {
		if _, whole := e.Attrs[AttrVersion]; !whole {
			absent = append(absent, e.Key)
		}
	}
	found := Items{}
	if len(absent) > 0 {
		var err error
		if found, err = t.BatchGet(ctx, absent); err != nil {
			return nil, err
		}
	}
	now := t.Clock()
	var records []store.Record
	for _, e := range entries {
		attrs := e.Attrs
		if _, whole := attrs[AttrVersion]; !whole {
			attrs = found[e.Key]
		}
		if attrs == nil {
			continue
		}
		at, err := Field(attrs, AttrSort, Text)
		kind, id, sub, ok := parseSort(at)
		k := store.Key{Namespace: q.Namespace, Kind: store.Kind(kind), ID: id, Sub: sub}
		if err == nil && (!ok || RecordKey(k) != e.Key) {
			err = ErrMisplaced
		}
		if err != nil {
			return nil, t.Damaged(e.Key, err)
		}
		r, err := t.parseRecord(k, attrs, now)
		if err != nil {
			return nil, err
		}
		if r.Version > 0 && k.Kind == q.Kind && (q.ID == "" && strings.HasPrefix(k.ID, q.Prefix) || k.ID == q.ID) &&
			(q.Sub == "" || k.Sub == q.Sub) &&
			(q.Parent == "" || r.Parent == q.Parent) {
			records = append(records, r)
		}
	}
	return records, nil
}

// ErrMisplaced reports an item of an index whose key names another item.
var ErrMisplaced = errors.New("attribute " + AttrSort + ": names another item")
