package disk

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"

	"github.com/weirlimits/weir/store"
)

// Backup writes a copy of the store's files to a directory, which it creates, and replaces an earlier copy only by a
// complete one. A store that is opened on the copy is as this one would be after a crash at the time of the copy. The
// store goes on deciding; a commit that makes the file larger waits until it is copied. Errors are a [*store.Error].
func (s *Store) Backup(ctx context.Context, dir string) error {
	if err := s.ready(ctx, nil); err != nil {
		return err
	}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = s.copyTo(dir)
	}
	if err != nil {
		return &store.Error{Op: "backup", Key: dir, Err: err, Hint: "the earlier copy, if there is one, is unchanged"}
	}
	return nil
}

// copyTo copies usage last: it holds all that buckets whose records are missing from the first file had counted.
func (s *Store) copyTo(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, File)); err == nil {
		if held, err := os.Stat(s.journal.file.name); err == nil && same(held, filepath.Join(dir, File)) {
			return errors.New("is the directory of the store itself")
		}
	}
	tx, err := s.db.Begin(false)
	if err == nil {
		err = copyFile(tx, filepath.Join(dir, File))
	}
	if err == nil && s.usage != nil {
		if tx, err = s.usage.snapshot(); err == nil && tx != nil {
			err = copyFile(tx, filepath.Join(dir, UsageFile))
		}
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}

func same(held fs.FileInfo, name string) bool {
	other, err := os.Stat(name)
	return err == nil && os.SameFile(held, other)
}

// snapshot returns a transaction on the usage up to now, or nil if there is none yet.
func (l *meter) snapshot() (tx *bolt.Tx, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, store.ErrClosed
	}
	if err = l.takeIn(); err != nil || l.db == nil {
		return nil, err
	}
	err = guarded(func() (err error) { tx, err = l.db.Begin(false); return err })
	return tx, err
}

// copyFile writes what a transaction shows to a file, and ends it.
func copyFile(tx *bolt.Tx, name string) (err error) {
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	f, err := os.OpenFile(name+".part", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = guarded(func() error { _, err := tx.WriteTo(f); return err })
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(name+".part", name)
}
