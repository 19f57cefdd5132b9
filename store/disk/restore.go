package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weirlimits/weir/store"
)

// Restore makes the store in the directory dir from a copy that [Store.Backup] wrote, once it has opened the copy
// without an error. An existing store in dir is moved to the directory aside; if aside is empty, it is an error that
// wraps [fs.ErrExist], and if another process has it open, [ErrLocked]. Whatever fails, the copy stays as it is, and so
// does an existing store. Errors are a [*store.Error].
func Restore(from, dir, aside string) error {
	err := restore(filepath.Clean(from), filepath.Clean(dir), aside)
	var known *store.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	hint := "the copy and the store are unchanged"
	if errors.Is(err, fs.ErrExist) {
		hint = "stop weir serve, and let the existing store be moved away: --replace"
	}
	return &store.Error{Op: "restore", Key: dir, Err: err, Hint: hint}
}

func restore(from, dir, aside string) error {
	if _, err := os.Stat(filepath.Join(from, File)); err != nil {
		return fmt.Errorf("%s is no copy of a store: %w", from, err)
	}
	_, err := os.Stat(dir)
	exists := err == nil
	switch {
	case exists && aside == "":
		return fmt.Errorf("there is a store: %w", fs.ErrExist)
	case exists:
		if _, err := os.Stat(aside); err == nil {
			return fmt.Errorf("%s: %w", aside, fs.ErrExist)
		}
		if err := unused(dir); err != nil {
			return err
		}
	}
	part := dir + ".part"
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(part, 0o700)); err != nil {
		return err
	}
	err = copyStore(from, part)
	if err == nil && exists {
		err = os.Rename(dir, aside)
	}
	if err == nil {
		err = os.Rename(part, dir)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(part))
	}
	return syncDir(filepath.Dir(dir))
}

// unused fails if another process has the store open. A store that cannot be opened for another reason may be replaced.
func unused(dir string) error {
	st, err := Open(dir, &Config{MustExist: true})
	if errors.Is(err, ErrLocked) {
		return err
	}
	if err == nil {
		return st.Close()
	}
	return nil
}

// copyStore copies the files of a store to a directory, and opens it once.
func copyStore(from, to string) error {
	for _, name := range []string{File, UsageFile} {
		err := copyWhole(filepath.Join(from, name), filepath.Join(to, name))
		if err != nil && (name == File || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	st, err := Open(to, &Config{MustExist: true})
	if err != nil {
		return err
	}
	return st.Close()
}

func copyWhole(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}
