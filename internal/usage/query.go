package usage

import (
	"bytes"
	"cmp"
	"container/heap"
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

// Top adds up the windows of each ID and returns those with the highest sums. It walks over all starts in parallel,
// so that it holds only one sum and the result in memory.
func Top(tx Tx, q *store.TopQuery) ([]store.UsageRecord, error) {
	var starts merged
	subject := windowKey{window: letter(q.Window), of: q.Of, namespace: namespaceOf(q.Of, q.Namespace)}
	for start := Start(q.Window, q.From); start.Before(q.To); {
		s := &scan{c: tx.Cursor(), at: subject, to: q.To.Unix()}
		s.at.start = start.Unix()
		raw, v := s.seek()
		if raw == nil {
			break
		}
		start = s.at.time() // there may be none before
		s.to = start.Unix() + 1
		if start.Before(q.From) {
			start = Next(q.Window, start)
			continue
		}
		starts = append(starts, &source{s, v})
		start = Next(q.Window, start)
	}
	heap.Init(&starts)
	best := &ranked{limit: q.Limit}
	var window, total []store.LimitFigures // reused for each ID
	for most := store.PageSize(q.Max); len(starts) > 0; {
		sum := store.UsageRecord{ID: starts[0].at.id, Window: q.Window, Start: q.From, Counts: total[:0]}
		for len(starts) > 0 && starts[0].at.id == sum.ID {
			s := starts[0]
			if q.Sub == "" || s.at.sub == q.Sub {
				var err error
				if window, err = decodeCounts(s.value, window[:0]); err != nil {
					return nil, err
				}
				sum.Counts = Merge(sum.Counts, window)
			}
			var raw []byte
			if raw, s.value = s.next(); raw == nil {
				heap.Pop(&starts)
			} else {
				heap.Fix(&starts, 0)
			}
		}
		total = sum.Counts
		best.offer(sum, most)
	}
	slices.SortFunc(best.records, func(a, b store.UsageRecord) int { return -best.compare(&a, &b) })
	return best.records, nil
}

type source struct {
	*scan

	value []byte
}

// merged is a heap of scans of different starts, ordered by position.
type merged []*source

func (m merged) Len() int { return len(m) }
func (m merged) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(m[i].at.id, m[j].at.id), cmp.Compare(m[i].at.start, m[j].at.start)) < 0
}
func (m merged) Swap(i, j int) { m[i], m[j] = m[j], m[i] }

// Push implements heap.Interface.
func (m *merged) Push(x any) { *m = append(*m, x.(*source)) } //nolint:forcetypeassert // holds nothing else

// Pop implements heap.Interface.
func (m *merged) Pop() any {
	s := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return s
}

// ranked is a heap of the best records, the worst of them first.
type ranked struct {
	limit   string
	records []store.UsageRecord
}

// rank returns the figure that a record is ranked by.
func (r *ranked) rank(u *store.UsageRecord) int64 {
	for i := range u.Counts {
		if c := &u.Counts[i]; c.Limit == r.limit {
			if c.Limit == "" {
				return c.Requests
			}
			return c.Consumed()
		}
	}
	return 0
}

func (r *ranked) compare(a, b *store.UsageRecord) int {
	return cmp.Or(cmp.Compare(r.rank(a), r.rank(b)), cmp.Compare(b.ID, a.ID))
}

// has reports whether a record has that figure.
func (r *ranked) has(u *store.UsageRecord) bool {
	return slices.ContainsFunc(u.Counts, func(c store.LimitFigures) bool { return c.Limit == r.limit })
}

func (r *ranked) offer(u store.UsageRecord, most int) {
	switch {
	case !r.has(&u):
	case len(r.records) < most:
		u.Counts = slices.Clone(u.Counts)
		heap.Push(r, u)
	case r.compare(&u, &r.records[0]) > 0:
		u.Counts = slices.Clone(u.Counts)
		r.records[0] = u
		heap.Fix(r, 0)
	}
}

func (r *ranked) Len() int           { return len(r.records) }
func (r *ranked) Less(i, j int) bool { return r.compare(&r.records[i], &r.records[j]) < 0 }
func (r *ranked) Swap(i, j int)      { r.records[i], r.records[j] = r.records[j], r.records[i] }

// Push implements heap.Interface.
//
//nolint:forcetypeassert // holds nothing else
func (r *ranked) Push(x any) { r.records = append(r.records, x.(store.UsageRecord)) }

// Pop implements heap.Interface.
func (r *ranked) Pop() any {
	u := r.records[len(r.records)-1]
	r.records = r.records[:len(r.records)-1]
	return u
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
