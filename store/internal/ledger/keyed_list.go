package ledger

import (
	"bytes"
	"cmp"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/cursor"
	"github.com/weirlimits/weir/store/internal/varint"
)

// List returns a page of windows.
func List(tx Tx, q *store.UsageQuery) (store.UsagePage, error) {
	return Page(q, func(after *cursor.Position, f func(store.UsageRecord) bool) error {
		at := Window{Of: q.Of, Namespace: q.Namespace, ID: q.ID, Type: q.Window, Start: q.From.Unix()}
		if q.Of == store.OfStore {
			at.Namespace = store.Registry
		}
		first := at.subject()
		if q.ID != "" {
			first = varint.AppendParts(first, q.ID)
		}
		var last []byte
		if after != nil {
			at.ID, at.Sub, at.Start = after.ID, after.Sub, after.Start
			last = at.key()
			first = last
		}
		s := scan{c: tx.Cursor(), to: q.To.Unix(), at: at, id: q.ID}
		for raw, v := s.settle(s.c.Seek(first)); raw != nil; raw, v = s.settle(s.c.Next()) {
			if bytes.Equal(raw, last) {
				continue
			}
			counts, err := decodeCounts(v)
			if err != nil {
				return err
			}
			r := store.UsageRecord{ID: s.at.ID, Sub: s.at.Sub, Window: q.Window, Start: s.at.time(), Counts: counts}
			if !f(r) {
				return nil
			}
		}
		return nil
	})
}

// scan iterates over the windows of one kind of subject, whose keys are grouped by start.
type scan struct {
	c  Cursor
	at Window // current position
	to int64
	id string // if not "", only this ID
}

// settle skips windows of other subjects.
func (s *scan) settle(raw, value []byte) ([]byte, []byte) {
	want := s.at
	for {
		w, ok := parseWindow(raw)
		if !ok || w.Type != want.Type || w.Start >= s.to {
			return nil, nil
		}
		side := cmp.Or(cmp.Compare(w.Of, want.Of), cmp.Compare(w.Namespace, want.Namespace))
		if side == 0 && s.id != "" {
			side = cmp.Compare(w.ID, s.id)
		}
		if side == 0 {
			s.at = w
			return raw, value
		}
		want.Start = w.Start
		if side > 0 {
			want.Start++
		}
		key := want.subject()
		if s.id != "" {
			key = varint.AppendParts(key, s.id)
		}
		raw, value = s.c.Seek(key)
	}
}
