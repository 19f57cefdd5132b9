package disk

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/catalog"
	"github.com/weirlimits/weir/store/internal/inmem"
)

// File is the name of the store's file within its directory.
const File = "weir.db"

var (
	// ErrNotExist reports that there is no store where MustExist requires one. It wraps fs.ErrNotExist.
	ErrNotExist = fmt.Errorf("the store does not exist: %w", fs.ErrNotExist)
	// ErrLocked reports that another process has the store open.
	ErrLocked = errors.New("another process has the store open")
	// ErrForeign reports that the file is not a weir store.
	ErrForeign = errors.New("not a weir store")
	// ErrNewer reports that a later version of weir wrote the file.
	ErrNewer = errors.New("written by a later version of weir")
	// ErrCorrupt reports that the file is damaged.
	ErrCorrupt = errors.New("the file is damaged")
)

// lockTimeout is how long Open waits for another process to unlock the file: that process may only be reading it.
const lockTimeout = 100 * time.Millisecond

// Open opens the store in the directory path. It creates the directory and the store if they do not exist, unless
// MustExist is set. A nil cfg means all defaults. Only one process at a time can have a store open: others get
// [ErrLocked].
//
// Errors are a [*store.Error] with the file's name, wrapping one of this package's errors or a system error.
func Open(path string, cfg *Config) (*Store, error) {
	c := Config{}
	if cfg != nil {
		c = *cfg
	}
	c.Mode = cmp.Or(c.Mode, Ahead)
	c.Interval = cmp.Or(max(0, c.Interval), DefaultInterval)
	c.MaxBuckets = cmp.Or(max(0, c.MaxBuckets), DefaultMaxBuckets)
	c.UsageInterval = cmp.Or(c.UsageInterval, DefaultUsageInterval)
	file := filepath.Join(path, File)
	if err := c.Mode.check(); err != nil {
		return nil, &store.Error{Op: "open", Key: file, Err: err}
	}
	s, err := open(path, file, &c)
	if err != nil {
		return nil, openError(file, err)
	}
	return s, nil
}

