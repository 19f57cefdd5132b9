package auth

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v4"
)

// ErrNoToken reports that a file has no token of that name.
var ErrNoToken = errors.New("no such token")

// List returns the entries of a token file.
func List(path string) ([]Entry, error) {
	entries, _, err := read(path)
	if err == nil {
		_, err = index(path, entries)
	}
	return entries, err
}

// Add adds an entry to a token file, and creates the file if needed. The file is replaced atomically: a reader sees
// either the old one or the new one.
func Add(path string, e Entry) error {
	return change(path, true, func(list *yaml.Node) error {
		var n yaml.Node
		if err := n.Encode(e); err != nil {
			return err
		}
		list.Content = append(list.Content, &n)
		return nil
	})
}

// Revoke removes the token of that name from a token file, as atomically as [Add]. Errors: [ErrNoToken].
func Revoke(path, name string) error {
	return change(path, false, func(list *yaml.Node) error {
		i := slices.IndexFunc(list.Content, func(n *yaml.Node) bool {
			var e Entry
			return n.Decode(&e) == nil && e.Name == name
		})
		if i < 0 {
			return fmt.Errorf("token %q in %s: %w", name, path, ErrNoToken)
		}
		list.Content = slices.Delete(list.Content, i, i+1)
		return nil
	})
}

// change rewrites a token file and keeps its comments.
func change(path string, create bool, f func(list *yaml.Node) error) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // a symlink stays a symlink
	}
	mode := fs.FileMode(0o600)
	var doc yaml.Node
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && create:
	case err != nil:
		return fmt.Errorf("read token file: %w", err)
	case create && len(bytes.TrimSpace(text)) == 0:
	default:
		if _, err := List(path); err != nil {
			return err
		}
		if err := yaml.Load(text, &doc); err != nil {
			return fmt.Errorf("token file %s: %w", path, err)
		}
		if info, err := os.Stat(path); err == nil {
			mode = info.Mode().Perm()
		}
	}
	list := &doc
	if doc.Kind == yaml.DocumentNode {
		list = doc.Content[0]
	} else {
		*list = yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	}
	list.Style &^= yaml.FlowStyle
	if err := f(list); err != nil {
		return err
	}
	if text, err = yaml.Dump(&doc); err != nil {
		return fmt.Errorf("write token file: %w", err)
	}
	entries, err := decode(path, bytes.NewReader(text))
	if err == nil {
		_, err = index(path, entries)
	}
	if err != nil {
		return err
	}
	return replace(path, text, mode)
}

func replace(path string, text []byte, mode fs.FileMode) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tokens-*")
	if err != nil {
		return fmt.Errorf("write token file: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write token file: %w", err), os.Remove(tmp.Name()))
		}
	}()
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
