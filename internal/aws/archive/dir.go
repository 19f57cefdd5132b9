package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Dir is a directory as a [Bucket]. The first write creates it.
type Dir string

// Put writes to a temporary file and renames it, so that the object is either complete or absent.
func (d Dir) Put(_ context.Context, name string, content []byte) error {
	path := filepath.Join(string(d), filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// List returns the objects below the directory that prefix names.
func (d Dir) List(_ context.Context, prefix string) ([]string, error) {
	if _, err := os.Stat(string(d)); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	var names []string
	err := fs.WalkDir(os.DirFS(string(d)), strings.TrimSuffix(prefix, "/"), func(
		path string, e fs.DirEntry, err error,
	) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err == nil && e.Type().IsRegular():
			names = append(names, path)
		}
		return err
	})
	return names, err
}

// Get reads an object.
func (d Dir) Get(_ context.Context, name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(d), filepath.FromSlash(name)))
}
