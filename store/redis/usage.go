package redis

import (
	"context"
	"errors"
	"strconv"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/ledger"
)

var _ store.Usage = (*Store)(nil)

// Count implements [store.Usage]. If nobody keeps usage, readings are accepted but not counted: a later reading of the
// same counters makes up for them.
func (s *Store) Count(ctx context.Context, readings ...store.Reading) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	obs, err := ledger.Observations(readings)
	if err != nil {
		return err
	}
	by := make(map[string][]*entry) // by namespace
	known := make(map[string]*entry)
	for i := range obs {
		o := &obs[i]
		if checkParts([]store.Debit{{Bucket: o.Bucket}}) != nil {
			continue // no bucket has such a name, and it must not block the others
		}
		ns, field := o.Bucket.Namespace, member(o.Source, member(o.Bucket.Entity, o.Bucket.Resource))
		e := known[member(ns, field)]
		if e == nil {
			e = &entry{Bucket: o.Bucket, Account: booked{field: field}}
			known[member(ns, field)] = e
			by[ns] = append(by[ns], e)
		}
		e.Readings = ledger.MergeReading(e.Readings, o.Reading)
	}
	for ns, entries := range by {
		key := s.keys.meter(ns)
		kept, err := s.run(ctx, keptScript, []string{key}, nil).AsInt64()
		if err != nil {
			return s.trouble("count", key, err)
		}
		if kept == 0 {
			continue
		}
		// A damaged account blocks no others, and is removed after three days.
		if _, _, err := s.books(ns, ofProcesses).book(ctx, entries); err != nil && !errors.Is(err, errUnkept) {
			return err
		}
	}
	return nil
}

// ForgetUsage implements [store.Usage]. What the namespace's buckets have counted so far is added to the sums over the
// store. The buckets' accounts stay, otherwise it would be counted again.
func (s *Store) ForgetUsage(ctx context.Context, namespace string) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if _, _, err := s.bookLeft(ctx, space{id: namespace}, s.books(namespace, ofBuckets)); err != nil && !errors.Is(err, errUnkept) {
		return err
	}
	of := string([]byte{byte(store.OfBucket), byte(store.OfChildren), byte(store.OfResource), byte(store.OfNamespace)})
	for _, w := range store.Windows {
		key := s.keys.starts(namespace, w)
		for at := "-inf"; at != ""; {
			var err error
			at, err = s.run(ctx, forgetUsageScript, []string{key}, []string{
				s.keys.base(namespace), string(w[:1]), of, at, "200",
			}).ToString()
			if err != nil {
				return s.trouble("usage", key, err)
			}
			if err := s.ready(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// windowsOf selects windows of one type in one namespace.
type windowsOf struct {
	namespace   string
	window      store.Window
	of          store.UsageOf
	first, last int64 // starts, in seconds
	lo, hi      string
	sub         string
}

// from is where a list continues: a start, and a name within it; an empty name means the first.
type from struct{ start, name string }

// found is one window.
type found struct {
	start   int64
	member  string
	figures []store.LimitFigures
}

// look returns windows in order, at most so many, and where to continue; nil if there are no more.
func (s *Store) look(ctx context.Context, w *windowsOf, at from, most int) ([]found, *from, error) {
	key := s.keys.starts(w.namespace, w.window)
	if at.start == "" {
		at.start = strconv.FormatInt(w.first, 10)
	}
	got, err := s.run(ctx, listUsageScript, []string{key}, []string{
		s.keys.base(w.namespace), kindOf(w.window, w.of), at.start, strconv.FormatInt(w.last, 10), at.name, w.lo, w.hi,
		strconv.Itoa(most), w.sub,
	}).ToArray()
	if err == nil && len(got)%3 != 2 {
		err = errFormat
	}
	if err != nil {
		return nil, nil, s.trouble("usage", key, err)
	}
	out := make([]found, 0, len(got)/3)
	for i := 2; i < len(got) && err == nil; i += 3 {
		var f found
		if f.start, err = got[i].AsInt64(); err != nil {
			break
		}
		if f.member, err = got[i+1].ToString(); err != nil {
			break
		}
		var figures []string
		figures, err = got[i+2].AsStrSlice()
		f.figures = figuresOf(figures)
		out = append(out, f)
	}
	var next from
	if err == nil {
		next.start, err = got[0].ToString()
	}
	if err == nil {
		next.name, err = got[1].ToString()
	}
	switch {
	case err != nil:
		return nil, nil, s.trouble("usage", key, err)
	case next.start == "":
		return out, nil, nil
	}
	return out, &next, nil
}

// figuresOf returns the figures of a window, by limit, from the fields of its hash.
func figuresOf(fields []string) []store.LimitFigures {
	var counts []store.LimitFigures
	for i := 0; i+1 < len(fields); i += 2 {
		if n, err := strconv.ParseInt(fields[i+1], 10, 64); err == nil && fields[i] != "" {
			counts = ledger.AddLetter(counts, fields[i][0], fields[i][1:], n)
		}
	}
	return counts
}
