package auth

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"
)

// ErrNoToken reports that a file has no token of that name.
var ErrNoToken = errors.New("no such token")

// List returns the entries of a token file.
func List(path string) ([]Entry, error) {
	entries, err := read(path)
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

// change rewrites a token file and keeps its comments, its owner and its mode. One change at a time: it is written into
// a file beside the token file, which only one process can create and which then becomes the token file.
func change(path string, create bool, f func(list *yaml.Node) error) (err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // a symlink stays a symlink
	}
	next, err := lock(path)
	if err != nil {
		return fmt.Errorf("write token file: %w", err)
	}
	defer func() {
		if err != nil {
			_ = next.Close()
			err = errors.Join(err, os.Remove(next.Name()))
		}
	}()
	text, err := os.ReadFile(path)
	if err != nil && !(create && errors.Is(err, fs.ErrNotExist)) {
		return fmt.Errorf("read token file: %w", err)
	}
	if text, err = changed(path, text, create, f); err != nil {
		return err
	}
	if err = replace(path, next, text); err != nil {
		return fmt.Errorf("write token file: %w", err)
	}
	return nil
}

// changed returns the text of a token file after a change.
func changed(path string, text []byte, create bool, f func(list *yaml.Node) error) ([]byte, error) {
	var doc yaml.Node
	if !create || len(bytes.TrimSpace(text)) > 0 {
		if _, err := List(path); err != nil {
			return nil, err
		}
		if err := yaml.Load(text, &doc); err != nil {
			return nil, fmt.Errorf("token file %s: %w", path, err)
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
		return nil, err
	}
	text, err := yaml.Dump(&doc)
	if err != nil {
		return nil, fmt.Errorf("write token file: %w", err)
	}
	entries, err := decode(path, bytes.NewReader(text))
	if err == nil {
		for i := range entries {
			entries[i].line = 0 // the file on disk has no such line
		}
		_, err = index(path, entries)
	}
	return text, err
}

// patience is how long a change waits for another one.
const patience = 10 * time.Second

// lock creates the file that is to replace a token file. While it exists, no other change begins.
func lock(path string) (*os.File, error) {
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		f, err := os.OpenFile(path+".lock", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
		if time.Since(begun) > patience {
			return nil, fmt.Errorf("another command is changing it: if there is none, remove %s.lock", path)
		}
	}
}

// replace makes next, with a text, the file at path. It has the owner and the mode of the file that was there.
func replace(path string, next *os.File, text []byte) error {
	info, err := os.Stat(path)
	if err == nil {
		err = errors.Join(own(next, info), next.Chmod(info.Mode().Perm()))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err = next.Write(text)
	if err = errors.Join(err, next.Sync(), next.Close()); err != nil {
		return err
	}
	return os.Rename(next.Name(), path)
}
