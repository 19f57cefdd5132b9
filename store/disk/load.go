package disk

import (
	"errors"
	"fmt"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/inmem"
)

// load reads the file into memory. After an unclean end every bucket gets a new id: a reader may have seen counters
// ahead of those in the file, and under one id counters must never go back.
func (s *Store) load(st state, retired store.Retired) error {
	var rec inmem.Record
	return guarded(func() error {
		return s.db.View(func(tx *bolt.Tx) error {
			return errors.Join(
				each(tx, catalogBucket, func(k, v []byte) error {
					r, err := decodeCatalog(k, v)
					if err == nil {
						s.catalog.Load(r)
					}
					return err
				}),
				each(tx, epochBucket, func(k, v []byte) error {
					e, err := decodeEpoch(k, v)
					if err == nil {
						s.catalog.LoadEpoch(string(k), e)
					}
					return err
				}),
				each(tx, settledBucket, s.loadMark),
				each(tx, recordBucket, func(k, v []byte) error { return s.loadRecord(&rec, k, v, st, retired) }),
			)
		})
	})
}

func (s *Store) loadMark(k, v []byte) error {
	id, expires, err := decodeMark(k, v)
	if err == nil && !markExpired(k, s.table.Now()) {
		s.table.LoadSettled(id, expires)
	}
	return err
}

// loadRecord decodes a record over the one before, and loads it.
func (s *Store) loadRecord(rec *inmem.Record, k, v []byte, file state, retired store.Retired) error {
	clean := file.Clean
	if err := decodeRecord(rec, k, v); err != nil {
		return err
	}
	key := string(k)
	loaded, err := s.table.Load(key, rec, !clean)
	if err != nil {
		return err
	}
	if !loaded {
		s.journal.work.gone = append(s.journal.work.gone, key)
	}
	if loaded && clean || !counted(rec) {
		return nil
	}
	st := store.State{
		Bucket: inmem.ParseKey(key), ID: rec.ID, At: clock.Time(rec.At), Epoch: uint64(rec.Epoch), Takes: rec.Takes,
		Limits: slices.Clone(rec.Limits),
	}
	// A clean close has counted this, except for changes in its last minute.
	if s.usage != nil && (!clean || rec.At >= file.Clock-int64(time.Minute)) {
		s.usage.load(&st)
	}
	if retired != nil {
		retired(st)
	}
	return nil
}

func counted(rec *inmem.Record) bool {
	return slices.ContainsFunc(rec.Limits, func(l store.LimitState) bool { return l.Debited != 0 || l.Returned != 0 })
}

// each calls f with every entry of a bucket of the file, and names the entry for which f fails.
func each(tx *bolt.Tx, name []byte, f func(k, v []byte) error) error {
	b := tx.Bucket(name)
	if b == nil {
		return fmt.Errorf("%w: %s is missing", ErrCorrupt, name)
	}
	return b.ForEach(func(k, v []byte) error {
		if err := f(k, v); err != nil {
			return damaged(name, k, err)
		}
		return nil
	})
}

func damaged(name, key []byte, err error) error {
	if errors.Is(err, ErrNewer) {
		return fmt.Errorf("%s %q: %w", name, key, err)
	}
	return fmt.Errorf("%w: %s %q: %w", ErrCorrupt, name, key, err)
}
