package redis

import (
	"context"
	"errors"

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
	_, _, err := s.bookLeft(ctx, space{id: namespace}, s.books(namespace, ofBuckets))
	if err != nil && !errors.Is(err, errUnkept) {
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
