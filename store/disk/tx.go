package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"syscall"

	bolt "go.etcd.io/bbolt"

	"github.com/weirlimits/weir/store"
)

// file is the store's file. One goroutine at a time writes it.
type file struct {
	name   string
	db     *bolt.DB
	ids    uint64 // ids of this run are above it
	commit func(*bolt.Tx) error
	broken error // why it must not be written any more
}

// put adds a chunk to a transaction.
func (f *file) put(tx *bolt.Tx, c *chunk, clean bool) error {
	records := tx.Bucket(recordBucket)
	for _, key := range c.gone {
		if err := records.Delete([]byte(key)); err != nil {
			return err
		}
	}
	for i := range c.records {
		if err := records.Put([]byte(c.records[i].key), c.records[i].value); err != nil {
			return err
		}
	}
	if len(c.marks) > 0 {
		if err := putMarks(tx, c); err != nil {
			return err
		}
	}
	begin := false
	for _, o := range c.ops {
		if err := o.put(tx); err != nil {
			return err
		}
		begin = begin || o.begin
	}
	if len(c.records)+len(c.gone)+len(c.marks) == 0 && !clean && !begin {
		return nil // only the catalog has changed
	}
	meta := tx.Bucket(metaBucket)
	if has := meta.Get(formatKey); c.format > has[len(has)-1] { // an earlier version refuses the file from now on
		if err := meta.Put(formatKey, formatRecord(c.format)); err != nil {
			return err
		}
	}
	st := state{Clock: c.at, IDs: f.ids, Clean: clean}
	return meta.Put(stateKey, st.encode())
}

func (o *op) put(tx *bolt.Tx) error {
	for _, p := range o.puts {
		b := tx.Bucket(p.bucket)
		if p.value == nil {
			if err := b.Delete(p.key); err != nil {
				return err
			}
		} else if err := b.Put(p.key, p.value); err != nil {
			return err
		}
	}
	return nil
}

// putMarks writes credits and ids of settles. It removes some expired ids: more than it writes, so that removal keeps
// up.
func putMarks(tx *bolt.Tx, in *chunk) error {
	b := tx.Bucket(settledBucket)
	for i := range in.marks {
		m := &in.marks[i]
		if m.credit != 0 {
			in.format = max(in.format, quotas)
			credits, err := tx.CreateBucketIfNotExists(creditBucket)
			if err != nil {
				return err
			}
			if err := credits.Put([]byte(m.id), encodeCredit([]byte(m.id), m.credit)); err != nil {
				return err
			}
			continue
		}
		key := markKey(m.id, m.expires)
		if err := b.Put(key, checked(key, nil)); err != nil {
			return err
		}
	}
	c := b.Cursor()
	for range 2*len(in.marks) + 8 {
		k, _ := c.First()
		if k == nil || !markExpired(k, in.at) {
			break
		}
		if err := c.Delete(); err != nil {
			return err
		}
	}
	return nil
}

// update calls do in a transaction and commits it. After most errors, nothing was written. If the file could not be
// synced, its content is unknown, and the store does not write it again.
func (f *file) update(do func(*bolt.Tx) error) error {
	if f.broken != nil {
		return f.trouble(f.broken)
	}
	var tx *bolt.Tx
	err := guarded(func() (err error) {
		if tx, err = f.db.Begin(true); err != nil {
			return err
		}
		if err := do(tx); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return f.commit(tx)
	})
	if err != nil && unsure(err) {
		f.broken = err
		if tx != nil { // it may have panicked in the middle of a transaction
			_ = guarded(tx.Rollback)
		}
	}
	return f.trouble(err)
}

// unsure reports whether an error leaves the content of the file unknown. After a failed sync, the system may report
// the same data as synced the next time.
func unsure(err error) bool {
	if _, ok := err.(syscall.Errno); ok { //nolint:errorlint // from fdatasync, which bbolt returns unwrapped
		return true
	}
	var pe *fs.PathError
	return errors.Is(err, errFault) || errors.As(err, &pe) && pe.Op == "sync"
}

// errFault reports that the file is not what it was when it was opened.
var errFault = errors.New("the file is damaged")

// guarded turns a panic in bbolt, or a fault in the mapped file, into an error.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errFault, r)
		}
	}()
	return f()
}

func (f *file) trouble(err error) error {
	if err == nil {
		return nil
	}
	hint := "nothing was written; the store works again once the file can be written"
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		hint = "free disk space; the store then works again"
	case errors.Is(err, errFault), unsure(err):
		hint = "check the disk, then restart: the file is no longer written"
	}
	return &store.Error{Op: "commit", Key: f.name, Err: err, Hint: hint}
}