func open(dir, name string, cfg *Config) (*Store, error) {
	if err := prepare(dir, name, cfg.MustExist); err != nil {
		return nil, err
	}
	if err := validate(name); err != nil {
		return nil, err
	}
	var db *bolt.DB
	err := guarded(func() (err error) {
		db, err = bolt.Open(name, 0o600, &bolt.Options{
			Timeout:        lockTimeout,
			NoFreelistSync: true, // found by walking the file, which Open does anyway
			FreelistType:   bolt.FreelistMapType,
			NoStatistics:   true,
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	s, err := build(dir, name, db, cfg)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// prepare creates the directory, or checks that the store exists if must is set.
func prepare(dir, file string, must bool) error {
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	case errors.Is(err, fs.ErrNotExist) && !must:
		return os.MkdirAll(dir, 0o700)
	case errors.Is(err, fs.ErrNotExist):
		return ErrNotExist
	case err != nil:
		return err
	}
	info, err = os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && must, err == nil && info.Size() == 0 && must:
		return ErrNotExist
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil && !info.Mode().IsRegular():
		return ErrForeign
	}
	return err
}

// build builds a store on an open file.
func build(dir, name string, db *bolt.DB, cfg *Config) (*Store, error) {
	st, fresh, err := begin(db)
	if err != nil {
		return nil, err
	}
	if fresh {
		if err := syncDir(dir); err != nil {
			return nil, err
		}
	}
	j := &journal{
		journalConfig: journalConfig{
			mode: cfg.Mode, interval: cfg.Interval, file: &file{name: name, db: db, commit: (*bolt.Tx).Commit},
		},
		committer: committer{
			wake: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{}),
		},
		next: newBatch(),
	}
	tc := inmem.Config{Now: cfg.Now, MaxBuckets: cfg.MaxBuckets, Retired: cfg.Retired, Journal: j}
	if cfg.UsageInterval > 0 {
		j.usage = newMeter(dir, cfg)
		tc.Meter = &j.usage.Meter
	}
	if !fresh {
		tc.NotBefore = clock.Time(st.Clock)
		tc.Births = st.IDs + idStride
	}
	j.table = inmem.New(tc)
	j.file.ids = max(uint64(max(1, j.table.Now())), tc.Births)
	t := j.table
	s := &Store{table: t, db: db, journal: j, usage: j.usage}
	s.catalog = catalog.New(func() time.Time { return clock.Time(t.Now()) })
	if s.usage != nil {
		s.usage.Table, s.usage.Parent = t, s.catalog.Parent
	}
	if err := s.load(st, cfg.Retired); err != nil {
		return nil, err
	}
	go j.run()
	if s.usage != nil {
		s.usage.Since = t.Now() // everything loaded is counted or pending
		go s.usage.run()
	}
	return s, nil
}

// begin reads the file's state, or initializes a new file as a store.
func begin(db *bolt.DB) (st state, fresh bool, err error) {
	err = guarded(func() error {
		return db.View(func(tx *bolt.Tx) error {
			meta := tx.Bucket(metaBucket)
			if meta == nil {
				if name, _ := tx.Cursor().First(); name != nil {
					return ErrForeign
				}
				fresh = true
				return nil
			}
			var err error
			if err = checkFormat(meta.Get(formatKey)); err != nil {
				return err
			}
			if st, err = decodeState(meta.Get(stateKey)); err != nil {
				return damaged(metaBucket, stateKey, err)
			}
			return nil
		})
	})
	if err != nil || !fresh {
		return st, false, err
	}
	st = state{Clock: -1 << 63, Clean: true}
	err = guarded(func() error {
		return db.Update(func(tx *bolt.Tx) error {
			for _, name := range [][]byte{metaBucket, recordBucket, settledBucket, catalogBucket, epochBucket} {
				if _, err := tx.CreateBucket(name); err != nil {
					return err
				}
			}
			meta := tx.Bucket(metaBucket)
			return errors.Join(meta.Put(formatKey, formatRecord(first)), meta.Put(stateKey, st.encode()))
		})
	})
	return st, true, err
}

func formatRecord(version byte) []byte { return append([]byte(magic), version) }

func checkFormat(v []byte) error {
	switch n := len(magic); {
	case len(v) < n+1 || string(v[:n]) != magic:
		return ErrForeign
	case v[n] > format:
		return fmt.Errorf("%w: format %d, this one knows %d", ErrNewer, v[n], format)
	case v[n] < first || len(v) != n+1:
		return fmt.Errorf("%w: format %q", ErrCorrupt, v[n:])
	}
	return nil
}

// syncDir makes the name of a new file durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	// Systems that cannot sync directories.
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrPermission) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

// openError adds a hint on what to do about err.
func openError(file string, err error) error {
	var hint string
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		err, hint = ErrLocked, "stop that process or, if it is weir serve, go through it: --server URL with most "+
			"commands, weir serve --backup DIR for a copy"
	case errors.Is(err, ErrNotExist):
		hint = "check the path, or create a store here with its first limits: weir system set -l rpm:100/min"
	case errors.Is(err, fs.ErrPermission):
		hint = "the user that runs weir must own the directory and the file"
	case errors.Is(err, syscall.ENOTDIR):
		hint = "name a directory: the store is a file in it"
	case errors.Is(err, ErrForeign):
		hint = "name another directory, or move the file away"
	case errors.Is(err, ErrNewer):
		hint = "use that version of weir"
	case errors.Is(err, ErrCorrupt):
		hint = "restore the file from a backup, or move it away to start over"
	case errors.Is(err, errFault):
		err, hint = fmt.Errorf(
			"%w: %w", ErrCorrupt, err,
		), "restore the file from a backup, or move it away to start over"
	case errors.Is(err, syscall.ENOSPC):
		hint = "free disk space"
	}
	return &store.Error{Op: "open", Key: file, Err: err, Hint: hint}
}
