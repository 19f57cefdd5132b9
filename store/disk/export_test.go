package disk

import (
	bolt "go.etcd.io/bbolt"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/varint"
)

// NoSync makes a store leave syncing its file to the system, for tests that do not simulate a power cut.
func (s *Store) NoSync() {
	s.db.NoSync = true
	if s.usage != nil {
		s.usage.mu.Lock()
		s.usage.noSync = true
		s.usage.mu.Unlock()
	}
}

// Commits makes f handle each transaction's commit, which it gets as a function. Call it before the store is used.
func (s *Store) Commits(f func(commit func() error) error) {
	s.journal.file.commit = func(tx *bolt.Tx) error {
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

// Stopped returns a channel that is closed when Close has only the last transactions to write.
func (s *Store) Stopped() <-chan struct{} { return s.journal.stopped }

// MaxSize limits the file to the given size; 0 lifts the limit. No transaction may be under way.
func (s *Store) MaxSize(bytes int) { s.db.MaxSize = bytes }

// Details of the file format that tests damage.
var (
	MetaBucket, RecordBucket = metaBucket, recordBucket
	FormatKey                = formatKey
)

// Reserve exports reserve.
var Reserve = reserve

// AppendLimit exports appendLimit.
var AppendLimit = appendLimit

// ReadLimit exports readLimit.
func ReadLimit(raw []byte) (*store.Limit, error) { return readLimit(&varint.Reader{Rest: raw}) }
