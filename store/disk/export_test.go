package disk

import bolt "go.etcd.io/bbolt"

// NoSync has a store leave its file to the system, for tests that do not end it by a power cut.
func (s *Store) NoSync() {
	s.db.NoSync = true
	if s.usage != nil {
		s.usage.mu.Lock()
		s.usage.noSync = true
		s.usage.mu.Unlock()
	}
}

// Commits lets f decide about each transaction, which it is handed the commit of. To be called before the store is
// used.
func (s *Store) Commits(f func(commit func() error) error) {
	s.journal.commit = func(tx *bolt.Tx) error {
		tried := false
		err := f(func() error {
			tried = true
			return tx.Commit()
		})
		if !tried {
			if failed := tx.Rollback(); failed != nil {
				return failed
			}
		}
		return err
	}
}

// MaxSize lets the file grow no further than to so many bytes; 0 lifts that. No transaction may be under way.
func (s *Store) MaxSize(bytes int) { s.db.MaxSize = bytes }

// File format details that tests damage.
var (
	MetaBucket, RecordBucket = metaBucket, recordBucket
	FormatKey                = formatKey
)

// Reserve is reserve.
var Reserve = reserve
