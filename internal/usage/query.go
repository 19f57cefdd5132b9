package usage

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"slices"

	"github.com/weirlimits/weir/store"
)

// List returns a page of windows.
func List(tx Tx, q *store.UsageQuery) (store.UsagePage, error) {
	at := windowKey{letter(q.Window), q.From.Unix(), q.Of, namespaceOf(q.Of, q.Namespace), q.ID, ""}
	var after []byte
	if q.After != "" {
		var err error
		after, err = base64.RawURLEncoding.DecodeString(q.After)
		k, ok := parseWindowKey(after)
		if err != nil || !ok || k.window != at.window || k.of != at.of || k.namespace != at.namespace ||
			q.ID != "" && k.id != q.ID {
			return store.UsagePage{}, store.ErrBadCursor
		}
		at = k
	}
	var page store.UsagePage
	limit := store.PageSize(q.Max)
	var last []byte
	s := scan{c: tx.Cursor(), to: q.To.Unix(), at: at, id: q.ID, first: after}
	for raw, v := s.seek(); raw != nil; raw, v = s.next() {
		if q.Sub != "" && s.at.sub != q.Sub || bytes.Equal(raw, after) {
			continue
		}
		if len(page.Records) == limit {
			page.Next = base64.RawURLEncoding.EncodeToString(last)
			break
		}
		r, err := s.record(q.Window, v)
		if err != nil {
			return store.UsagePage{}, err
		}
		page.Records = append(page.Records, r)
		last = append(last[:0], raw...)
	}
	return page, nil
}

func namespaceOf(of store.UsageOf, namespace string) string {
	if of == store.OfStore {
		return store.Registry
	}
	return namespace
}

// scan iterates over the windows of one kind of subject, whose keys are grouped by start.
type scan struct {
	c     Cursor
	at    windowKey // current position
	to    int64
	id    string // if not "", only this ID
	first []byte // if not nil, where to begin
}

// seek goes to the first window at or after s.at.
func (s *scan) seek() (raw, value []byte) {
	key := s.first
	if s.first = nil; key == nil {
		key = appendPart(s.at.appendSubject(nil), s.id)
		if s.id == "" {
			key = s.at.appendSubject(nil)
		}
	}
	raw, value = s.c.Seek(key)
	return s.settle(raw, value)
}

func (s *scan) next() (raw, value []byte) {
	raw, value = s.c.Next()
	return s.settle(raw, value)
}

// settle skips windows of other subjects.
func (s *scan) settle(raw, value []byte) ([]byte, []byte) {
	want := s.at
	for {
		k, ok := parseWindowKey(raw)
		if !ok || k.window != want.window || k.start >= s.to {
			return nil, nil
		}
		side := cmp.Or(cmp.Compare(k.of, want.of), cmp.Compare(k.namespace, want.namespace))
		if side == 0 && s.id != "" {
			side = cmp.Compare(k.id, s.id)
		}
		if side == 0 {
			s.at = k
			return raw, value
		}
		want.start = k.start
		if side > 0 {
			want.start++
		}
		key := want.appendSubject(nil)
		if s.id != "" {
			key = appendPart(key, s.id)
		}
		raw, value = s.c.Seek(key)
	}
}

func (s *scan) record(w store.Window, value []byte) (store.UsageRecord, error) {
	counts, err := decodeCounts(value, nil)
	return store.UsageRecord{ID: s.at.id, Sub: s.at.sub, Window: w, Start: s.at.time(), Counts: counts}, err
}

// Check returns an error for an unknown type of window.
func Check(w store.Window) error {
	if !slices.Contains(store.Windows, w) {
		return store.ErrInvalid
	}
	return nil
}

// Observations converts the readings of processes.
func Observations(readings []store.Reading) ([]Observation, error) {
	out := make([]Observation, len(readings))
	for i := range readings {
		r := &readings[i]
		if r.Source == "" || r.ID == 0 || r.Bucket.Namespace == "" || r.Bucket.Entity == "" || r.Bucket.Resource == "" {
			return nil, store.ErrInvalid
		}
		out[i] = Observation{Bucket: r.Bucket, Source: r.Source, ID: r.ID, Minute: MinuteOf(r.At)}
		for j := range r.Counts {
			for f := range figures {
				if v := *Field(&r.Counts[j].Figures, f); v != 0 && f != Peak {
					out[i].Counts = append(out[i].Counts, Count{r.Counts[j].Limit, f, v})
				}
			}
		}
	}
	return out, nil
}
